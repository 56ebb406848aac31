"""AITER's tile tables of the unified-attention kernels: which entry serves a shape, which entry serves none.

A table is `aiter/ops/triton/configs/<arch>/triton/attention/unified_attention/DEFAULT.json`: sections (attn_2d,
attn_3d, reduce, kv_split) of entries, and `schema`, the axes of each section in order. A key names the axes that it
cares about, joined by dots: `D_GEQ_512.Q_GEQ_256.DT_fp8_fp8`.

    axis  of a call                            component of a key
    D     head size, elements                  D_LEQ_n, D_GEQ_n
    Q     longest query of the batch, tokens   Q_LEQ_n, Q_GEQ_n
    BS    page of the KV cache, tokens         BS_LEQ_n, BS_GEQ_n
    SW    a sliding window                     SW
    SKLT  context shorter than 2048 tokens     SKLT
    SHUF  a shuffled KV cache                  SHUF
    DT    dtypes of query and cache            DT_<q>_<kv>, DT_<q>_any, DT_any_<kv>; tags nvfp4, fp8, bf16 (fp16 too)

Lookup: for each axis the components that fit, upper bounds ascending, then lower bounds descending, then none; their
product in the order of the schema; the first key that exists. So the leftmost axis wins outright. As read in ROCm/aiter
at 110cefd8 (August 2026) and later, where `<section>.OPT_IN` entries join the section under an environment variable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

FLAGS = ("SW", "SKLT", "SHUF")
NUMBERS = ("D", "Q", "BS")
TAGS = ("nvfp4", "fp8", "bf16")
SHORT_CONTEXT = 2048  # tokens; below it the axis SKLT holds
OPT_IN = ".OPT_IN"
MAX_NUMBER = 1 << 24  # of an entry's values; above it a table is broken
MAX_DIGITS = 9  # of a bound
MAX_KEYS = 500  # of a section; the longest one that was seen has 20
MAX_GRID = 50_000  # points at which never_served() looks
MAX_AXES = 20  # of a section, there; the layout knows seven


@dataclass(frozen=True)
class Call:
    """What the lookup is given. `rows`: the longest query of the batch, tokens. `queries_per_kv`: query heads that
    share a KV head; a tile's rows are shared out among them."""

    head_size: int
    rows: int
    window: bool
    q_tag: str
    kv_tag: str
    queries_per_kv: int = 1
    page: int = 16
    short_context: bool = False
    shuffled: bool = False

    def value(self, axis: str) -> Any:
        return {
            "D": self.head_size,
            "Q": self.rows,
            "BS": self.page,
            "SW": self.window,
            "SKLT": self.short_context,
            "SHUF": self.shuffled,
            "DT": (self.q_tag, self.kv_tag),
        }[axis]


@dataclass(frozen=True)
class Section:
    name: str
    axes: tuple[str, ...]
    entries: Mapping[str, Mapping[str, Any]]

    @cached_property
    def index(self) -> dict[tuple[str, ...], str]:
        """Slots -> key; of two keys that say the same the later one counts."""
        return {slots_of(key, self.axes): key for key in self.entries}

    @cached_property
    def bounds(self) -> dict[tuple[str, str], list[int]]:
        """(axis, "LEQ" or "GEQ") -> the bounds that the keys name, ascending."""
        found: dict[tuple[str, str], set[int]] = {}
        for key in self.entries:
            for part in _parts(key):
                for kind in ("LEQ", "GEQ"):
                    if part.startswith(f"{axis_of(part)}_{kind}_"):
                        found.setdefault((axis_of(part), kind), set()).add(bound_of(part))
        return {name: sorted(values) for name, values in found.items()}

    def with_entry(self, key: str, entry: Mapping[str, Any]) -> Section:
        return replace(self, entries={**self.entries, key: entry})


@dataclass(frozen=True)
class Hit:
    """The entry that serves a call, and by which component of each axis it was found."""

    key: str
    slots: tuple[str, ...]
    entry: Mapping[str, Any]

    def tile(self, page: int) -> int | None:
        """Keys a step takes, tokens: the page rounded up to a power of two, held within the entry's bounds."""
        low, high = (whole(self.entry.get(name)) for name in ("TILE_SIZE_MIN", "TILE_SIZE_MAX"))
        wanted = power_of_two(page)
        return None if low is high is None else max(low or 1, min(high or wanted, wanted))

    def block_m(self, queries_per_kv: int) -> int | None:
        """Rows of a tile, query heads of one KV head times query tokens: never fewer than the heads."""
        held = whole(self.entry.get("BLOCK_M"))
        return None if held is None else max(held, power_of_two(queries_per_kv))


def whole(value: Any) -> int | None:
    """A whole number from 1 to MAX_NUMBER, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_NUMBER else None


def power_of_two(value: int) -> int:
    """The least that is not below."""
    return 1 << max(value - 1, 0).bit_length()


def has_schema(raw: Any) -> bool:
    """Tables of before summer 2026 have none, and another layout."""
    return isinstance(raw, dict) and isinstance(raw.get("schema"), dict)


def read_sections(raw: Any, opt_in: bool = False) -> tuple[dict[str, Section], list[str]]:
    """The sections that the lookup can use, and a line for each thing that would stop it. With `opt_in` the entries
    that ask for an environment variable take part."""
    if not has_schema(raw):
        return {}, []
    schema = raw["schema"]
    found: dict[str, Section] = {}
    problems: list[str] = []
    for name, body in raw.items():
        if name == "schema" or name.endswith(OPT_IN) or not isinstance(body, dict):
            continue
        if opt_in and isinstance(raw.get(name + OPT_IN), dict):
            body = {**body, **raw[name + OPT_IN]}
        axes = schema.get(name, [])
        problem = _unusable(name, axes, body)
        if problem:
            problems.append(problem)
        elif not axes:
            found[name] = Section(name, (), {"any": body})
        else:
            found[name] = Section(name, tuple(axes), body)
    return found, problems


def _unusable(name: str, axes: Any, body: dict[str, Any]) -> str | None:
    if not isinstance(axes, list) or not all(a in (*NUMBERS, *FLAGS, "DT") for a in axes):
        return f"{name}: the schema names axes that the lookup does not know: {axes!r}"
    if len(body) > MAX_KEYS:
        return f"{name} has {len(body)} keys, more than the {MAX_KEYS} that are looked at"
    for key, entry in body.items() if axes else ():
        if not isinstance(entry, dict):
            return f"{name}: {key} holds no entry but {entry!r}"[:160]
        for part in _parts(key):
            if axis_of(part) not in axes:
                return f"{name}: {key} names axis {axis_of(part)}, which the schema does not have: the lookup raises"
            number = part.rsplit("_", 1)[-1]
            if ("_LEQ_" in part or "_GEQ_" in part) and not (number.isdecimal() and len(number) <= MAX_DIGITS):
                return f"{name}: {key} has a bound that is no number: the lookup raises"
    return None


def _parts(key: str) -> list[str]:
    return [] if key == "any" else key.split(".")


def axis_of(component: str) -> str:
    return "DT" if component.startswith("DT_") else component.split("_")[0]


def bound_of(component: str) -> int:
    return int(component.rsplit("_", 1)[1])


def slots_of(key: str, axes: tuple[str, ...]) -> tuple[str, ...]:
    """One component for each axis, "any" where the key says nothing."""
    held = {axis_of(part): part for part in _parts(key)}
    return tuple(held.get(axis, "any") for axis in axes)


def candidates(section: Section, axis: str, value: Any) -> list[str]:
    """Components that fit a value, in the order in which they are tried."""
    if axis in FLAGS:
        return [axis, "any"] if value else ["any"]
    if axis == "DT":
        q, kv = value
        return [f"DT_{q}_{kv}", f"DT_{q}_any", f"DT_any_{kv}", "any"]
    upper = [f"{axis}_LEQ_{b}" for b in section.bounds.get((axis, "LEQ"), ()) if value <= b]
    lower = [f"{axis}_GEQ_{b}" for b in reversed(section.bounds.get((axis, "GEQ"), [])) if value >= b]
    return [*upper, *lower, "any"]


def lookup(section: Section, call: Call) -> Hit | None:
    """The entry that serves the call. None where no key fits (the real lookup raises there).

    The first hit of a product in order is the fitting key whose places among the candidates, axis by axis, come first;
    that needs no product, which a large table could blow up."""
    order = [{c: i for i, c in enumerate(candidates(section, axis, call.value(axis)))} for axis in section.axes]
    fitting = [
        (tuple(place[slot] for place, slot in zip(order, slots, strict=True)), slots)
        for slots in section.index
        if all(slot in place for place, slot in zip(order, slots, strict=True))
    ]
    if not fitting:
        return None
    slots = min(fitting)[1]
    return Hit(section.index[slots], slots, section.entries[section.index[slots]])


def lower_bound(slots: Iterable[str]) -> int | None:
    """From how many query rows on an entry is meant, where its key says so."""
    return next((bound_of(slot) for slot in slots if slot.startswith("Q_GEQ_")), None)


def never_served(section: Section) -> list[str] | None:
    """Keys that no call can reach: others come first at every value of the axes. Exact: a lookup can only change at a
    bound, so each bound and its two neighbours stand for all numbers, and of values that fit the same components in the
    same order one stands for all. None where that would be too many points."""
    if len(section.axes) > MAX_AXES:
        return None
    orders = [_orders(section, place, axis) for place, axis in enumerate(section.axes)]
    if math.prod(map(len, orders)) > MAX_GRID:
        return None
    unseen = set(section.entries)

    def walk(place: int, held: list[tuple[tuple[int, ...], tuple[str, ...]]]) -> None:
        """`held`: the keys that fit so far, each with its places among the components. The least of them serves."""
        if all(section.index[slots] not in unseen for _, slots in held):
            return  # also where none fits
        if place == len(orders):
            unseen.discard(section.index[min(held)[1]])
            return
        for order in orders[place]:
            walk(place + 1, [((*r, order[s[place]]), s) for r, s in held if s[place] in order])

    walk(0, [((), slots) for slots in section.index])
    return [key for key in section.entries if key in unseen]


def _orders(section: Section, place: int, axis: str) -> list[dict[str, int]]:
    """Of every value of an axis the components that the keys name and that fit, with the order in which they are tried;
    equal ones once."""
    values: list[Any]
    if axis in FLAGS:
        values = [False, True]
    elif axis == "DT":
        values = list(itertools.product(TAGS, repeat=2))
    else:
        bounds = {*section.bounds.get((axis, "LEQ"), ()), *section.bounds.get((axis, "GEQ"), ()), 1}
        values = sorted({b + step for b in bounds for step in (-1, 0, 1) if b + step >= 1})
    named = {slots[place] for slots in section.index}
    found = {tuple(c for c in candidates(section, axis, value) if c in named) for value in values}
    return [{component: at for at, component in enumerate(order)} for order in sorted(found)]


@dataclass(frozen=True)
class Misplaced:
    """A call of many rows that an entry of another regime serves, and what the same table has for its neighbour."""

    call: Call
    hit: Hit
    neighbour: int  # head size
    neighbour_hit: Hit
    long_from: int  # rows: where the table itself draws the line

    @property
    def ratio(self) -> float:
        """Rows of the neighbour's tile by rows of this one."""
        mine, other = (h.block_m(self.call.queries_per_kv) or 0 for h in (self.hit, self.neighbour_hit))
        return other / mine if mine else 0.0


