"""What one engine finds before the installed files: environment and folders that carry a night's tables and patches."""

from __future__ import annotations

from contracts import Frozen


class Placement(Frozen):
    """Made from an EngineSpec's overlay before its launch (agents/tuning/placing.py); the same spec gives the same."""

    env: dict[str, str] = {}  # a variable of the spec's own is here only where its value was taken up
    python_path: tuple[str, ...] = ()  # folders before everything else on the engine's PYTHONPATH, in this order


NOTHING = Placement()
