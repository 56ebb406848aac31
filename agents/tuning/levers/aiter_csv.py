"""Lever: one row of a CSV family of AITER (tuned CK, assembly, FlyDSL, hipBLASLt GEMM and fused MoE), by the family's
own variable.

    key    "a4w4_blockscale_tuned_gemm#gfx=gfx950,cu_num=256,M=64,N=7168,K=2048"  what makes a row one of its kind
    value  {"kernelId": 21, "splitK": 0, "kernelName": "_ZN5aiter..."}             all other columns; measured ones
                                                                                   (us, tflops ...) may be left out

The variable (AITER_CONFIG_GEMM_A4W4 and the like, as the installed aiter/jit/core.py names it) gets the path of ONE
complete file: the family's files as this AITER would merge them, with one row changed or added. Why not a list of ours
and theirs, which the variable also takes (read at e4048607 and in the wheel 0.1.7):
- two rows of one shape make e4048607 rewrite the source files and stop ("Please re-run"); 0.1.7 drops the slower one;
- a list is merged into /tmp/aiter_configs (0.1.7: /tmp), one place for all engines of a machine. Neither TMPDIR nor a
  variable moves it. A single path is handed back as it is: nothing is merged, nothing is written.
A shape that stands twice in the installed files is refused where this AITER would rewrite them.

A lookup tries M, then M on two grids, so a new row also answers the sizes that are rounded up to it.

pandas gives a column one type, so one cell of another kind changes all rows: an empty or broken number makes every
kernelId a float, a word makes them texts, and no lookup by number finds any row. So a cell is of its column's kind.

What a row can change. Assembly, FlyDSL and hipBLASLt rows are read when the engine runs. CK kernels are compiled from
the rows that the family had when AITER was built: e4048607 raises for a kernel name that is not in its module, and for
some families (a8w8 there, all of 0.1.7) the module itself chooses by shape, so Python's row changes split-K alone. So a
CK kernel's name that no installed row has is refused, and a CK row needs the kernel's name in a profile as evidence.

Evidence: with AITER_LOG_TUNED_CONFIG=1, which this lever sets, AITER writes "... is tuned on cu_num = 256 in PATH,
kernel name is NAME" at the first lookup of a shape. The folder in PATH holds the content of the change (`folder_name`).
For the fused MoE: "[fused_moe] using 2stage (kernelName1='...', kernelName2='...') for (...)", always (at e4048607).
Nothing here has been run on an AMD card.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from agents.research.knobs import Knobs, near
from agents.research.tables.gemm_csv import Known, families
from agents.research.tables.table_file import is_file, read_source
from agents.tuning.csv_family import Merged, csv_bytes, merged
from agents.tuning.levers import in_overlay
from agents.tuning.packages import need_package
from agents.tuning.placed import Placed, PlacementError, write_whole
from agents.tuning.table_rows import split
from contracts import Lever, content_hash

PACKAGE, CORE = "aiter", "jit/core.py"
LOG = "AITER_LOG_TUNED_CONFIG"
# The order of a key's columns, so that one row has one spelling; any other column comes behind, by name.
ORDER = ("gfx", "cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "B", "M", "N", "K")
# What a tuner measured of the row: of another kernel it says nothing, so it is never carried over.
MEASURED = ("us", "us1", "us2", "tflops", "bw", "errRatio", "err_ratio", "err1", "err2")

_NUMBER = r" *[-+]?[0-9]{1,18}"
_KINDS = (
    ("a whole number", re.compile(rf"{_NUMBER} *")),
    ("a number", re.compile(rf"{_NUMBER}(\.[0-9]*)?([eE][-+]?[0-9]{{1,2}})? *")),
    ("True or False", re.compile("True|False")),
)

keys = partial(in_overlay.keys, Lever.AITER_CSV)
read = partial(in_overlay.read, Lever.AITER_CSV)
write = partial(in_overlay.write, Lever.AITER_CSV)


def normalise(key: str) -> str:
    found = split(key)
    if found is None:
        return key.strip()
    cells = [part.partition("=") for part in found.row.split(",")]
    if not all(sign for _, sign, _ in cells):
        return f"{found.file}#{found.row}"
    pairs = sorted(((c.strip(), v.strip()) for c, _, v in cells), key=lambda p: _place_of(p[0]))
    return f"{found.file}#{','.join(f'{column}={cell}' for column, cell in pairs)}"


def _place_of(column: str) -> tuple[int, str]:
    return (ORDER.index(column), "") if column in ORDER else (len(ORDER), column)


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    """Against the AITER that lies beside the installed vLLM; where there is none, only what needs no tree. `place`
    checks again against the AITER of the engine's interpreter."""
    if fault := _plain_fault(key, value):
        return fault
    aiter = Path(knobs.path).parent / PACKAGE if knobs.path else None
    if value is None or aiter is None or not is_file(aiter / CORE):
        return None
    try:
        family = split(normalise(key))
        name = family.file if family else ""
        changed(merged(aiter, name, _known(aiter, name), ""), {key: value})
    except PlacementError as error:
        return str(error).removeprefix(f"{key}: ")
    return None


