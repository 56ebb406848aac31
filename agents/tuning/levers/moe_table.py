"""Lever: one row of a fused-MoE table of vLLM, laid before the installed one by VLLM_TUNED_CONFIG_FOLDER.

    key  "E=8,N=7168,device_name=AMD_Instinct_MI355X.json#16"   the tile of the row for 16 tokens
    key  "E=8,N=7168,device_name=AMD_Instinct_MI355X.json#*"    {"16": tile, "64": tile}: the whole table

The file's name is the one that vLLM asks for (get_config_file_name). All other rows are those of the installed table of
that name, or of the one in the folder that the engine's own VLLM_TUNED_CONFIG_FOLDER names, so one row changes. vLLM
takes the row whose number is nearest to a step's tokens: a row of a new number also takes over the batch sizes that it
is now nearest to, and no others.

Where there is no table of that name, vLLM computes a tile for each batch size, and a table of one row would serve them
all. That is no change of one row, so it is refused: there the one change is a whole table, key "#*".

What else the variable does (read in 0.30.0 and 0.33.0, not run with them): with LoRA the mere presence of the folder
chooses other defaults (lora/layers/fused_moe.py), and mamba looks there too, for files of its own. FlyDSL's tables
(backend=flydsl) are read from the installed folder only, so they are refused here.

Evidence: vLLM writes "Using configuration from <folder>/<file> for MoE layer." (0.30.0, 0.32.0 and 0.33.0 alike). The
folder's name holds the content of the change (`folder_name`), so the line of one arm is
never the line of the other. It shows that the table was read, not that a step took the changed row: that is seen in the
kernel's launch parameters, in a profile. Nothing here has been run on an AMD card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.research.tables.moe_json import BITS, USUAL, MoeName, parse_name, read_table
from agents.research.tables.table_file import is_file, is_folder, read_json, read_source
from agents.tuning.levers import in_overlay
from agents.tuning.packages import need_package
from agents.tuning.placed import Placed, PlacementError, write_whole
from agents.tuning.table_rows import (
    MOST_PART,
    WHOLE,
    is_number,
    lds_fault,
    numbers_fault,
    sheet_of,
    split,
    unknown_key,
)
from contracts import Lever, content_hash

VARIABLE = "VLLM_TUNED_CONFIG_FOLDER"
USED_IN = "model_executor/layers/fused_moe/fused_moe.py"
NEEDED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")  # what vLLM reads without asking first
KNOWN = (*NEEDED, "num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "SPLIT_K")
_LEAST = {"waves_per_eu": 0, "num_stages": 0, "matrix_instr_nonkdim": 0}  # all others: 1

keys = partial(in_overlay.keys, Lever.MOE_TABLE)
read = partial(in_overlay.read, Lever.MOE_TABLE)
write = partial(in_overlay.write, Lever.MOE_TABLE)


def normalise(key: str) -> str:
    """No blanks in the file's name, the row without leading zeros."""
    found = split(key)
    if found is None:
        return key.strip()
    row = str(int(found.row)) if is_number(found.row) else found.row
    return f"{found.file.replace(' ', '')}#{row}"


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    if knobs.env and VARIABLE not in knobs.env:
        return f"{knobs.named} has no variable {VARIABLE}, so no table can be laid before its own"
    return _key_fault(key) or (None if value is None else _value_fault(key, value))


def _key_fault(key: str) -> str | None:
    found = split(normalise(key))
    if found is None:
        return f"{key[:80]!r} names no row of a table: write FILE#TOKENS, or FILE#* for a whole table"
    named = parse_name(found.file)
    if named is None or named.file != found.file or "/" in found.file or len(found.file.encode()) > MOST_PART:
        example = "E=8,N=7168,device_name=AMD_Instinct_MI355X[,dtype=fp8_w8a8][,block_shape=[128,128]].json"
        return f"{found.file} is no name of a fused-MoE table: write it like {example}"
    if named.backend:
        return f"vLLM reads tables of backend {named.backend} from its own folder only: use lever source_patch"
    if found.row != WHOLE and not (is_number(found.row) and 0 < int(found.row) < 1 << 31):
        return f"row {found.row!r} is no number of tokens"
    return None


