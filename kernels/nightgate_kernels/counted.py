"""Each call of a kernel that serves is counted by the watcher, where the engine has it: a night sees it in use."""

from __future__ import annotations

try:
    from nightgate_evidence import count as count  # type: ignore[import-not-found]
except ImportError:  # an engine without the watcher

    def count(name: str) -> None:
        """Nobody counts."""
