"""Rows of AITER's JSON tables of GEMM tiles that could serve a product in the place of the row for any shape or size:
the neighbouring bound's tile under the bound of this size, or the table of the nearest shape under this shape's name.

A tile that was tuned for another size or shape is a guess; which guess is best a night finds out. What is held to is
all that the lever checks: a row that the lookup reaches, the keys of its neighbours, the card's LDS.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.research.row_change import Candidate
from agents.research.tables.dense_route import Route
from agents.research.tables.gemm_json import (
    CONFIGS,
    OWN_BOUNDS,
    GemmTables,
    TableFile,
    chosen,
    lookup,
    new_bucket,
    new_file,
)
from agents.tuning.levers.aiter_json import row_fault
from contracts import Lever

NEAREST = 2.0  # a shape whose N and K are at most this many times off may lend its table. Judged
TABLES = 2  # of the nearest shapes. Judged
NEAREST_BOUND = 4.0  # a row that was tuned for this many times fewer tokens, or more, says nothing of this size. Judged
# Judged, of the probability next to a neighbour's row.
FROM_DEFAULT, BORROWED = 0.8, 0.8
_SHAPE = re.compile(r"N=(\d+)-K=(\d+)")
_BELOW = re.compile(r"M_LEQ_(\d+)")


def json_rows(aiter: Path, tables: GemmTables, one: Route) -> list[Candidate]:
    """Best first; [] where the row that serves is not known, or an older AITER's own code chooses among its keys in a
    way that is not known (no bounds in its shared lookup, and no row of this bound in the family's default file)."""
    found = one.found
    if one.state != "default" or found is None or found.key in (None, "*"):
        return []
    held = next((t for t in tables.files.values() if t.source == found.source), None)
    if held is None:
        return []
    offered = [*_borrowed(tables, one, held), *_copied(tables, one, held, found.config)]
    offered.sort(key=lambda c: -c.factor)
    return [c for c in offered if c.row != found.config and row_fault(aiter, c.key, c.row) is None]


def _copied(tables: GemmTables, one: Route, held: TableFile, now: dict[str, Any]) -> Iterator[Candidate]:
    """A row under this size's own bound, where the one that serves is of another."""
    bounds = OWN_BOUNDS.get(one.table, tables.bounds)
    bucket = new_bucket(tables, one.table, one.m)
    if bucket == "any":
        bucket = f"M_GEQ_{max(b for b in bounds if b <= one.m)}"
    default = lookup(tables, one.table, one.m)
    known = tables.bounds_known or (bucket in default.config if default else False) or _asked(tables, one, bucket)
    if bucket in held.entries or not known:
        return
    key = f"{_below(held.source)}#{bucket}"
    below = [int(f[1]) for f in map(_BELOW.fullmatch, held.entries) if f and one.m / NEAREST_BOUND <= int(f[1]) < one.m]
    if below:
        name = f"M_LEQ_{max(below)}"
        yield _row(key, held.entries[name], f"the tile of {name}, the bound below", f"{held.source}#{name}", 1.0)
    if held.suffix and default is not None and default.key not in (None, "*") and default.config != now:
        words = f"the tile that {one.table} has at this size for any shape"
        tile = {k: v for k, v in default.config.items() if k in now} if now else default.config
        yield _row(key, tile, words, default.row, FROM_DEFAULT)


def _asked(tables: GemmTables, one: Route, bucket: str) -> bool:
    """A table of this family has such a row, so its lookup asks for it."""
    return any(t.family == one.table and bucket in t.entries for t in tables.files.values())


def _borrowed(tables: GemmTables, one: Route, held: TableFile) -> Iterator[Candidate]:
    """The whole table of the nearest shape, where this shape has none."""
    n, k = one.gemm.n, one.gemm.k
    if held.suffix:
        return
    target = _below(new_file(tables, one.table, n, k))
    folder = target.rsplit("/", 1)[0]
    near: list[tuple[float, str, TableFile]] = []
    for path, table in tables.files.items():
        shape = _SHAPE.fullmatch(table.suffix)
        if table.family != one.table or shape is None or not table.modern or path.rsplit("/", 1)[0] != folder:
            continue
        apart = [abs(math.log(int(a) / b)) for a, b in zip(shape.groups(), (n, k), strict=True) if int(a)]
        if len(apart) == 2 and max(apart) <= math.log(NEAREST):
            near.append((sum(apart), table.suffix, table))
    for _, suffix, table in sorted(near, key=lambda found: found[:2])[:TABLES]:
        rows = {**({"any": held.entries["any"]} if "any" in held.entries else {}), **table.entries}
        answers = chosen(rows, one.m, OWN_BOUNDS.get(one.table, tables.bounds))
        if answers is None or (one.found is not None and rows[answers] == one.found.config):
            continue  # nothing would change at this size
        words = f"{answers} in the table of {suffix}, the nearest shape that has one,"
        yield Candidate(
            lever=Lever.AITER_JSON, key=f"{target}#*", row=rows, words=words, source=table.source, factor=BORROWED
        )


def _row(key: str, tile: dict[str, Any], words: str, source: str, factor: float) -> Candidate:
    return Candidate(lever=Lever.AITER_JSON, key=key, row=tile, words=words, source=source, factor=factor)


def _below(source: str) -> str:
    return source.removeprefix(f"aiter/{CONFIGS}/")
