"""What the watcher inside the engine is told to look for in patched files: each patch's own functions, as they lie in
the file that all patches together made (kernels/nightgate_evidence/nightgate_evidence/called.py reads it)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import JsonValue

from agents.tuning.touched import Function, Touched, functions_of, touched

MOST_FUNCTIONS = 60  # told of one patch in one file; the rest counts as what cannot be seen
Files = Mapping[str, bytes]  # path in the package -> content


def to_watch(package: Path, steps: Iterable[tuple[str, Files, Files]], files: Files) -> list[dict[str, JsonValue]]:
    """One entry for each patch and Python file, with the path inside `package` as "file". `steps` are (the patch's key,
    the replaced files before it, and after it), `files` the last of them. A file that this Python cannot read has one
    function more than it lists. Raises OSError."""
    found: list[dict[str, JsonValue]] = []
    for key, before, after in steps:
        for path in sorted(after):
            old = before[path] if path in before else _installed(package / path)
            if not path.endswith(".py") or old == after[path]:
                continue
            try:
                changed, there = touched(old, after[path]), functions_of(files[path])
            except (SyntaxError, ValueError):
                found.append({"patch": key, "file": path, "module": False, "functions": [], "more": 1})
                continue
            found.append({"patch": key, "file": path, **_entry(changed, there)})
    return found


def _entry(changed: Touched, there: Mapping[str, Function]) -> dict[str, JsonValue]:
    named = [there[name] for name in changed.functions if name in there]
    return {
        "module": changed.module,
        "functions": [function.model_dump() for function in named[:MOST_FUNCTIONS]],
        "more": len(named[MOST_FUNCTIONS:]),
    }


def _installed(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
