"""One line of evidence in the engine's log."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from typing import Any

MARK = "nightgate-evidence"
MOST_CHARS = 4000  # of one line
MOST_DEPTH = 6
_told: set[str] = set()


def line(kind: str, data: dict[str, Any]) -> None:
    """In one write, so that lines of several processes do not mix. A closed standard error is no reason to fail."""
    text = json.dumps(data, sort_keys=True)
    if len(text) > MOST_CHARS:
        text = json.dumps({name: data[name] for name in data if name != "row"} | {"row": "too long to show"})
    with contextlib.suppress(OSError):
        os.write(2, f"{MARK} {kind} {text[:MOST_CHARS]}\n".encode())


def problem(where: str, error: object) -> None:
    """Once for each place."""
    if where not in _told:
        _told.add(where)
        what = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        line("problem", {"where": where, "what": what[:300]})


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it; what has no such form (a dtype, an enum) as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if depth < MOST_DEPTH:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if hasattr(value, "_asdict"):
            value = value._asdict()
        if isinstance(value, dict):
            return {str(key): plain(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(inner, depth + 1) for inner in value]
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of NumPy's
            return plain(value.item(), depth + 1)
    return str(value)[:200]
