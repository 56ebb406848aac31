"""The entry that a tile table lacks: its key, its values, and the proof that it is reached and moves nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.research.tables.attention import Call, Hit, Misplaced, Section, lookup, power_of_two, whole

SMALLEST = 16  # keys of a tile: the side of the matrix instruction that a table's own smallest tiles have
BYTES = {"nvfp4": 0.5, "fp8": 1.0, "bf16": 2.0}  # of one element


@dataclass(frozen=True)
class Limits:
    """Of the card's sheet; None where it is not known and not held to."""

    lds_bytes: float | None = None  # of a workgroup
    vgprs: float | None = None  # of 32 bits, a SIMD lane's budget over all waves
    wavefront: int = 64


@dataclass(frozen=True)
class Proposal:
    key: str
    entry: dict[str, Any]
    words: tuple[str, ...]  # where the values are from, one line each

    def json(self) -> dict[str, Any]:
        return {self.key: self.entry}


def lds_estimate(rows: int, tile: int, call: Call, stages: int) -> float:
    """Bytes of LDS, estimated: the query tile and one tile each of keys and values, for every stage of the pipeline.
    On the cautious side: a compiler may keep the query in registers. For scale: an attention kernel of 128 rows and
    head 512 that Triton 3.9 compiled for gfx950 asked for 128 KiB."""
    return (rows * BYTES[call.q_tag] + 2 * tile * BYTES[call.kv_tag]) * call.head_size * stages


def accumulator_vgprs(rows: int, head_size: int, warps: int, wavefront: int) -> float:
    """Registers a lane holds for the output tile, in fp32, spread over the warps. Estimated."""
    return rows * power_of_two(head_size) / (warps * wavefront)


def propose(found: Misplaced, section: Section, limits: Limits) -> Proposal | None:
    """The first of `proposals`. None where nothing larger than today's tile fits."""
    return next(iter(proposals(found, section, limits)), None)


def proposals(found: Misplaced, section: Section, limits: Limits) -> list[Proposal]:
    """Entries for the misplaced call, modelled on the neighbour's: the most rows that fit with the widest tile; then
    fewer rows; then as many rows with a narrower tile of keys. Up to three, for which of them is fastest no table says.

    Only keys that today's entry has too are taken over: what else the neighbour has may be a path of its kernel that
    this head size cannot take."""
    fits = list(_fitting(found, limits))
    if not fits:
        return []
    rows, tile = fits[0]
    fewer = next((f for f in fits if f[0] < rows), None)
    narrower = next((f for f in fits if f[0] == rows and f[1] < tile), None)
    return [_made(found, section, limits, *one) for one in (fits[0], fewer, narrower) if one is not None]


def corrected(hit: Hit, call: Call, limits: Limits) -> Proposal | None:
    """The entry that serves a call with another tile of keys: a smaller one where query, key and value tiles do not fit
    the card's LDS, else a whole page where the tile is less than one. None where neither holds, the entry has no bounds
    of its tile, or no tile down to SMALLEST fits."""
    rows, tile, page = hit.block_m(call.queries_per_kv), hit.tile(call.page), power_of_two(call.page)
    if rows is None or tile is None or limits.lds_bytes is None or "TILE_SIZE_MAX" not in hit.entry:
        return None
    stages, limit = _number(hit.entry, "num_stages", 1), limits.lds_bytes

    def need(size: int) -> float:
        return lds_estimate(rows, size, call, stages)

    if need(tile) >= limit:
        wanted = next((t for t in (tile >> n for n in range(1, 8)) if t >= SMALLEST and need(t) < limit), None)
        why = f"{tile} keys need {need(tile):,.0f} bytes of LDS of {limit:,.0f} (estimated)"
    else:
        wanted = page if tile < page and need(page) < limit else None
        why = f"{tile} keys are less than a page of {call.page}"
    if wanted is None:
        return None
    made = {**hit.entry, **{n: wanted for n in ("TILE_SIZE_MIN", "TILE_SIZE_MAX") if n in hit.entry}}
    told = f"with {wanted} keys {need(wanted):,.0f} bytes (estimated: query, key and value tile, {stages} stages)"
    return Proposal(hit.key, made, (why, told))


def _modelled(found: Misplaced) -> tuple[dict[str, Any], list[str], int]:
    """The neighbour's values under today's keys, what that leaves out, and the warps."""
    now = found.hit.entry
    entry = {name: value for name, value in found.neighbour_hit.entry.items() if name in now}
    left_out = sorted(set(found.neighbour_hit.entry) - set(entry))
    return entry, left_out, max(_number(entry, "num_warps", 1), _number(now, "num_warps", 1))


