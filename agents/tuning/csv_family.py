"""A CSV family of AITER as one table: its files merged as the installed AITER merges them, without its side effects."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path

from agents.research.tables.gemm_csv import (
    FILLED,
    GFX_OF_UNITS,
    Known,
    Plain,
    head_of,
    key_columns,
    on_repeat,
    paths_of,
    rows_of,
)
from agents.tuning.placed import PlacementError
from contracts import Frozen

_PLAIN = Plain()


class Merged(Frozen):
    """A family's rows as this AITER would merge them."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]  # columns that make a row one of its kind
    rows: tuple[tuple[str, ...], ...]
    names: frozenset[str]  # of kernels

    def key(self, row: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(_PLAIN[row[c]] for c in self.keys)


def merged(aiter: Path, name: str, known: Known, override: str) -> Merged:
    """As the installed AITER merges the family's files. `override`: what the engine's environment names instead of
    them. Raises PlacementError where it cannot be used, or where AITER would rewrite its own files."""
    paths = paths_of(aiter, name, known.own, override)
    heads: dict[Path, list[str]] = {}
    for path in paths:
        head = head_of(path)
        if not isinstance(head, list):
            raise PlacementError(f"{path} cannot be used: {head or 'it is not there'}")
        heads[path] = head
    if not heads:
        where = f"{known.env}={override}" if override else f"aiter/configs/{known.own}.csv"
        raise PlacementError(f"family {name} has no file ({where}): there is no table to change a row of")
    columns = _columns(list(heads.values()))
    rewrites = on_repeat(aiter) == "rewrites"
    with_card = rewrites or len(paths) == 1
    rows: list[tuple[str, ...]] = []
    for path, head in heads.items():
        try:
            rows += [_filled(dict(zip(head, row, strict=False)), columns) for _, row in rows_of(path)]
        except (OSError, csv.Error) as error:
            raise PlacementError(f"{path} cannot be used: {' '.join(str(error).split())[:120]}") from None
    kinds = key_columns(aiter, name, columns, with_card=True)
    if not kinds:
        raise PlacementError(f"family {name}: its untuned table is not there, so nothing says which columns make a row")
    repeats = _index(rows, columns, key_columns(aiter, name, columns, with_card=with_card))
    twice = [found for found in repeats.values() if len(found) > 1]
    if twice and (rewrites or len(paths) == 1):
        row = dict(zip(columns, rows[twice[0][1]], strict=True))
        shape = ", ".join(f"{c} {row[c]}" for c in kinds)
        fix = "AITER would rewrite them, or stop; remove one of the rows"
        raise PlacementError(f"the files of {name} hold {shape} twice: {fix}")
    if twice:  # this AITER keeps the fastest row of each shape, whatever card it was measured on
        rows = [rows[min(found, key=lambda at: _us(rows[at], columns))] for found in repeats.values()]
    names = [i for i, c in enumerate(columns) if c.startswith("kernelName")]
    return Merged(columns=columns, keys=kinds, rows=tuple(rows), names=frozenset(row[i] for row in rows for i in names))


def csv_bytes(table: Merged) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue().encode()


def _columns(heads: list[list[str]]) -> tuple[str, ...]:
    """Of all files: what the first does not have stands before its tflops, as AITER puts it."""
    columns = list(heads[0])
    for head in heads[1:]:
        for column in head:
            if column not in columns:
                columns.insert(columns.index("tflops" if "tflops" in columns else columns[-1]), column)
    return tuple(columns)


def _filled(row: Mapping[str, str], columns: tuple[str, ...]) -> tuple[str, ...]:
    cells = dict(row)
    if "gfx" in columns and "gfx" not in cells:
        cells["gfx"] = GFX_OF_UNITS.get(_PLAIN[cells.get("cu_num", "")], "0")
    return tuple(cells.get(c, "" if c == "_tag" else FILLED.get(c, "0")) for c in columns)


def _index(
    rows: list[tuple[str, ...]], columns: tuple[str, ...], kinds: tuple[str, ...]
) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    at = [columns.index(c) for c in kinds]
    for number, row in enumerate(rows):
        found.setdefault(tuple(_PLAIN[row[i]] for i in at), []).append(number)
    return found


def _us(row: tuple[str, ...], columns: tuple[str, ...]) -> float:
    try:
        value = float(row[columns.index("us")])
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf
