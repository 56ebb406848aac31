"""Which batch widths a full gate must ask for: those at which the engine starts to run something else.

With W requests decoding, a step has W rows (W x (1 + drafted tokens) with speculation). What runs for them changes at
*edges*, read back from the engine or from its tables:

    captured graphs    a batch is padded up to the next captured size; above the largest no graph is used;
    tile buckets       a kernel's table has one row up to each bound (of M, the rows of the GEMM);
    max-num-seqs       the widest batch that the engine forms.

An edge is the last number of rows that still runs alike. A fault at an edge shows at it, one above (the first of the
next graph or tile) or one below (padding by one row), so these three are wanted of each edge, and one request alone.

All of them are seldom affordable. `plan` takes one width after the other: first the widest batch; then one in each
graph or bucket from which none was taken; then the rest. Of equal ones it takes the width that lies farthest, as a
ratio, from all taken before, so that a few widths span the range. What is left out is named in the result.

Ask each width with one wave of that many prompts. accuracy_gate/prompts.py makes them 5 to 300 tokens long, so the rows
of one batch differ in length, and lengths change from wave to wave. Pure functions of data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import JsonValue

from contracts import Frozen

MOST_NAMED = 12  # widths listed in words


class Edge(Frozen):
    """`rows`: of the decode batch, the last that run alike."""

    rows: int
    kind: Literal["graph", "tile", "max-num-seqs"]


class WidthPlan(Frozen):
    """`widths` are requests at a time, ascending, without the ones that the gate asks anyway."""

    widths: tuple[int, ...]
    left_out: tuple[int, ...]  # wanted, and not affordable
    unknown: tuple[str, ...]  # what could not be read back, so that its edges are not known

    @property
    def sentence(self) -> str:
        """For the gate's result: what was not exercised."""
        if self.left_out:
            named = ", ".join(map(str, self.left_out[:MOST_NAMED]))
            more = len(self.left_out) - MOST_NAMED
            parts = [f"widths not exercised: {named}{f' and {more} more' if more > 0 else ''}"]
        else:
            parts = ["every width at a known edge was exercised"]
        return "; ".join([*parts, *(f"not known: {what}" for what in self.unknown)])


def edges(
    realised: Mapping[str, JsonValue], tile_edges: Iterable[int] = ()
) -> tuple[tuple[Edge, ...], tuple[str, ...]]:
    """The edges that are known, ascending, and in words what is not known.

    `realised`: LaunchRecord.realised. `tile_edges`: the last M of each bucket of the tables in use, in rows.
    """
    found = [Edge(rows=rows, kind="tile") for rows in set(tile_edges) if rows >= 1]
    unknown: list[str] = []
    if not realised.get("enforce_eager") and realised.get("compilation.cudagraph_mode") is None:
        unknown.append("whether decode batches run from captured graphs")
    elif graphs(realised):
        sizes = realised.get("compilation.cudagraph_capture_sizes")
        if isinstance(sizes, list) and sizes:
            found += [Edge(rows=size, kind="graph") for size in sizes if isinstance(size, int)]
        else:
            unknown.append("the sizes of the captured graphs")
    most = most_at_once(realised)
    if most is None:
        unknown.append("max-num-seqs")
    else:
        found.append(Edge(rows=most * rows_per_request(realised), kind="max-num-seqs"))
    return tuple(sorted(found, key=lambda edge: (edge.rows, edge.kind))), tuple(unknown)


def graphs(realised: Mapping[str, JsonValue]) -> bool:
    """Are decode batches run from captured graphs? vLLM logs the mode that it came down to, NONE on a CPU."""
    mode = realised.get("compilation.cudagraph_mode")
    return not realised.get("enforce_eager") and str(mode).upper().split(".")[-1] not in ("NONE", "0")


def most_at_once(realised: Mapping[str, JsonValue]) -> int | None:
    """max-num-seqs as the scheduler has it; None when the engine did not tell."""
    most = realised.get("max_num_seqs")
    return most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None


def rows_per_request(realised: Mapping[str, JsonValue]) -> int:
    """Rows of one decoding request in a step: 1 + the tokens that are drafted for it. vLLM 0.32.0 logs
    speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)."""
    drafted = re.search(r"num_spec(?:ulative)?_tokens=(\d+)", str(realised.get("speculative_config")))
    return 1 + int(drafted[1]) if drafted else 1


def wanted(known: Iterable[Edge], rows_each: int, most: int) -> tuple[int, ...]:
    """Alone, and of each edge the widest width that it still holds, one below and one above; within 1 .. `most`."""
    sides = {edge.rows // rows_each + side for edge in known for side in (-1, 0, 1)}
    return tuple(sorted({1} | {width for width in sides if 1 <= width <= most}))


def plan(
    realised: Mapping[str, JsonValue],
    most_widths: int,
    asked_anyway: Iterable[int] = (1,),
    tile_edges: Iterable[int] = (),
    widest: int = 512,
    at_once: int | None = None,
) -> WidthPlan:
    """The widths to ask beside `asked_anyway` (requests at a time), at most `most_widths` of them and none above
    `widest` (what the gate can pay for) or max-num-seqs. `at_once`: what the workload sends at a time, where that is
    known; then it is the bound instead, and wanted itself: a candidate may run so many together where the engine that
    was read back queues them."""
    known, unknown = edges(realised, tile_edges)
    each = rows_per_request(realised)
    most = most_at_once(realised)
    bound = at_once or most or max((edge.rows // each for edge in known), default=1)
    together = max(most or bound, bound)  # the most that may run at a time, in the engine or in a candidate
    have = {min(width, together) for width in asked_anyway if min(width, together) <= bound}
    all_wanted = tuple(sorted({*wanted(known, each, bound), *((at_once,) if at_once else ())}))
    inner = sorted({edge.rows // each for edge in known if edge.rows // each < bound})

    def bucket(width: int) -> int:
        return sum(edge < width for edge in inner)

    chosen: set[int] = {at_once} if at_once and at_once not in have and most_widths else set()
    while len(chosen) < most_widths:
        taken = have | chosen
        left = [width for width in all_wanted if width <= widest and width not in taken]
        if not left:
            break
        ran = {bucket(width) for width in taken}
        ranked = [(width == bound, bucket(width) not in ran, _far(width, taken), width) for width in left]
        chosen.add(max(ranked)[-1])
    left_out = tuple(width for width in all_wanted if width not in have | chosen)
    return WidthPlan(widths=tuple(sorted(chosen)), left_out=left_out, unknown=unknown)


def _far(width: int, taken: set[int]) -> float:
    """Distance to the nearest width taken, as the logarithm of their ratio."""
    return min((abs(math.log(width / other)) for other in taken), default=math.inf)
