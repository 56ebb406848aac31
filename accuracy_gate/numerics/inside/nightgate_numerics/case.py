"""What the gate knows of an operation, whoever implements it. A kernel is a callable; a case says how to try it.

The case belongs to the gate and the kernel to whoever proposes it: inputs, reference, tolerance and sizes cannot be
changed together with the kernel. A kernel's module may only add sizes, by a constant EDGES (dimension -> tile or
bucket sizes of its own dispatch); they come on top of the case's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

Sizes = dict[str, int]  # dimension -> size
Tensors = dict[str, torch.Tensor]
Pad = tuple[tuple[int, ...], tuple[int, ...]]  # elements of the buffer before and after the view, per dimension

GUARD = 16  # rows around every view; 16 keeps the view's alignment to 16 bytes for every element size


@dataclass(frozen=True)
class Layout:
    """How operands lie in memory. An operand without a pad is contiguous, between GUARD rows on either side."""

    name: str
    pads: Mapping[str, Pad] = field(default_factory=dict)
    alias: Mapping[str, str] = field(default_factory=dict)  # output -> the input that it overwrites
    guard: int = GUARD
    tokens: tuple[int, ...] = ()  # token counts at which it is tried, instead of the level's
    device_bytes: int = 0  # free memory that this needs; 0: no matter

    def pad(self, operand: str, dimensions: int) -> Pad:
        before, after = self.pads.get(operand, ((0,) * dimensions, (0,) * dimensions))
        return (before[0] + self.guard, *before[1:]), (after[0] + self.guard, *after[1:])


CONTIGUOUS = Layout("contiguous")


@dataclass(frozen=True)
class Level:
    """Sizes for one kind of machine. `edges`: where implementations change path; each is tried with one step either
    side, all other dimensions at `base`."""

    base: Sizes
    edges: Mapping[str, tuple[int, ...]]
    most: Mapping[str, int]  # larger sizes (of a kernel's own edges) are left out, and counted
    odd: tuple[Sizes, ...]
    views_at: tuple[int, ...]  # token counts at which every layout is tried
    captures: tuple[int, ...]  # token counts for which a graph is captured
    layouts: tuple[Layout, ...] = ()  # besides the case's


@dataclass(frozen=True)
class Way:
    """One right answer. `reference` takes the inputs as they are (it widens them itself) and returns float64; `plain`
    returns what a plain, well-written implementation of the same dtypes would. `size`, for outputs that are sums of
    both signs: how large the sum is where its terms do not cancel, because they were rounded at that size."""

    reference: Callable[[Tensors, Sizes], Tensors]
    plain: Callable[[Tensors, Sizes], Tensors]
    size: Callable[[Tensors, Sizes], Tensors] | None = None


@dataclass(frozen=True)
class Case:
    """`inputs(sizes, dtype, generator, call)` makes contiguous tensors on the CPU; `call` counts the calls, and the
    numbers of two calls differ in magnitude. A kernel must agree with one of `ways`: there is more than one where
    engines define the operation in more than one way. It is called as `kernel(**inputs, **outputs, **scalars)`, writes
    the outputs and returns nothing.
    """

    name: str
    signature: str
    tokens: str  # the dimension that changes from step to step; dimension 0 of every operand that is no weight
    dtypes: tuple[str, ...]
    inputs: Callable[[Sizes, torch.dtype, torch.Generator, int], Tensors]
    outputs: Callable[[Sizes, torch.dtype], dict[str, tuple[tuple[int, ...], torch.dtype]]]
    ways: tuple[Way, ...]
    scalars: Callable[[Sizes], dict[str, object]]
    weights: frozenset[str]
    steps: Mapping[str, int]  # dimension -> distance to the next legal size, where it is not 1
    layouts: tuple[Layout, ...]
    levels: Mapping[str, Level]


@dataclass(frozen=True)
class Item:
    """One thing to try."""

    label: str  # the class under which it is reported
    dtype: str
    sizes: Sizes
    layout: Layout

    def __str__(self) -> str:
        return f"{self.dtype} {' '.join(f'{k}={v}' for k, v in self.sizes.items())} {self.layout.name}"


def items(
    case: Case, level: Level, dtypes: tuple[str, ...], own_edges: Mapping[str, tuple[int, ...]]
) -> Iterator[Item]:
    """All that is tried at a level, each once. Pure.

    Raises ValueError when the kernel's edges name a dimension that the case does not have.
    """
    if unknown := sorted(set(own_edges) - set(level.base)):
        raise ValueError(f"the kernel's edges name {', '.join(unknown)}; {case.name} has {', '.join(level.base)}")
    seen: set[str] = set()
    for item in _all(case, level, dtypes, own_edges):
        if str(item) not in seen:
            seen.add(str(item))
            yield item


def _all(case: Case, level: Level, dtypes: tuple[str, ...], own_edges: Mapping[str, tuple[int, ...]]) -> Iterator[Item]:
    for dtype in dtypes:
        for dimension in level.base:
            step = case.steps.get(dimension, 1)
            own = tuple(edge for edge in own_edges.get(dimension, ()) if edge <= level.most[dimension])
            for edge in sorted({*level.edges.get(dimension, ()), *own}):
                for size in (edge - step, edge, edge + step):
                    if size >= step and size % step == 0:
                        yield Item(f"{dimension} edges", dtype, level.base | {dimension: size}, CONTIGUOUS)
        for sizes in level.odd:
            yield Item("odd sizes", dtype, level.base | sizes, CONTIGUOUS)
        for layout in (*case.layouts, *level.layouts):
            for tokens in layout.tokens or level.views_at:
                yield Item(f"view: {layout.name}", dtype, level.base | {case.tokens: tokens}, layout)


def left_out(level: Level, own_edges: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The kernel's edges that are too large for this level, in words."""
    return [
        f"{dimension} edge {edge} (over {level.most[dimension]})"
        for dimension, edges in own_edges.items()
        for edge in edges
        if edge > level.most[dimension]
    ]
