"""Lever: one row of a JSON table of AITER's Triton kernels (attention, GEMM, MoE, ...), in an overlay tree.

    key  "gemm/gfx950-GEMM-A16W16.json#M_LEQ_64"
    key  "gfx950/triton/attention/unified_attention/DEFAULT.json#attn_2d/D_GEQ_512.Q_GEQ_256.DT_fp8_fp8"
    key  "gemm/gfx950-GEMM-A16W16-N=512-K=7168.json#*"     a whole table, for a shape that has none

Paths are relative to aiter/ops/triton/configs; a row inside sections is written with / between them. The value is the
whole tile. AITER has no variable for this tree (read at e4048607 and in the wheel 0.1.7: a constant beside the code),
so the file goes into an overlay tree of the package, placed before the installed one for the engine's process alone. It
must be there before the start: AITER keeps every lookup, also of files that were absent.

A new table of a shape answers for all its batch sizes at once, and one without a row for some of them raises in the
engine: so a file that is not there is taken whole ("#*") or not at all.

What is refused because AITER would never read it or would read something else with it:
- a GEMM row at a bound that the lookup does not ask for, or that other rows answer before it;
- an attention row that no call can reach, or that takes every call from another row: in unified attention the leftmost
  axis wins outright (agents/research/tables/attention.py);
- a key in the tile that no sibling row has, or without one that every sibling row has.

Evidence: AITER writes no line about these rows. Its kernels carry the tile in their names where they are built with
make_kernel_repr (e4048607: _gemm_a16_w16_kernel_BLOCK_SIZE_M_64_...; not in 0.1.7), so a profile shows them. Where the
name is plain, the row can be seen only by asking AITER's own lookup in a process that has the engine's environment,
which shows that it resolves and not that a step took it. Nothing here has been run on an AMD card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.research.tables.gemm_json import CONFIGS
from agents.research.tables.table_file import is_file, is_folder, read_json
from agents.tuning.aiter_rows import LARGE_KV, fault_in, with_row
from agents.tuning.levers import in_overlay
from agents.tuning.packages import need_package
from agents.tuning.placed import Placed, PlacementError
from agents.tuning.table_rows import MOST_PART, WHOLE, numbers_fault, split
from contracts import Lever

PACKAGE = "aiter"

keys = partial(in_overlay.keys, Lever.AITER_JSON)
read = partial(in_overlay.read, Lever.AITER_JSON)
write = partial(in_overlay.write, Lever.AITER_JSON)


def normalise(key: str) -> str:
    found = split(key)
    if found is None:
        return key.strip()
    file, row = PurePosixPath(found.file).as_posix().lstrip("/"), found.row.strip("/ ")
    return f"{file}#{row}" if file and row else key.strip()


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    """Against the AITER that lies beside the installed vLLM; where there is none, only what needs no tree. `place`
    checks again against the AITER of the engine's interpreter."""
    if fault := _plain_fault(key, value):
        return fault
    aiter = Path(knobs.path).parent / PACKAGE if knobs.path else None
    return row_fault(aiter, key, value) if aiter is not None and is_folder(aiter / CONFIGS) else None


def place(entries: Mapping[str, JsonValue], python: str, folder: Path, env: Mapping[str, str]) -> Placed:
    """The changed tables, for the overlay tree of aiter. Raises PlacementError."""
    if not entries:
        return Placed()
    aiter = need_package(python, PACKAGE)
    if not is_folder(aiter / CONFIGS):
        raise PlacementError(f"{aiter} has no folder {CONFIGS}: this AITER keeps its tiles elsewhere")
    return Placed(files={PACKAGE: {f"{CONFIGS}/{file}": made for file, made in changed_files(aiter, entries).items()}})


def changed_files(aiter: Path, entries: Mapping[str, JsonValue]) -> dict[str, bytes]:
    """Path below the configs folder -> the installed file's content with the entries in it. Raises PlacementError."""
    tables: dict[str, dict[str, Any]] = {}
    for key in sorted(entries, key=lambda k: (not k.endswith(f"#{WHOLE}"), k)):  # a whole table before rows of it
        value, found = entries[key], split(normalise(key))
        fault = _plain_fault(key, value)
        if fault or found is None:
            raise PlacementError(f"{key}: {fault}")
        if found.file not in tables:
            tables[found.file] = _installed(aiter, found.file)
        if fault := fault_in(aiter, tables[found.file], found, value):
            raise PlacementError(f"{key}: {fault}")
        tables[found.file] = with_row(tables[found.file], found.row, value)
    return {file: (json.dumps(table, indent=4) + "\n").encode() for file, table in tables.items()}


def row_fault(aiter: Path, key: str, value: JsonValue) -> str | None:
    """What this AITER would make of the row, where that is not what was meant."""
    found = split(normalise(key))
    if found is None:
        return _plain_fault(key, value)
    try:
        return fault_in(aiter, _installed(aiter, found.file), found, value)
    except PlacementError as error:
        return str(error)


# --- the checks ---


def _plain_fault(key: str, value: JsonValue) -> str | None:
    found = split(normalise(key))
    if found is None or found.row.startswith("/"):
        return f"{key[:80]!r} names no row of a table: write FILE#ROW, the file relative to aiter/{CONFIGS}"
    path = PurePosixPath(found.file)
    long = any(len(part.encode()) > MOST_PART for part in path.parts)
    if path.suffix != ".json" or path.is_absolute() or ".." in path.parts or "\\" in found.file or long:
        return f"{found.file} is no JSON file below aiter/{CONFIGS}"
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        return "a row is an object of tile sizes, num_warps and the like" if found.row != WHOLE else "a table has rows"
    if found.row == WHOLE:
        return None
    if any(isinstance(v, dict | list) and k != LARGE_KV for k, v in value.items()):
        return f"{found.row} is one tile, whose values are numbers and words; name the row inside it with /"
    large = value.get(LARGE_KV)
    if large is not None and (not isinstance(large, dict) or any(isinstance(v, dict | list) for v in large.values())):
        return f"{LARGE_KV} is an object of numbers and words"
    return numbers_fault(value) or numbers_fault(large or {})


def _installed(aiter: Path, file: str) -> dict[str, Any]:
    """Raises PlacementError for a table that AITER itself could not read."""
    path = aiter / CONFIGS / file
    if not is_file(path):
        return {}
    held = read_json(path)
    if isinstance(held, str):
        raise PlacementError(f"aiter/{CONFIGS}/{file} cannot be used: {held}")
    return held.value