def folder_name(entries: Mapping[str, JsonValue]) -> str:
    """Of the folder that the variables point into: it says what was changed, and AITER logs it."""
    return f"aiter_csv-{content_hash(dict(entries))}"


def place(entries: Mapping[str, JsonValue], python: str, folder: Path, env: Mapping[str, str]) -> Placed:
    """Writes one complete CSV for each family below `folder`. `env` is the engine's own environment (EngineSpec.env):
    files that it names for a family are the base. Raises PlacementError."""
    if not entries:
        return Placed()
    aiter = need_package(python, PACKAGE)
    made = folder / folder_name(entries)
    if os.pathsep in str(made):
        raise PlacementError(f"{made}: AITER takes {os.pathsep!r} in a path for a list; give the night another folder")
    by_family: dict[str, dict[str, JsonValue]] = {}
    for key, value in entries.items():
        found = split(normalise(key))
        if (fault := _plain_fault(key, value)) or found is None:
            raise PlacementError(f"{key}: {fault}")
        by_family.setdefault(found.file, {})[key] = value
    variables: dict[str, str] = {}
    for name, rows in sorted(by_family.items()):
        known = _known(aiter, name)
        table = changed(merged(aiter, name, known, env.get(known.env, "")), rows)
        path = made / f"{name}.csv"
        write_whole(path, csv_bytes(table))
        variables[known.env] = str(path)
    if LOG in read_source(aiter / CORE) and LOG not in env:
        variables[LOG] = "1"
    return Placed(env=variables, replaces=tuple(name for name in variables if env.get(name)))


# --- one family ---


def _known(aiter: Path, name: str) -> Known:
    found = families(aiter)
    if name not in found:
        meant = near(name, found)
        hint = f"; did you mean {meant}?" if meant else f"; it has {', '.join(sorted(found)) or 'none'}"
        raise PlacementError(f"AITER has no CSV family {name}{hint}"[:400])
    if not found[name].env:
        raise PlacementError(f"aiter/{CORE} names no variable for {name}, so no row can be laid before its own")
    return found[name]


def changed(table: Merged, entries: Mapping[str, JsonValue]) -> Merged:
    """The table with the entries' rows in it: in the old row's place, or behind all others. Raises PlacementError."""
    rows = list(table.rows)
    at = {table.key(dict(zip(table.columns, row, strict=True))): i for i, row in enumerate(rows)}
    written: dict[tuple[str, ...], str] = {}
    for key, value in entries.items():
        found = split(normalise(key))
        if found is None or not isinstance(value, dict):
            raise PlacementError(f"{key}: {_plain_fault(key, value)}")
        row = _row(table, key, found.row, value)
        kind = table.key(row)
        if kind in written:
            raise PlacementError(f"{key} is the same row as {written[kind]}; keep one of them")
        written[kind] = key
        cells = tuple(row[c] for c in table.columns)
        if kind in at:
            rows[at[kind]] = cells
        else:
            rows.append(cells)
    return table.model_copy(update={"rows": tuple(rows)})


