"""Which file and which of its rows an answer came from.

AITER's JSON files are read by one function, `load_config_json`; what it gave, by path, is remembered here. The row of
an answer is then the place in those files that holds the tile. Where several hold one, all are named: whoever
judges must compare what the two arms answered to the same question (agents/tuning/row_probe.py).
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import ModuleType
from typing import Any

_SHAPE = re.compile(r"-N=(\d+)-K=(\d+)")
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


def opening(module: ModuleType) -> Callable[[], AbstractContextManager[None]]:
    """For a module that opens its tables itself (AITER 0.1.7): its `open` is one that remembers, and what it returns is
    the trail of each of its lookups, since a table is opened at the first one only."""
    opened: list[str] = []

    def remembering(file: Any, *args: Any, **kwargs: Any) -> Any:
        path = str(file)
        if path.endswith(".json") and path not in opened:
            opened.append(path)
            # What cannot be read is told to the module by its own open.
            with suppress(OSError, ValueError), builtins.open(path, encoding="utf-8") as table:
                _loaded[path] = json.load(table)
        return builtins.open(file, *args, **kwargs)

    @contextmanager
    def own_trail() -> Iterator[None]:
        _trails.append(opened)
        try:
            yield
        finally:
            _trails.pop()

    module.__dict__.setdefault("open", remembering)
    return own_trail


def origin(answer: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """{"file", "row_keys"} of an answer: the last file of its trail that has an equal row. The M that was asked for
    picks among equal rows of the kinds M_LEQ_x, M_GEQ_x and any; a file of another N and K is passed over."""
    asked_for = _trails[-1] if _trails else []
    rows = asked["M"] if isinstance(asked.get("M"), int) else None
    for path in reversed(asked_for or list(_loaded)):
        if not _of_shape(path, asked):
            continue
        keys = ["/".join(place) for place in _places(_loaded.get(path), answer)]
        if keys:
            return {"file": path, "row_keys": _served(keys, _loaded[path], rows)[:MOST_KEYS]}
    return {"file": asked_for[-1] if asked_for else None, "row_keys": []}


def _of_shape(path: str, asked: dict[str, Any]) -> bool:
    """False for a file of another shape. Names of FP4 tables hold twice the K that is asked for (two in a byte)."""
    named = _SHAPE.search(path)
    if not named or not isinstance(asked.get("N"), int) or not isinstance(asked.get("K"), int):
        return True
    return int(named[1]) == asked["N"] and int(named[2]) in (asked["K"], 2 * asked["K"])


def _places(table: Any, answer: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(table, dict) or len(path) > MOST_DEPTH:
        return
    if path and _is_row(table, answer):
        yield path
        return
    for key, value in table.items():
        yield from _places(value, answer, (*path, str(key)))


def _is_row(row: dict[str, Any], answer: Any) -> bool:
    """A lookup may add to the tile that it found (SPLITK_BLOCK_SIZE)."""
    if row == answer:
        return True
    return isinstance(answer, dict) and bool(row) and all(k in answer and answer[k] == v for k, v in row.items())


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
