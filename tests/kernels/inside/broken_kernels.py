"""Kernels that are wrong on purpose (tests/kernels/faults.py says what is to be seen of each); plain torch, run in the
engine's interpreter. Each is `honest` with one fault.
"""

from __future__ import annotations

import os
from typing import Any

import torch

T = torch.Tensor
EDGES = {"rows": (16,)}


def _norm(x: T, residual: T, weight: T, epsilon: float) -> tuple[T, T]:
    total = x.float() + residual.float()
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + epsilon) * weight.float(), total


def honest(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    result, total = _norm(x, residual, weight, epsilon)
    residual_out.copy_(total)
    out.copy_(result)


# --- other honest ways, which must pass ---------------------------------------------------------------------------


def other_order(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """Squares of every second column summed apart, backwards; a division instead of a multiplication."""
    total = x.float() + residual.float()
    squares = total.square().flip(-1)
    mean = (squares[:, ::2].sum(-1, keepdim=True) + squares[:, 1::2].sum(-1, keepdim=True)) / x.shape[1]
    residual_out.copy_(total)
    out.copy_(total / torch.sqrt(mean + epsilon) * weight.float())


def rounds_the_sum(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """The sum is rounded before the norm, as vLLM's CUDA kernel does: one rounding more."""
    total = (x.float() + residual.float()).to(x.dtype)
    out.copy_(_norm(total, torch.zeros_like(total), weight, epsilon)[0])
    residual_out.copy_(total)


def w4a16_by_group(x: T, packed: T, scales: T, out: T, group: int) -> None:
    """float32 throughout; each group is summed before it is scaled."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    whole = ((packed.unsqueeze(-1) >> shifts) & 15).reshape(packed.shape[0], -1, group).float() - 8
    out.copy_((torch.einsum("rgk,ngk->rng", x.float().unflatten(-1, (-1, group)), whole) * scales.float()).sum(-1))


def w4a16_rounded_weights(x: T, packed: T, scales: T, out: T, group: int) -> None:
    """Weights unpacked to x's dtype, as the plain implementation has them, summed backwards."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    whole = ((packed.unsqueeze(-1) >> shifts) & 15).reshape(packed.shape[0], -1).float() - 8
    weights = (whole * scales.float().repeat_interleave(group, dim=1)).to(x.dtype).float()
    out.copy_(x.float().flip(-1) @ weights.flip(-1).T)


# --- faults -------------------------------------------------------------------------------------------------------


def one_tile_short(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """The number of 16-row tiles rounds down just past the edge: row 17 of 17 is left out."""
    rows = max(1, (x.shape[0] + 14) // 16) * 16
    honest(x[:rows], residual[:rows], weight, out[:rows], residual_out[:rows], epsilon)


def float16_sums(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    total = (x + residual).to(x.dtype)
    mean = (total * total).cumsum(-1, dtype=x.dtype)[:, -1:] / x.shape[1]
    residual_out.copy_(total)
    out.copy_(total * torch.rsqrt(mean + epsilon) * weight)


def w4a16_float16_sums(x: T, packed: T, scales: T, out: T, group: int) -> None:
    """Partial sums of 8 products, added up in x's dtype."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    nibbles = ((packed.unsqueeze(-1) >> shifts) & 15).reshape(packed.shape[0], -1).float() - 8
    weights = nibbles * scales.float().repeat_interleave(group, dim=1)
    parts = (x.float().unsqueeze(1) * weights).unflatten(-1, (-1, 8)).sum(-1).to(x.dtype)
    total = torch.zeros_like(parts[..., 0])
    for part in parts.unbind(-1):
        total += part
    out.copy_(total)


def one_row_too_many(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    honest(x, residual, weight, out, residual_out, epsilon)
    out.as_strided((x.shape[0] + 1, x.shape[1]), out.stride())[-1].fill_(0)


def ignores_the_stride(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    honest(x.as_strided(x.shape, (x.shape[1], 1)), residual, weight, out, residual_out, epsilon)


def tail_unwritten(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """Whole vectors of 32 columns only."""
    result, total = _norm(x, residual, weight, epsilon)
    whole = x.shape[1] // 32 * 32
    residual_out.copy_(total)
    out[:, :whole].copy_(result[:, :whole])


_results: dict[Any, tuple[T, T]] = {}


def remembers_results(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """By address and shape."""
    key = (x.data_ptr(), x.shape, x.dtype)
    result, total = _results.setdefault(key, _norm(x, residual, weight, epsilon))
    residual_out.copy_(total)
    out.copy_(result)


_weights: dict[Any, T] = {}


def remembers_weights(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """Widened once and kept by address: wrong as soon as weights are loaded anew."""
    wide = _weights.setdefault((weight.data_ptr(), weight.shape, weight.dtype), weight.float())
    honest(x, residual, wide, out, residual_out, epsilon)


_rows: dict[torch.device, T] = {}
_last = [-1]


def size_set_by_host_code(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """A row count on the device, which host code writes when the size differs from the last call's. Always right when
    called. In a graph the write is missing where the warm-up had the same size, so a replay after another size uses
    that size's count."""
    count = _rows.setdefault(x.device, torch.zeros(1, dtype=torch.int64, device=x.device))
    if x.shape[0] != _last[0]:
        count.fill_(x.shape[0])
        _last[0] = x.shape[0]
    result, total = _norm(x, residual, weight, epsilon)
    live = (torch.arange(x.shape[0], device=x.device) < count).unsqueeze(1)
    residual_out.copy_(total)
    out.copy_(torch.where(live, result, out.float()))


def batch_wide_scale(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """Scales by the largest number of the batch and back: padded rows of a graph reach the others."""
    result, total = _norm(x, residual, weight, epsilon)
    peak = result.abs().max()
    residual_out.copy_(total)
    out.copy_(result / peak * peak)


def no_epsilon(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    honest(x, residual, weight, out, residual_out, 0.0)


def scaled_a_little(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """By 1.0005: half of float16's last place at most."""
    result, total = _norm(x, residual, weight, epsilon)
    residual_out.copy_(total)
    out.copy_(result * 1.0005)


def truncates(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """Cuts float32 to bfloat16 instead of rounding; float16 is right."""
    result, total = _norm(x, residual, weight, epsilon)
    residual_out.copy_(total)
    out.copy_((result.view(torch.int32) & -65536).view(torch.float32) if x.dtype == torch.bfloat16 else result)


def writes_its_input(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    honest(x, residual, weight, out, residual_out, epsilon)
    x.neg_()


def not_repeatable(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    """One element is rounded either way by chance."""
    honest(x, residual, weight, out, residual_out, epsilon)
    flip = torch.randint(2, (1,), dtype=torch.int16, device=out.device)
    out[0, :1].copy_((out[0, :1].view(torch.int16) + flip).view(out.dtype))


def needs_columns_in_eights(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    if x.shape[1] % 8:
        raise ValueError("columns must come in eights")
    honest(x, residual, weight, out, residual_out, epsilon)


def kills_the_process(x: T, residual: T, weight: T, out: T, residual_out: T, epsilon: float) -> None:
    if x.shape[0] == 16:
        os.abort()
    honest(x, residual, weight, out, residual_out, epsilon)
