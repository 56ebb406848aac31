"""out = x @ w.T with 4-bit weights:  w[n, k] = (nibble(n, k) - 8) * scales[n, k // group]

x: [rows, k] in float16 or bfloat16, rows are tokens. packed: [n, k / 8] int32, the nibble of column 8 i + j in bits 4 j
to 4 j + 3 of element i (the order of compressed-tensors' "pack-quantized" checkpoints). scales: [n, k / group] of x's
dtype. out: [rows, n]. k is a multiple of the group size.
"""

from __future__ import annotations

import torch

from ..case import Case, Layout, Level, Sizes, Tensors, Way

GROUP = 128
OUTLIERS = 20.0  # a few activation channels are this much larger


def inputs(sizes: Sizes, dtype: torch.dtype, generator: torch.Generator, call: int) -> Tensors:
    """Odd calls: activations eight times as large, without outliers."""
    rows, n, k = sizes["rows"], sizes["n"], sizes["k"]
    x = torch.randn(rows, k, generator=generator) * (8.0 if call % 2 else 1.0)
    if call % 2 == 0:
        x[:, torch.randint(k, (max(1, k // 100),), generator=generator)] *= OUTLIERS
    packed = torch.randint(-(2**31), 2**31, (n, k // 8), generator=generator).to(torch.int32)
    scales = torch.rand(n, k // GROUP, generator=generator) * 0.015 + 0.005
    return {"x": x.to(dtype), "packed": packed, "scales": scales.to(dtype)}


def outputs(sizes: Sizes, dtype: torch.dtype) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {"out": ((sizes["rows"], sizes["n"]), dtype)}


def unpacked(tensors: Tensors, wide: torch.dtype) -> torch.Tensor:
    """[n, k] in `wide`; exact in float32 and float64. With zero points where there are some (w4a16_zeros.py)."""
    packed, scales = tensors["packed"], tensors["scales"]
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    nibbles = (packed.unsqueeze(-1) >> shifts) & 15
    zeros = tensors["zeros"].to(wide).repeat_interleave(GROUP, dim=1) if "zeros" in tensors else 8
    whole = nibbles.reshape(packed.shape[0], -1).to(wide) - zeros
    return whole * scales.to(wide).repeat_interleave(GROUP, dim=1)


def reference(tensors: Tensors, sizes: Sizes) -> Tensors:
    return {"out": tensors["x"].double() @ unpacked(tensors, torch.float64).T}


def size(tensors: Tensors, sizes: Sizes) -> Tensors:
    """The root of the summed squares of the products."""
    squares = tensors["x"].double().square() @ unpacked(tensors, torch.float64).square().T
    return {"out": squares.sqrt()}


def plain(tensors: Tensors, sizes: Sizes) -> Tensors:
    """As engines do without a fused kernel: weights unpacked to x's dtype (rounded), products summed in float32."""
    dtype = tensors["x"].dtype
    weights = unpacked(tensors, torch.float32).to(dtype).float()
    return {"out": (tensors["x"].float() @ weights.T).to(dtype)}


_LAYOUTS = (
    Layout("x a slice of a fused projection", {"x": ((0, 128), (0, 64))}),
    Layout("rows padded to a multiple of 64", {"x": ((0, 0), (0, 64)), "out": ((0, 0), (0, 32))}),
    Layout("rows of a larger buffer", {"x": ((40, 0), (64, 0)), "out": ((40, 0), (64, 0))}),
    Layout("x and out from an odd column on", {"x": ((0, 3), (0, 2)), "out": ((0, 1), (0, 4))}),
    # k of a fused q, k, v: rows of the fused weight, columns of the fused output.
    Layout("part of a fused projection",
           {"packed": ((24, 0), (8, 0)), "scales": ((24, 0), (8, 0)), "out": ((0, 24), (0, 8))}),
    Layout("weights with padded rows", {"packed": ((0, 0), (0, 3)), "scales": ((0, 0), (0, 1))}),
)  # fmt: skip

CASE = Case(
    name="w4a16_linear",
    signature="kernel(x, packed, scales, out, group)",
    tokens="rows",
    dtypes=("float16", "bfloat16"),
    inputs=inputs,
    outputs=outputs,
    ways=(Way(reference, plain, size),),
    scalars=lambda sizes: {"group": GROUP},
    weights=frozenset({"packed", "scales"}),
    steps={"k": GROUP},
    layouts=_LAYOUTS,
    levels={
        "small": Level(
            base={"rows": 3, "n": 7, "k": 256},
            edges={"rows": (1, 8), "n": (16,)},
            most={"rows": 32, "n": 64, "k": 1024},
            odd=({"rows": 1, "n": 1, "k": 128}, {"rows": 2, "n": 37, "k": 384}, {"rows": 17, "n": 3, "k": 896}),
            views_at=(9,),
            captures=(1, 2, 4, 8),
        ),
        "serving": Level(
            base={"rows": 4, "n": 4096, "k": 4096},
            edges={"rows": (1, 2, 4, 8, 16, 32, 64), "n": (64, 128, 4096), "k": (256, 1024, 4096)},
            most={"rows": 128, "n": 8192, "k": 16384},
            odd=({"rows": 1, "n": 1, "k": 128}, {"rows": 3, "n": 1537, "k": 11008}, {"rows": 2, "n": 1000, "k": 14336}),
            views_at=(1, 9, 17),
            captures=(1, 2, 4, 8, 16, 24, 32),
        ),
    },
)
