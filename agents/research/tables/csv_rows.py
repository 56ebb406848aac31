"""Rows of AITER's CSV families that could serve a product or the experts of a step that find none: the kernel of the
nearest size of the same shape, under this size. Read from the family as the installed AITER merges it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from agents.research.row_change import MOST, Candidate
from agents.research.tables.gemm_csv import Known, Plain, is_size
from agents.tuning.csv_family import Merged, merged
from agents.tuning.levers.aiter_csv import MEASURED, changed, normalise
from agents.tuning.placed import PlacementError
from contracts import Lever

FARTHEST = 8.0  # a kernel that was tuned for a size this many times off says little. Judged
# A hipBLASLt solution is a number that the library looked up for one size, and may not take another.
NEXT = 0.8  # of the probability, for each size that lies farther off. Judged
OF_ONE_SIZE = ("hipblaslt",)
_WHOLE = re.compile(r"-?\d{1,15}")
_PLAIN = Plain()


class Families:
    """Merged families, each read once."""

    def __init__(self, aiter: Path, known: Mapping[str, Known], environment: Mapping[str, str]) -> None:
        self.aiter, self.known, self.environment = aiter, known, environment
        self.held: dict[str, Merged | None] = {}

    def get(self, name: str) -> Merged | None:
        """None where a row of it cannot be laid: no variable, or files that AITER would rewrite."""
        if name not in self.held:
            known = self.known.get(name)
            try:
                override = self.environment.get(known.env, "") if known else ""
                self.held[name] = merged(self.aiter, name, known, override) if known and known.env else None
            except PlacementError:
                self.held[name] = None
        return self.held[name]


def csv_rows(
    families: Families, name: str, size: tuple[str, int], shape: Mapping[str, str], prefer: Mapping[str, str]
) -> list[Candidate]:
    """`size`: the column and the value that no row has, ("M", 64); `shape`: the other cells that must be so; `prefer`:
    cells that rows of which there are several should have. The nearest size first."""
    table, (column, wanted) = families.get(name), size
    if table is None or column not in table.columns:
        return []
    kin = [row for row in _of_shape(table, shape) if is_size(row[column].strip())]
    for cell, value in prefer.items():
        kin = [row for row in kin if row.get(cell, value) == value] or kin
    kin = [row for row in kin if row.get("libtype") not in OF_ONE_SIZE and _apart(row[column], wanted) <= FARTHEST]
    found: list[Candidate] = []
    for row in sorted(kin, key=lambda r: (_apart(r[column], wanted), int(r[column]))):
        key = normalise(f"{name}#{','.join(f'{c}={wanted if c == column else row[c]}' for c in _keys(table))}")
        values: dict[str, JsonValue] = {
            c: _cell(row[c]) for c in table.columns if c not in table.keys and c not in MEASURED
        }
        if any(one.row == values for one in found) or not _taken(table, key, values):
            continue
        words = f"the kernel of {column} {row[column]}, {_apart(row[column], wanted):.3g} times off"
        found.append(
            Candidate(lever=Lever.AITER_CSV, key=key, row=values, words=words, source=f"{name}#{column}={row[column]}")
        )
        if len(found) == MOST:
            break
    return [one.model_copy(update={"factor": NEXT**number}) for number, one in enumerate(found)]


def _taken(table: Merged, key: str, values: dict[str, JsonValue]) -> bool:
    """Whether the lever would lay it. A check of one row takes a pass over the family, some 10 ms."""
    try:
        changed(table, {key: values})
    except PlacementError:
        return False
    return True


def _of_shape(table: Merged, shape: Mapping[str, str]) -> list[dict[str, str]]:
    at = [(table.columns.index(c), _PLAIN[value]) for c, value in shape.items() if c in table.columns]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows if all(_PLAIN[row[i]] == v for i, v in at)]


def _keys(table: Merged) -> list[str]:
    return [c for c in table.keys if c != "_tag"]


def _apart(size: str, wanted: int) -> float:
    return math.exp(abs(math.log(max(int(size), 1) / wanted)))


def _cell(text: str) -> str | int:
    """A whole number as one, as the watcher's rows have it."""
    return int(text) if _WHOLE.fullmatch(text) else text
