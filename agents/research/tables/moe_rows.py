"""Rows and whole tables of fused-MoE tiles that could serve a model in the place of what it gets now: from another
card's table, from a table of nearly this width, from the neighbour in the same table, or by vLLM's own rule for sizes
without a table.

Nothing here is tuned for the card in question. What is held to: a maker's own tables only (the other's settings are
refused by Triton's back end or mean nothing), a wavefront of the card's width, its LDS or shared memory, the least tile
of its matrix instruction, and what the lever takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from agents.research.dossier import Dossier
from agents.research.row_change import Candidate
from agents.research.tables.moe_default import default_tile
from agents.research.tables.moe_json import MFMA_ONLY, MoeName, distance, nearest, read_table
from agents.research.tables.moe_sound import no_matrix_cores, too_big
from agents.tuning.levers.moe_table import tile_fault
from cards.sheet import CardSheet
from contracts import Frozen, Lever

Tile = dict[str, Any]
WIDEST = 2.0  # a table of experts this many times as wide, or as narrow, may lend its tiles. Judged
# Judged, next to a table of the same experts on a card of the same arch.
OTHER_ARCH, OTHER_WIDTH, OTHER_SPELLING = 0.7, 0.7, 0.4
# The same for a row: vLLM's rule and the neighbour know nothing of this card at this size.
NEIGHBOUR, BY_RULE = 0.7, 0.7


class Lent(Frozen):
    """A table as it would be laid for this card, and whose it is."""

    named: MoeName
    table: dict[int, Tile]
    same_arch: bool
    times: float  # its width by the one asked for, or the other way round: at least 1
    left_out: tuple[str, ...] = ()  # keys that mean nothing to this card

    @property
    def words(self) -> str:
        wide = f", experts of width {self.named.width}" if self.times > 1 else ""
        cut = f", without {' and '.join(self.left_out)}" if self.left_out else ""
        return f"the table of {self.named.device}{wide}{cut}"


def lenders(dossier: Dossier, folder: Path, asked: MoeName, shipped: list[MoeName]) -> list[Lent]:
    """Tables that could stand in for the one asked for: the same experts first, then the nearest width; of those the
    card's own arch first, then the device whose name is most alike. Equal tables once."""
    found = [lent for named in shipped if (lent := _lent(dossier, folder, asked, named)) is not None]

    def place(one: Lent) -> tuple[object, ...]:
        alike = SequenceMatcher(None, one.named.device, asked.device).ratio()
        return (one.times, not one.same_arch, -alike, one.named.file)

    out: list[Lent] = []
    for one in sorted(found, key=place):
        if all(one.table != other.table for other in out):
            out.append(one)
    return out


def _lent(dossier: Dossier, folder: Path, asked: MoeName, named: MoeName) -> Lent | None:
    alike = named.model_copy(update={"device": asked.device, "width": asked.width}) == asked
    times = distance(named.width, asked.width)
    if not alike or named == asked or times > WIDEST or not _may_lend(dossier, named.device):
        return None
    held = read_table(folder / named.file)
    if isinstance(held, str):
        return None
    table = {size: for_card(dossier, tile) for size, tile in held.items()}
    if any(size < 1 or unfit(dossier, tile, asked) for size, tile in table.items()):
        return None
    cut = {name for size, tile in held.items() for name in tile if name not in table[size]}
    known = bool(models(named.device) & _own_models(dossier.sheet))
    return Lent(named=named, table=table, same_arch=known, times=times, left_out=tuple(sorted(cut)))


def _may_lend(dossier: Dossier, device: str) -> bool:
    if dossier.card.kind == "nvidia":
        return device.startswith("NVIDIA")
    wide = dossier.sheet is not None and dossier.sheet.wavefront == 64
    return device.startswith("AMD_Instinct" if wide else "AMD")  # a Radeon of today runs wavefronts of 32