def _value_fault(key: str, value: JsonValue) -> str | None:
    found = split(normalise(key))
    named = parse_name(found.file) if found else None
    if found is None or named is None:
        return _key_fault(key)
    if found.row != WHOLE:
        return tile_fault(value, named)
    if not isinstance(value, dict) or not value:
        return 'a whole table is an object of rows, like {"16": {"BLOCK_SIZE_M": 16, ...}}'
    for row, tile in value.items():
        if not is_number(row) or str(int(row)) != row or not 0 < int(row) < 1 << 31:
            return f"row {row[:40]!r} is no number of tokens"
        if fault := tile_fault(tile, named):
            return f"row {row}: {fault}"
    return None


def tile_fault(tile: JsonValue, named: MoeName) -> str | None:
    """What is wrong with a tile of this table, in one line. LDS is held to the sheet of the card in the file's name."""
    if not isinstance(tile, dict):
        return f"a row is an object of {', '.join(NEEDED)}, num_warps, ..., not {tile!r}"
    if fault := unknown_key(tile, KNOWN, "a fused-MoE tile"):
        return fault
    if missing := [name for name in NEEDED if name not in tile]:
        return f"the tile lacks {', '.join(missing)}"
    for name, value in tile.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < _LEAST.get(name, 1):
            return f"{name} takes a whole number from {_LEAST.get(name, 1)} up, not {value!r}"[:200]
        if value >= 1 << 31:
            return f"{name} takes a number below 2^31"
    bits = BITS.get(named.dtype, (16, 16))
    return numbers_fault(tile) or lds_fault(tile, bits, sheet_of(named.device))


def folder_name(entries: Mapping[str, JsonValue]) -> str:
    """Of the folder that VLLM_TUNED_CONFIG_FOLDER names: it says what was changed, and vLLM logs it."""
    return f"moe_tables-{content_hash(dict(entries))}"


def place(entries: Mapping[str, JsonValue], python: str, folder: Path, env: Mapping[str, str]) -> Placed:
    """Writes the tables below `folder`. `env` is the engine's own environment (EngineSpec.env): a folder of tables that
    it names is the base, and its other tables go along. Raises PlacementError."""
    if not entries:
        return Placed()
    vllm = need_package(python, "vllm")
    for source in ("envs.py", USED_IN):
        if VARIABLE not in read_source(vllm / source):
            raise PlacementError(f"vllm/{source} does not know {VARIABLE}: this vLLM takes no tables from outside")
    own = _own_folder(env)
    made = folder / folder_name(entries)
    made.mkdir(parents=True, exist_ok=True)
    if own is not None:
        for path in sorted(own.glob("*.json")):
            write_whole(made / path.name, path.read_bytes())
    for file, rows in _by_file(entries).items():
        base = next((f / file for f in (own, vllm / USUAL) if f is not None and is_file(f / file)), None)
        write_whole(made / file, table_bytes(file, rows, base))
    return Placed(env={VARIABLE: str(made)}, replaces=(VARIABLE,) if own is not None else ())


def table_bytes(file: str, rows: Mapping[str, JsonValue], base: Path | None) -> bytes:
    """The file with `rows` in it: in the base's order, what is new behind it. "*" replaces the base. Raises
    PlacementError."""
    table: dict[str, Any] = {}
    if WHOLE in rows:
        whole = rows[WHOLE]
        table = dict(whole) if isinstance(whole, dict) else {}
    elif base is None:
        raise PlacementError(
            f"there is no table {file} to change one row of: alone it would serve every batch size; propose the whole "
            f"table, key {file}#*"
        )
    else:
        held = read_json(base)
        if isinstance(held, str) or isinstance(told := read_table(base), str):
            raise PlacementError(f"{base} cannot be used: {held if isinstance(held, str) else told}")
        table = dict(held.value)
    for row, tile in rows.items():
        if row == WHOLE:
            continue
        spelt = next((key for key in table if is_number(key.strip()) and int(key) == int(row)), row)
        table[spelt] = tile
    return (json.dumps(table, indent=4) + "\n").encode()


def _by_file(entries: Mapping[str, JsonValue]) -> dict[str, dict[str, JsonValue]]:
    found: dict[str, dict[str, JsonValue]] = {}
    for key, value in entries.items():
        fault = _key_fault(key) or _value_fault(key, value)
        held = split(normalise(key))
        if fault or held is None:
            raise PlacementError(f"{key}: {fault}")
        found.setdefault(held.file, {})[held.row] = value
    return found


def _own_folder(env: Mapping[str, str]) -> Path | None:
    named = env.get(VARIABLE)
    if not named:
        return None
    if not is_folder(Path(named)):
        raise PlacementError(f"{VARIABLE} names {named}, which is no folder: correct engine.env, or take it out")
    return Path(named)
