"""The lines that the watcher inside an engine wrote into its log (kernels/nightgate_evidence)."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from contracts import Frozen

_LINE = re.compile(r"nightgate-evidence (\w+) (\{.*)")
# What our own kernels write themselves (kernels/nightgate_kernels): KERNEL ROW -> {...} (from PATH) or (built in)
_OWN_ROW = re.compile(r"nightgate_kernels: table row (\S+) (\S+) -> (\{.*)")
_FROM = re.compile(r"\s*\(from (.*)\)")


def _finite(text: str) -> float:
    """A number as the ledger can hold it. Raises ValueError for NaN and infinities, 1e999 among them."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no finite number")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _decode(text: str) -> tuple[Any, int]:
    """The value, and where it ends. Raises ValueError."""
    try:
        return _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class Seen(Frozen):
    kind: str  # "active", "table_row", "imported", "counter", "problem"
    data: dict[str, Any]


def seen_in(log: str) -> tuple[Seen, ...]:
    """In the order of the log. A line that another process's output has torn is left out, and one that the ledger could
    not hold."""
    found = []
    for line in log.splitlines():
        if own := _OWN_ROW.search(line):
            found += _own_row(own[1], own[2], own[3])
        match = _LINE.search(line)
        if match:
            try:
                data, _ = _decode(match[2])
            except ValueError:
                continue
            if isinstance(data, dict):
                found.append(Seen(kind=match[1], data=data))
    return tuple(found)


def _own_row(kernel: str, row: str, rest: str) -> list[Seen]:
    try:
        tile, end = _decode(rest)
    except ValueError:
        return []
    file = _FROM.match(rest[end:])
    asked = {"kernel": kernel, "row": row}  # what stands for the question: the line tells no size
    data = {"table": kernel, "row": tile, "row_keys": [row], "file": file[1] if file else None, "asked": asked}
    return [Seen(kind="table_row", data=data)]


def of_kind(lines: tuple[Seen, ...], kind: str) -> list[dict[str, Any]]:
    return [line.data for line in lines if line.kind == kind]


def blind(lines_a: tuple[Seen, ...], lines_b: tuple[Seen, ...]) -> str | None:
    """Why nothing can be said of an arm: the watcher is not in its processes. None when it is in both."""
    for arm, lines in (("A", lines_a), ("B", lines_b)):
        if not of_kind(lines, "active"):
            return (
                f"the watcher wrote nothing in arm {arm}'s log, so nothing can be seen there: has this vLLM general "
                "plugins, and does its log name nightgate_evidence as one that failed?"
            )
    return None