def _row(table: Merged, key: str, shape: str, value: Mapping[str, JsonValue]) -> dict[str, str]:
    named = {column: cell for column, _, cell in (part.partition("=") for part in shape.split(","))}
    wanted = [c for c in table.keys if c != "_tag"]
    for lacking, what in (
        ([c for c in wanted if c not in named], "the key lacks {}"),
        ([c for c in named if c not in table.keys], "{} is no column that makes a row of this family one of its kind"),
    ):
        if lacking:
            raise PlacementError(f"{key}: {what.format(', '.join(lacking))}; it takes {', '.join(wanted)}")
    rest = [c for c in table.columns if c not in table.keys]
    for column in value:
        if column not in rest:
            meant = near(column, rest)
            hint = f"; did you mean {meant}?" if meant else f"; it has {', '.join(rest)}"
            raise PlacementError(f"{key}: the family has no column {column} beside its key{hint}")
    if missing := [c for c in rest if c not in value and c not in MEASURED]:
        raise PlacementError(f"{key}: the row lacks {', '.join(missing)}")
    cells = {c: _cell(value[c]) if c in value else "" for c in rest}
    for column, cell in cells.items():
        # Assembly kernels lie beside the module, FlyDSL's are made from their names: neither is in its registry.
        built = cell in ("", "nan") or cell.startswith(("_ZN", "flydsl")) or cell in table.names
        built = built or value.get("libtype") in ("hipblaslt", "flydsl", "triton")
        if column.startswith("kernelName") and not built:
            meant = near(cell, table.names)
            hint = f"; did you mean {meant}?" if meant else ""
            raise PlacementError(f"{key}: no installed row has {column} {cell}, so this AITER did not compile it{hint}")
    made = {"_tag": "", **named, **cells}
    for column, cell in made.items():
        if column not in ("_tag", *MEASURED) and (fault := _kind_fault(table, column, cell)):
            raise PlacementError(f"{key}: {fault}")
    return made


def _kind_fault(table: Merged, column: str, cell: str) -> str | None:
    """A cell that would give the whole column another type. A column of texts takes any."""
    at = table.columns.index(column)
    held = {row[at] for row in table.rows} - {""}
    for what, kind in _KINDS:
        if held and all(kind.fullmatch(one) for one in held):
            return None if kind.fullmatch(cell) else f"{column} holds {what} in every installed row, not {cell[:40]!r}"
    return None


def _cell(value: JsonValue) -> str:
    return "" if value is None else str(value)


def _plain_fault(key: str, value: JsonValue) -> str | None:
    found = split(key)
    if found is None:
        return f"{key[:80]!r} names no row: write FAMILY#COLUMN=CELL,COLUMN=CELL, like a8w8_tuned_gemm#M=1,N=2,K=3"
    parts = [part.partition("=") for part in found.row.split(",")]
    names = [column.strip() for column, _, _ in parts]
    whole = all(sign and column.strip() and cell.strip() for column, sign, cell in parts)
    if not whole or len(set(names)) < len(names):
        return f"{found.row!r} is no shape: write COLUMN=CELL, each column once, with commas between"
    if not found.file.replace("_", "").isalnum():
        return f"{found.file!r} is no name of a CSV family"
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        return "a row is an object of its columns, like kernelId, splitK, kernelName"
    for column, cell in value.items():
        if isinstance(cell, dict | list) or (isinstance(cell, str) and any(c in cell for c in "\n\r\0")):
            return f"{column} takes one cell: a number, a word, true or false"
        if isinstance(cell, float) and not math.isfinite(cell):
            return f"{column} takes a finite number"
    return None
