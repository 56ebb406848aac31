"""What the levers for tables have in common: a key "<file>#<row>", and the checks of a tile that need no card."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from agents.research.knobs import near
from agents.research.tables.lds import lds_need, not_powers_of_two
from cards.sheet import CardSheet, known_sheets, sheet_if_any

WHOLE = "*"  # as a row: the whole table
MOST_WARPS = 16  # 1024 lanes are all that a block of an AMD card may have, 64 a warp
MOST_KEY, MOST_PART = 1000, 200  # characters of a key, and bytes of one name in its path: file systems take 255


class Row(NamedTuple):
    file: str
    row: str


def split(key: str) -> Row | None:
    """None where the key does not name a file and a row: it has one "#", and no character that is not printed."""
    file, sign, row = key.partition("#")
    file, row = file.strip(), row.strip()
    whole = sign and file and row and "#" not in row and len(key) <= MOST_KEY and key.strip().isprintable()
    return Row(file, row) if whole else None


def is_number(text: str) -> bool:
    """Digits that Python turns into a number and a table may hold. More than 4300 of them raise in int()."""
    return text.isascii() and text.isdecimal() and len(text) <= 18


def unknown_key(tile: Mapping[str, JsonValue], known: Iterable[str], where: str) -> str | None:
    """The first key that `known` has not, in one line with the near one."""
    allowed = sorted(known)
    for name in tile:
        if name not in allowed:
            meant = near(name, allowed)
            return f"{where} knows no key {name}" + (f"; did you mean {meant}?" if meant else f": {', '.join(allowed)}")
    return None


def numbers_fault(tile: Mapping[str, JsonValue]) -> str | None:
    """Tile sizes and warps that Triton refuses whatever the card."""
    for name, value in tile.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} takes a finite number, not {value!r}"
        sized = name.startswith(("BLOCK_", "TILE_SIZE")) or name == "num_warps"
        if sized and (not _whole(value) or int(str(value)) < 1):
            return f"{name} takes a whole number above 0, not {value!r}"
    if wrong := not_powers_of_two(tile):
        return f"{', '.join(wrong)}: Triton takes powers of two only"
    warps = tile.get("num_warps")
    if isinstance(warps, int) and warps > MOST_WARPS:
        return f"num_warps {warps}: a block has at most 1024 lanes, {MOST_WARPS} warps of 64"
    stages = tile.get("num_stages")
    if stages is not None and (not _whole(stages) or int(str(stages)) < 0):
        return f"num_stages takes a whole number, not {stages!r}"
    return None


def lds_fault(tile: Mapping[str, JsonValue], bits: tuple[int, int] | None, sheet: CardSheet | None) -> str | None:
    """A tile whose operands cannot fit into a workgroup's LDS even by the lean estimate (tables/lds.py)."""
    need = lds_need(tile, bits) if bits and sheet else None
    if need is None or sheet is None or need.lean <= sheet.lds_bytes.value:
        return None
    limit = int(sheet.lds_bytes.value)
    return f"{need.tile}: {need.lean} to {need.bytes} bytes of LDS (estimate), {sheet.arch} has {limit}"


@functools.lru_cache(maxsize=256)  # reading all sheets takes 20 ms
def sheet_of(name: str) -> CardSheet | None:
    """The sheet of an AMD card by its arch ("gfx950") or by a name with its model in it ("AMD_Instinct_MI355_OAM").
    None where there is no such sheet: then nothing is held to a limit."""
    for arch in known_sheets():
        sheet = sheet_if_any(arch)
        if sheet is None or sheet.kind != "amd":
            continue
        if sheet.arch == name or _models(name) & _models(" ".join((sheet.name, *sheet.also))):
            return sheet
    return None


def _models(text: str) -> set[str]:
    return set(re.findall(r"MI\d+", text))


def _whole(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