def _fitting(found: Misplaced, limits: Limits) -> Iterator[tuple[int, int]]:
    """(rows, tile of keys) that fit the card and have more rows than today's, most rows first, then the widest tile."""
    model, now, call = found.neighbour_hit, found.hit, found.call
    entry, _, warps = _modelled(found)
    most, least = model.block_m(call.queries_per_kv) or 0, now.block_m(call.queries_per_kv) or 0
    widest, narrowest = model.tile(call.page) or 0, now.tile(call.page) or 0
    stages, waves = _number(entry, "num_stages", 1), _number(entry, "waves_per_eu", 1)
    while most > least and widest:
        tile = widest
        while tile >= min(narrowest, widest):
            need = lds_estimate(most, tile, call, stages)
            # Real kernels add some hundred bytes to their tiles, so a tile that just fills the LDS does not fit.
            if (limits.lds_bytes is None or need < limits.lds_bytes) and _waves(most, call, warps, waves, limits):
                yield most, tile
            tile //= 2
        most //= 2


def _waves(rows: int, call: Call, warps: int, wanted: int, limits: Limits) -> int:
    """The most waves a SIMD, up to those wanted, at which the output tile fills at most half of a lane's registers (the
    other half is for keys, values and scores). 0 where one is too many."""
    if limits.vgprs is None:
        return wanted
    held = accumulator_vgprs(rows, call.head_size, warps, limits.wavefront)
    return next((w for w in range(wanted, 0, -1) if held <= limits.vgprs / w / 2), 0)


def _made(
    found: Misplaced,
    section: Section,
    limits: Limits,
    rows: int,
    tile: int,
) -> Proposal:
    entry, left_out, warps = _modelled(found)
    call, stages = found.call, _number(entry, "num_stages", 1)
    made = {**entry, "BLOCK_M": rows, "num_warps": warps}
    if "waves_per_eu" in made:
        made["waves_per_eu"] = _waves(rows, call, warps, _number(entry, "waves_per_eu", 1), limits)
    if "TILE_SIZE_MAX" in made:
        made |= {n: tile for n in ("TILE_SIZE_MIN", "TILE_SIZE_MAX") if n in made}
    need = lds_estimate(rows, tile, call, stages)
    limit = "not held to a limit, which is not known" if limits.lds_bytes is None else f"of {limits.lds_bytes:,.0f}"
    held = accumulator_vgprs(rows, call.head_size, warps, limits.wavefront)
    words = [
        f"modelled on {found.neighbour_hit.key}, which serves head {found.neighbour}",
        f"LDS {need:,.0f} bytes {limit} (estimated: query, key and value tile, {stages} stage"
        f"{'s' if stages != 1 else ''})",
        f"output tile {held:.0f} registers a lane (estimated), waves_per_eu {made.get('waves_per_eu', 'not set')}",
    ]
    if left_out:
        words.append(f"left out, because today's entry for this head has no such key: {', '.join(left_out)}")
    return Proposal(_key(section, found), made, tuple(words))


def _key(section: Section, found: Misplaced) -> str:
    """Today's components, made longer by the rows' bound, the window where the call has one, and the exact dtypes: the
    narrowest key that comes before today's and leaves other dtypes alone."""
    slots = dict(zip(section.axes, found.hit.slots, strict=True))
    slots["Q"] = f"Q_GEQ_{max(found.long_from, _q_bound(found.neighbour_hit))}"
    if found.call.window and "SW" in slots:
        slots["SW"] = "SW"
    if "DT" in slots:
        slots["DT"] = f"DT_{found.call.q_tag}_{found.call.kv_tag}"
    return ".".join(slot for axis in section.axes if (slot := slots[axis]) != "any")


def _q_bound(hit: Hit) -> int:
    return next((int(slot.rsplit("_", 1)[1]) for slot in hit.slots if slot.startswith("Q_GEQ_")), 1)


@dataclass(frozen=True)
class Check:
    """What the lookup says on the changed table."""

    reached: tuple[Call, ...]  # calls that the new entry serves
    stray: tuple[Call, ...]  # of them those that were not meant
    unmoved: int

    @property
    def good(self) -> bool:
        return bool(self.reached) and not self.stray


def check(section: Section, proposal: Proposal, meant: Iterable[Call], all_calls: Iterable[Call]) -> Check:
    """Looks every call up on the table with the proposal in it."""
    changed, meant = section.with_entry(proposal.key, proposal.entry), set(meant)
    moved: list[Call] = []
    unmoved = 0
    for call in all_calls:
        before, after = lookup(section, call), lookup(changed, call)
        if _same(before, after):
            unmoved += 1
        else:
            moved.append(call)
    return Check(tuple(c for c in moved if c in meant), tuple(c for c in moved if c not in meant), unmoved)


def _same(one: Hit | None, other: Hit | None) -> bool:
    return (one and one.key) == (other and other.key)


def _number(entry: Mapping[str, Any], name: str, default: int) -> int:
    return whole(entry.get(name)) or default
