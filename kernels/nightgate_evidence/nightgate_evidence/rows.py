"""Which file and which of its rows an answer came from.

AITER's JSON files are read by one function, `load_config_json`; what it gave, by path, is remembered here. The row of
an answer is then the place in those files that holds an equal tile. Where several hold one, all are named: whoever
judges must compare what the two arms answered to the same question (agents/tuning/row_probe.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_BOUND = re.compile(r"M_(LEQ|GEQ)_(\d+)")
MOST_KEYS = 12  # named for one answer
MOST_DEPTH = 5
MOST_FILES = 500

_loaded: dict[str, Any] = {}  # path -> content, of every file that was asked for and exists
_trails: list[list[str]] = []  # of the lookups that are being answered: the files that each asked for


def heard(args: tuple[Any, ...], answer: Any) -> None:
    """load_config_json was called."""
    path = str(args[0]) if args else ""
    if not path or answer is None:
        return
    if len(_loaded) < MOST_FILES:
        _loaded[path] = answer
    if _trails:
        _trails[-1].append(path)


@contextmanager
def trail() -> Iterator[None]:
    """While a lookup is being answered."""
    _trails.append([])
    try:
        yield
    finally:
        _trails.pop()


def origin(answer: Any, rows: int | None = None) -> dict[str, Any]:
    """{"file", "row_keys"} of an answer: the last file of its trail that has an equal row. `rows` is the M that was
    asked for, which picks among equal rows of the kinds M_LEQ_x, M_GEQ_x and any."""
    asked_for = _trails[-1] if _trails else []
    for path in reversed(asked_for or list(_loaded)):
        keys = [".".join(place) for place in _places(_loaded.get(path), answer)]
        if keys:
            return {"file": path, "row_keys": _served(keys, _loaded[path], rows)[:MOST_KEYS]}
    return {"file": asked_for[-1] if asked_for else None, "row_keys": []}


def _places(table: Any, answer: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(table, dict) or len(path) > MOST_DEPTH:
        return
    if path and table == answer:
        yield path
        return
    for key, value in table.items():
        yield from _places(value, answer, (*path, str(key)))


def _served(keys: list[str], table: dict[str, Any], rows: int | None) -> list[str]:
    """Of several equal rows, the one that the order of lookup reaches first: upper bounds upwards, lower bounds
    downwards, any. Only where the row so found is among them: else the lookup is another, and all are named."""
    if rows is None or len(keys) < 2:
        return keys
    bounds = [(m[1], int(m[2]), key) for key in table if (m := _BOUND.fullmatch(key))]
    upper = sorted((n, key) for kind, n, key in bounds if kind == "LEQ" and rows <= n)
    lower = sorted(((n, key) for kind, n, key in bounds if kind == "GEQ" and rows >= n), reverse=True)
    first = [key for _, key in upper[:1]] or [key for _, key in lower[:1]] or ["any"]
    return first if first[0] in keys else keys