def models(text: str) -> set[str]:
    """{"MI355"} of "AMD_Instinct_MI355_OAM" and of "AMD Instinct MI355X", {"H200"} of "NVIDIA H200 SXM"."""
    return set(re.findall(r"(?<![A-Za-z0-9])[A-Z]{1,3}\d+", text.replace("_", " ")))


def _own_models(sheet: CardSheet | None) -> set[str]:
    return models(" ".join((sheet.name, *sheet.also))) if sheet else set()


def for_card(dossier: Dossier, tile: Mapping[str, Any]) -> Tile:
    """Without what means something to matrix cores only, where the card has none."""
    return {k: v for k, v in tile.items() if not (no_matrix_cores(dossier) and k in MFMA_ONLY)}


def unfit(dossier: Dossier, tile: Tile, asked: MoeName) -> str:
    """Why the tile cannot serve on this card, or ""."""
    fault = tile_fault(tile, asked)
    if fault:
        return fault
    if told := too_big(dossier, tile, asked.dtype):
        return f"it does not fit the card's LDS: {told}"
    side = tile.get("matrix_instr_nonkdim") or 0
    if side > min(tile["BLOCK_SIZE_M"], tile["BLOCK_SIZE_N"]):
        return f"matrix_instr_nonkdim {side} is wider than the tile"
    return ""


def tables_for(asked: list[MoeName], lent: list[Lent], folder: str) -> list[Candidate]:
    """Whole tables, best first: each lender under the name that the card most likely has, then the best one under the
    other spelling."""
    pairs = [(asked[0], one, 1.0) for one in lent]
    # The other spelling takes the last of three places, so that the best table is tried under both.
    pairs[2:2] = [(name, lent[0], OTHER_SPELLING) for name in asked[1:] if lent]
    found = []
    for name, one, factor in pairs:
        spelt = "" if name == asked[0] else f", for the case that the driver calls this card {name.device}"
        factor *= (1.0 if one.same_arch else OTHER_ARCH) * (1.0 if one.times == 1 else OTHER_WIDTH)
        rows = {str(size): tile for size, tile in one.table.items()}
        source = f"{folder}/{one.named.file}"
        words, key = f"{one.words}{spelt}", f"{name.file}#*"
        found.append(Candidate(lever=Lever.MOE_TABLE, key=key, row=rows, words=words, source=source, factor=factor))
    return found


def rows_for(
    dossier: Dossier, asked: MoeName, table: Mapping[int, Tile], m: int, lent: list[Lent], folder: str, vllm: Path
) -> list[Candidate]:
    """Tiles for a row of m tokens where the table's nearest row is far from it, best first; none that equals the row
    that serves m now."""
    now, key = table[nearest(table, m)], f"{asked.file}#{m}"
    rows: list[tuple[Tile, str, str, float]] = []
    for one in lent:
        size = nearest(one.table, m)
        if one.times == 1 and distance(size, m) < distance(nearest(table, m), m):
            source = f"{folder}/{one.named.file}#{size}"
            words = f"the row of {size} tokens in {one.words}"
            rows.append((one.table[size], words, source, 1.0 if one.same_arch else OTHER_ARCH))
    by_ratio = min(table, key=lambda size: abs(math.log(max(size, 1)) - math.log(m)))
    words = f"the row of {by_ratio} tokens, the nearest one as a ratio"
    rows.append((for_card(dossier, table[by_ratio]), words, f"{asked.file}#{by_ratio}", NEIGHBOUR))
    ruled = default_tile(dossier, vllm, asked, m)
    if ruled is not None:
        rows.append(
            (for_card(dossier, ruled.tile), "vLLM's own rule for a size without a table", ruled.source, BY_RULE)
        )
    return [
        Candidate(lever=Lever.MOE_TABLE, key=key, row=tile, words=words, source=source, factor=factor)
        for tile, words, source, factor in rows
        if tile != now and not unfit(dossier, tile, asked)
    ]