USUAL_HEADS = (64, 128)  # heads that every table is tuned for, whatever bounds it names
MIN_RATIO = 2.0  # below it the expected gain on the kernel is under 1.4


def misplaced(section: Section, call: Call) -> Misplaced | None:
    """Whether an entry meant for few rows serves a call of many. All three must hold:

    1. the call is long by the table's own line: the lowest Q_GEQ bound of any key. A table without one does not tell
       long from short, and nothing can be said from it;
    2. the key that serves it names no lower bound of rows: the same entry serves a decode step and a whole prompt, and
       rows are what decides how often keys and values are read again, so no tile is right for both;
    3. the nearest smaller head size that has a long entry gets at least MIN_RATIO times as many rows a tile, at the
       same rows, window and dtypes: whoever wrote the table knew what long queries want.
    """
    bounds = section.bounds.get(("Q", "GEQ"))
    hit = lookup(section, call)
    if not bounds or hit is None or call.rows < bounds[0] or lower_bound(hit.slots) is not None:
        return None
    heads = {*section.bounds.get(("D", "LEQ"), ()), *section.bounds.get(("D", "GEQ"), ()), *USUAL_HEADS}
    for head in sorted((h for h in heads if h < call.head_size), reverse=True):
        other = lookup(section, replace(call, head_size=head))
        if other is None or lower_bound(other.slots) is None:
            continue
        found = Misplaced(call, hit, head, other, bounds[0])
        return found if found.ratio >= MIN_RATIO else None
    return None
