"""`ledger.head`: the number and hash of the last line that was acknowledged to the writer.

A hash chain alone cannot show that lines are missing at its end; this can. It is written after the line is on disk, so
it may lag behind the ledger (a crash between the two) and is never ahead of it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

HEAD = "ledger.head"
_FORM = re.compile(r"(\d{12}) ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class Head:
    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq:012d} {self.hash}\n"  # always of one length, so that it is overwritten in place


def read_head(folder: Path) -> Head | None:
    """None when there is none, or when it is not one (a copied ledger, a power loss)."""
    try:
        match = _FORM.fullmatch((folder / HEAD).read_text(errors="replace"))
    except OSError:
        return None
    return Head(int(match[1]), match[2]) if match else None


def open_head(folder: Path, head: Head) -> int:
    """A file descriptor for write_head. Raises OSError."""
    fd = os.open(folder / HEAD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, len(str(head)))
        os.pwrite(fd, str(head).encode(), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_head(fd: int, head: Head) -> None:
    os.pwrite(fd, str(head).encode(), 0)
