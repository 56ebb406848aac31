"""Measures the night's card: a short child in the engine's interpreter copies memory on it, and multiplies matrices.

The loop never imports torch, so the child does (copy_worker.py); it ends before the first engine starts. Run for real
on CPU engines; the GPU half was not yet run on an AMD card.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cards.amd import canonical_arch
from cards.ask import NoAnswer, ask
from cards.detect import HERE, free_memory
from contracts import Card, MeasuredSheet, Rate

WORKER = Path(__file__).with_name("copy_worker.py")
TIME_LIMIT_S = 120.0  # importing torch takes 2 s on a warm machine, and tens where the file system is cold
WORK_S = 10.0  # of it for the measurements themselves
REPEATS = 20
# Well above any cache: the MI300X and MI355X have 256 MiB of Infinity Cache, large server CPUs up to 1 GiB of L3.
BUFFER_BYTES = {"amd": 1 << 30, "nvidia": 1 << 30, "cpu": 1 << 28}
LEAST_BUFFER_BYTES = 1 << 24


class CopyTestError(Exception):
    """No measurement. One line with the fix."""


def copy_test(
    python: str,
    card: Card,
    env: Mapping[str, str],
    *,
    buffer_bytes: int | None = None,
    repeats: int = REPEATS,
    matmul: bool = True,
    work_s: float = WORK_S,
    time_limit_s: float = TIME_LIMIT_S,
) -> MeasuredSheet:
    """`env` is what an engine gets, the variables that choose its card included. Takes 5 to 30 s. Raises
    CopyTestError: no torch, no answer in time, another card than `card`."""
    size = buffer_bytes or BUFFER_BYTES[card.kind]
    if card.kind == "cpu":  # on a GPU the child itself asks how much is free there
        size = min(size, (free_memory(card, HERE) or size) // 8)
        size = max(size, LEAST_BUFFER_BYTES)
    asked = {
        "device": "cpu" if card.kind == "cpu" else "gpu",
        "buffer_bytes": size // 4096 * 4096,
        "repeats": repeats,
        "matmul": matmul,
        "seconds": work_s,
    }
    return read_answer(_ask(python, asked, env, time_limit_s), card, now())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _ask(python: str, asked: Mapping[str, Any], env: Mapping[str, str], time_limit_s: float) -> dict[str, Any]:
    """The child's answer. (-I would shut out an interpreter that finds its packages by PYTHONPATH.)"""
    try:
        told: dict[str, Any] = ask(
            python, WORKER.read_text(encoding="utf-8"), given=asked, env=env, limit_s=time_limit_s
        )
    except NoAnswer as no:
        if "No module named 'torch'" in no.what:
            fix = "install the engine first"
            raise CopyTestError(f"{python} has no torch, so the card cannot be measured: {fix}") from None
        fix = "run it again when the machine is quiet, or switch card.copy_test off"
        raise CopyTestError(f"the copy test failed ({python} {no.what}): {fix}") from None
    return told


def read_answer(told: Mapping[str, Any], card: Card, at: str) -> MeasuredSheet:
    """Pure. Raises CopyTestError where the child measured nothing, or not the night's card."""
    if told.get("problem"):
        fix = "run `run_night.py doctor`: it says which permission or driver is missing"
        raise CopyTestError(f"the copy test could not run on {card.name} ({told['problem']}): {fix}")
    other = another_card(told.get("identity") or {}, card)
    if other:
        fix = "name the card in engine.env (HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES)"
        raise CopyTestError(f"the copy test ran on {other}, and the night's card is {_named(card)}: {fix}")
    ways = {name: rate for name, values in told.get("copy_gb_s", {}).items() if (rate := rate_of(values))}
    if not ways:
        raise CopyTestError("the copy test measured no copy: run it again when the machine is quiet")
    best = max(ways, key=lambda name: ways[name].value)
    products = {name: rate for name, values in told.get("matmul_tflops", {}).items() if (rate := rate_of(values))}
    mib = int(told["buffer_bytes"]) / 2**20
    clock = f"wall clock, {told.get('threads')} threads" if card.kind == "cpu" else "device events"
    others = "".join(f"; {name}: {rate.value:.1f} GB/s" for name, rate in ways.items() if name != best)
    return MeasuredSheet(
        arch=card.arch,
        card=_named(card),
        copy_gb_s=ways[best],
        matmul_tflops=products,
        how=f"torch {best} between two buffers of {mib:g} MiB, bytes read plus written, {clock}, "
        f"median of {ways[best].repeats} after a warm-up{others}",
        versions={name: told.get(name) for name in ("torch", "hip", "cuda")},
        at=at,
    )


def rate_of(values: Any) -> Rate | None:
    """None where there is no sample."""
    found = [float(v) for v in values if isinstance(v, int | float) and 0 < v < math.inf]
    if not found:
        return None
    return Rate(value=statistics.median(found), lowest=min(found), highest=max(found), repeats=len(found))


def another_card(identity: Mapping[str, Any], card: Card) -> str | None:
    """The card that torch saw first, in words, when it is surely not `card`; None when it is, or cannot be told."""
    name = str(identity.get("name") or "another card")
    arch = identity.get("gcnArchName")
    if card.kind == "amd" and isinstance(arch, str) and canonical_arch(arch) != card.arch:
        return f"{name} ({canonical_arch(arch)})"
    parts = [identity.get(f"pci_{part}_id") for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int)]
    if card.pci_address and len(numbers) == len(parts):
        seen = "{:04x}:{:02x}:{:02x}".format(*numbers)
        if seen != card.pci_address.rpartition(".")[0]:
            return f"{name} at {seen}"
    return None


def _named(card: Card) -> str:
    return f"{card.name} at {card.pci_address}" if card.pci_address else card.name
