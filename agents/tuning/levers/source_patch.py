"""Lever: a patch to one installed distribution, laid over it for the engine's process alone.

Key "<distribution>/<name>", for example "vllm/skip-copy"; the distribution is the folder in site-packages. The value
is a unified diff (agents/tuning/patch.py says what it may touch). Patches of one distribution apply in key order, on
top of the files that other levers replace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.tuning.levers import in_overlay
from agents.tuning.patch import PatchProblem, read_patch
from agents.tuning.placed import Placed, PlacementError
from contracts import Lever

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

keys = partial(in_overlay.keys, Lever.SOURCE_PATCH)
read = partial(in_overlay.read, Lever.SOURCE_PATCH)
write = partial(in_overlay.write, Lever.SOURCE_PATCH)


def normalise(key: str) -> str:
    return key.strip()


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    """What can be said without the installed files; whether it applies to them is known when it is placed."""
    named = _KEY.fullmatch(normalise(key))
    if named is None:
        return f"{key!r} must be <distribution>/<name>, the distribution as it is imported: vllm/skip-copy"
    if value is None:
        return None
    if not isinstance(value, str):
        return f"patch {key} takes a unified diff as text"
    try:
        read_patch(value, named[1])
    except PatchProblem as problem:
        return f"patch {key} {problem}"
    return None


def place(entries: Mapping[str, JsonValue], python: str, folder: Path, env: Mapping[str, str]) -> Placed:
    """The patches by distribution; they are applied where all levers' files are known (agents/tuning/placing.py).
    Raises PlacementError for an entry that is no patch."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for key in sorted(entries):
        named, text = _KEY.fullmatch(key), entries[key]
        if named is None or not isinstance(text, str):
            raise PlacementError(f"patch {key!r} must be <distribution>/<name> and hold a unified diff as text")
        found[named[1]] = (*found.get(named[1], ()), (key.partition("/")[2], text))
    return Placed(patches=found)
