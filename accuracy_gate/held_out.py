"""The part of the gate that no proposer can know beforehand: tonight's secret seed.

The seed is drawn when a night begins and kept in a file of the night's folder that no agent is given. Prompts and
problems made from it were seen by nobody who chose a change. The ledger gets the seed's SHA-256 at the start and the
seed itself at the end, so that afterwards anyone can make the same prompts again and see that nothing was swapped.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from accuracy_gate.prompts import Prompt, prompts

EVERY = 3  # of the prompts one in so many is secret, so that any first few of them hold some


def draw(path: Path) -> str:
    """The night's secret: 32 hex digits, written whole or not at all, readable by its owner only; where there is one
    already, that one. Raises OSError, or ValueError when the file holds something else."""
    if not path.exists():
        part = path.with_suffix(".new")
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(16))
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # fails where another has just written one
        part.unlink()
    return read(path)


def read(path: Path, sealed: str | None = None) -> str:
    """The secret that was drawn. Raises OSError, or ValueError when it is not the one that was `sealed` (SHA-256)."""
    secret = path.read_text().strip()
    well_formed = len(secret) == 32 and set(secret) <= set("0123456789abcdef")
    if not well_formed or sealed not in (None, digest(secret)):
        raise ValueError(f"{path} is not what this night wrote there: restore it, or start a new night")
    return secret


def digest(secret: str) -> str:
    """SHA-256 of the secret's text, hex: what the ledger is told at the start."""
    return hashlib.sha256(secret.encode()).hexdigest()


def seed(secret: str, purpose: str) -> int:
    """A seed of 63 bits for one purpose; seeds of two purposes tell nothing of each other."""
    return int.from_bytes(hashlib.sha256(f"{secret} {purpose}".encode()).digest()[:8], "big") >> 1


def mixed_prompts(count: int, open_seed: int, secret: str) -> tuple[Prompt, ...]:
    """`count` prompts for the token gate, every third from the secret; the first k of n are those of k."""
    known = prompts(count, open_seed)
    hidden = prompts(count, seed(secret, "prompts"))
    return tuple(
        other.model_copy(update={"id": f"secret-{other.id}"}) if index % EVERY == EVERY - 1 else prompt
        for index, (prompt, other) in enumerate(zip(known, hidden, strict=True))
    )
