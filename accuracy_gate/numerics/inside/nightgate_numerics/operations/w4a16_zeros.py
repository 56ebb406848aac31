"""out = x @ w.T with 4-bit weights that have zero points:

    w[n, k] = (nibble(n, k) - zeros[n, k // group]) * scales[n, k // group]

As w4a16_linear, and zeros: [n, k / group] of x's dtype, whole numbers from 0 to 15 (AWQ's, and compressed-tensors'
where they are not symmetric).
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..case import Layout, Sizes, Tensors
from . import w4a16_linear


def inputs(sizes: Sizes, dtype: torch.dtype, generator: torch.Generator, call: int) -> Tensors:
    made = w4a16_linear.inputs(sizes, dtype, generator, call)
    zeros = torch.randint(0, 16, tuple(made["scales"].shape), generator=generator)
    return made | {"zeros": zeros.to(dtype)}


def _with_zeros(layout: Layout) -> Layout:
    """zeros lie as scales do."""
    pads = dict(layout.pads)
    return replace(layout, pads=pads | {"zeros": pads["scales"]}) if "scales" in pads else layout


CASE = replace(
    w4a16_linear.CASE,
    name="w4a16_zeros",
    signature="kernel(x, packed, scales, zeros, out, group)",
    inputs=inputs,
    weights=frozenset({"packed", "scales", "zeros"}),
    layouts=tuple(_with_zeros(layout) for layout in w4a16_linear.CASE.layouts),
)
