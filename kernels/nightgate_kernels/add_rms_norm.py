"""Fused residual add and RMSNorm, one program a row, float32 inside.

    residual_out = x + residual;  out = (x + residual) / sqrt(mean((x + residual)^2) + epsilon) * weight

A row is held in registers, so that x and residual are read once and either output may overwrite either input. The sum
is rounded once for residual_out and not at all for the norm.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from nightgate_kernels import tables  # type: ignore[import-not-found]  # on the path of whoever imports this

KERNEL = "add_rms_norm"
LONGEST_ROW = max(map(int, tables.rows_of(KERNEL)))
EDGES = {"cols": tuple(int(row) for row in tables.rows_of(KERNEL) if int(row) < LONGEST_ROW)}


@triton.jit
def _add_rms_norm(
    x: tl.tensor, residual: tl.tensor, weight: tl.tensor, out: tl.tensor, residual_out: tl.tensor,
    x_stride: tl.tensor, residual_stride: tl.tensor, out_stride: tl.tensor, residual_out_stride: tl.tensor,
    cols: tl.tensor, epsilon: tl.tensor, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)  # row * stride passes 2^31 in large buffers
    at = tl.arange(0, BLOCK)
    inside = at < cols
    total = tl.load(x + row * x_stride + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(residual + row * residual_stride + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, axis=0) / cols + epsilon)
    gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual_out + row * residual_out_stride + at, total.to(residual_out.dtype.element_ty), mask=inside)
    tl.store(out + row * out_stride + at, (total * scale * gain).to(out.dtype.element_ty), mask=inside)


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    residual_out: torch.Tensor,
    epsilon: float,
) -> None:
    """x, residual, out, residual_out: [rows, cols], float16 or bfloat16, any row stride, neighbours in a row adjacent.
    weight: [cols], contiguous. out and residual_out may be x and residual. Raises ValueError for anything else."""
    rows, cols = x.shape
    for name, tensor in (("residual", residual), ("out", out), ("residual_out", residual_out)):
        if tensor.shape != x.shape or tensor.dtype != x.dtype:
            raise ValueError(f"{name} must be {list(x.shape)} {x.dtype}, as x is")
    if any(tensor.stride(1) != 1 and cols > 1 for tensor in (x, residual, out, residual_out)):
        raise ValueError("neighbours in a row must be adjacent (last stride 1); make the operand contiguous")
    if weight.shape != (cols,) or (weight.stride(0) != 1 and cols > 1):
        raise ValueError(f"weight must be [{cols}] and contiguous")
    if cols > LONGEST_ROW:
        raise ValueError(f"rows of {cols} elements; at most {LONGEST_ROW} are held in registers")
    if rows == 0:
        return
    _add_rms_norm[(rows,)](
        x, residual, weight, out, residual_out,
        x.stride(0), residual.stride(0), out.stride(0), residual_out.stride(0),
        cols, epsilon, BLOCK=triton.next_power_of_2(cols), **tables.row_for(KERNEL, cols),
    )  # fmt: skip
