"""residual_out = x + residual;  out = (x + residual) / sqrt(mean((x + residual)^2) + epsilon) * weight

The step between two layers of a Llama-like model. x and residual: [rows, cols] in float16 or bfloat16, rows are
tokens; weight: [cols]. Two ways are right: vLLM's native path normalises the sum as computed, its CUDA kernel the sum
as rounded for residual_out. Where one channel outgrows a row, rounding it moves the whole row by up to an ulp, so
neither can be judged by the other's reference.
"""

from __future__ import annotations

import torch

from ..case import Case, Layout, Level, Sizes, Tensors, Way

EPSILON = 1e-6
OUTLIERS = 200.0  # a few channels of a residual stream are this much larger; squared they overflow float16


def inputs(sizes: Sizes, dtype: torch.dtype, generator: torch.Generator, call: int) -> Tensors:
    """Even calls: unit size with outlier channels. Odd calls: so small that epsilon matters (mean square 1e-4)."""
    rows, cols = sizes["rows"], sizes["cols"]
    x, residual = (torch.randn(rows, cols, generator=generator) for _ in range(2))
    if call % 2:
        x, residual = x * 0.007, residual * 0.007
    else:
        residual[:, torch.randint(cols, (max(1, cols // 100),), generator=generator)] *= OUTLIERS
    weight = torch.rand(cols, generator=generator) + 0.5
    return {"x": x.to(dtype), "residual": residual.to(dtype), "weight": weight.to(dtype)}


def outputs(sizes: Sizes, dtype: torch.dtype) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    shape = (sizes["rows"], sizes["cols"])
    return {"out": (shape, dtype), "residual_out": (shape, dtype)}


def _normalised(total: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPSILON) * weight


def _summed(tensors: Tensors, wide: torch.dtype) -> torch.Tensor:
    return tensors["x"].to(wide) + tensors["residual"].to(wide)


def as_computed(tensors: Tensors, sizes: Sizes) -> Tensors:
    total = _summed(tensors, torch.float64)
    return {"out": _normalised(total, tensors["weight"].double()), "residual_out": total}


def as_computed_plain(tensors: Tensors, sizes: Sizes) -> Tensors:
    """float32 throughout, rounded once."""
    dtype, total = tensors["x"].dtype, _summed(tensors, torch.float32)
    return {"out": _normalised(total, tensors["weight"].float()).to(dtype), "residual_out": total.to(dtype)}


def as_rounded(tensors: Tensors, sizes: Sizes) -> Tensors:
    total = _summed(tensors, torch.float64)
    rounded = total.to(tensors["x"].dtype).double()
    return {"out": _normalised(rounded, tensors["weight"].double()), "residual_out": total}


def as_rounded_plain(tensors: Tensors, sizes: Sizes) -> Tensors:
    dtype = tensors["x"].dtype
    total = _summed(tensors, torch.float32).to(dtype)
    return {"out": _normalised(total.float(), tensors["weight"].float()).to(dtype), "residual_out": total}


_ROWWISE = ("x", "residual", "out", "residual_out")
_LAYOUTS = (
    # q of a fused q, k, v: 128 columns lie between two rows of the view, and it starts in mid-row.
    Layout("x a slice of a fused projection", {"x": ((0, 64), (0, 64))}),
    Layout("rows padded to a multiple of 64", {"x": ((0, 0), (0, 32)), "residual": ((0, 0), (0, 32))}),
    # The first rows of a persistent buffer; what lies behind belongs to other requests.
    Layout("rows of a larger buffer", dict.fromkeys(_ROWWISE, ((40, 0), (64, 0)))),
    # An odd offset: 2-byte alignment only.
    Layout("every operand from an odd column on",
           dict.fromkeys(_ROWWISE, ((0, 3), (0, 2))) | {"weight": ((5,), (3,))}),
    Layout("outputs inside wider rows", dict.fromkeys(("out", "residual_out"), ((0, 16), (0, 48)))),
    Layout("in place", alias={"out": "x", "residual_out": "residual"}),
    Layout("in place, x a slice", {"x": ((0, 8), (0, 24))}, alias={"out": "x", "residual_out": "residual"}),
)  # fmt: skip

# Row offsets beyond 2^31 elements: 17 rows 2^27 elements apart, in two buffers of 5 GB that are compared bit by bit.
_FAR = Layout(
    "rows 2^27 elements apart", dict.fromkeys(("x", "out"), ((0, 0), (0, 2**27 - 4096))), guard=1,
    tokens=(17,), device_bytes=32 << 30,
)  # fmt: skip

CASE = Case(
    name="add_rms_norm",
    signature="kernel(x, residual, weight, out, residual_out, epsilon)",
    tokens="rows",
    dtypes=("float16", "bfloat16"),
    inputs=inputs,
    outputs=outputs,
    ways=(Way(as_computed, as_computed_plain), Way(as_rounded, as_rounded_plain)),
    scalars=lambda sizes: {"epsilon": EPSILON},
    weights=frozenset({"weight"}),
    steps={},
    layouts=_LAYOUTS,
    levels={
        "small": Level(
            base={"rows": 3, "cols": 96},
            edges={"rows": (1, 16), "cols": (64, 128)},
            most={"rows": 32, "cols": 600},
            odd=({"rows": 5, "cols": 1}, {"rows": 2, "cols": 577}, {"rows": 1, "cols": 7}),
            views_at=(9,),
            captures=(1, 2, 4, 8, 16),
        ),
        "serving": Level(
            base={"rows": 5, "cols": 4096},
            edges={"rows": (1, 8, 16, 32, 64, 256), "cols": (64, 128, 1024, 4096, 8192)},
            most={"rows": 512, "cols": 16384},
            odd=({"rows": 3, "cols": 1}, {"rows": 33, "cols": 2881}, {"rows": 7, "cols": 5120},
                 {"rows": 2, "cols": 12287}),
            views_at=(1, 17, 64),
            captures=(1, 2, 4, 8, 16, 24, 32, 48, 64),
            layouts=(_FAR,),
        ),
    },
)  # fmt: skip
