"""How often a kernel of ours is called: written at 1, 2, 4, 8, ... calls, so that a hot path writes some 20 lines."""

from __future__ import annotations

import os

from .say import line

_on = os.environ.get("NIGHTGATE_EVIDENCE") == "1"
_counts: dict[str, int] = {}


def count(name: str) -> None:
    """One more call of `name` in this process. Calls from Python are counted: a captured graph that is replayed calls
    nothing, so its kernels count once, at the capture."""
    if not _on:
        return
    now = _counts[name] = _counts.get(name, 0) + 1
    if now & (now - 1) == 0:
        line("counter", {"name": name, "count": now, "pid": os.getpid()})
