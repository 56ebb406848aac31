"""x @ w.T for a few rows of x and 4-bit weights, without matrix instructions: the decode step of cards that have none.

    w[n, k] = (nibble(n, k) - zeros[n, k // group]) * scales[n, k // group]      zeros: 8 where none are given

gfx906 has no MFMA; what a decode step costs there is reading the weights. So each weight is read once for up to 8 rows,
unpacked in registers, multiplied and summed in float32, and never written. Sums run in one order whatever the grid
(no split over k, no atomics), so results repeat bitwise. More than 8 rows are right, but read the weights again for
every 8: for many rows unpack() writes the weights once, for a library's matrix product.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from nightgate_kernels import tables  # type: ignore[import-not-found]  # on the path of whoever imports this

# A row of the table: ROWS rows of x and N weight rows a program, WORDS words of 8 weights a step. 4 warps throughout.
KERNEL = "w4a16_linear"
_ROWS = tables.rows_of(KERNEL)
EDGES = {
    "rows": tuple(map(int, _ROWS)),
    "n": tuple(sorted({row["N"] for row in _ROWS.values()})),
    "k": tuple(sorted({8 * row["WORDS"] for row in _ROWS.values()})),
}


@triton.jit(do_not_specialize=["rows"])  # else each of 1, 16 n and other batch sizes compiles anew while serving
def _w4a16_linear(
    x: tl.tensor, packed: tl.tensor, scales: tl.tensor, zeros: tl.tensor, out: tl.tensor,
    x_stride: tl.tensor, packed_stride: tl.tensor, scales_stride: tl.tensor, zeros_stride: tl.tensor,
    out_stride: tl.tensor, rows: tl.tensor, n: tl.tensor, words: tl.tensor, words_per_group: tl.tensor,
    ZEROS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr, WORDS: tl.constexpr,
) -> None:  # fmt: skip
    n_at = tl.program_id(0) * N + tl.arange(0, N)
    row_at = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n_in = n_at < n
    row_in = row_at < rows
    n_far = n_at.to(tl.int64)  # offsets pass 2^31 in large buffers
    row_far = row_at.to(tl.int64)
    sums = tl.zeros((ROWS, N, WORDS), dtype=tl.float32)
    for start in range(0, words, WORDS):
        word_at = start + tl.arange(0, WORDS)
        word_in = word_at < words
        weights_in = n_in[:, None] & word_in[None, :]
        x_in = row_in[:, None] & word_in[None, :]
        word = tl.load(packed + n_far[:, None] * packed_stride + word_at[None, :], mask=weights_in, other=0)
        group_at = (word_at // words_per_group)[None, :]
        scale = tl.load(scales + n_far[:, None] * scales_stride + group_at, mask=weights_in, other=0.0).to(tl.float32)
        zero = 8.0
        if ZEROS:
            zero = tl.load(zeros + n_far[:, None] * zeros_stride + group_at, mask=weights_in, other=0.0).to(tl.float32)
        part = tl.zeros((ROWS, N, WORDS), dtype=tl.float32)
        for j in tl.static_range(8):
            whole = ((word >> (4 * j)) & 15).to(tl.float32) - zero
            ours = tl.load(x + row_far[:, None] * x_stride + (word_at * 8 + j)[None, :], mask=x_in, other=0.0)
            part += ours.to(tl.float32)[:, None, :] * whole[None, :, :]
        sums += part * scale[None, :, :]
    total = tl.sum(sums, axis=2)
    out_at = row_far[:, None] * out_stride + n_at[None, :]
    tl.store(out + out_at, total.to(out.dtype.element_ty), mask=row_in[:, None] & n_in[None, :])


@triton.jit
def _unpack(
    packed: tl.tensor, scales: tl.tensor, zeros: tl.tensor, out: tl.tensor,
    packed_stride: tl.tensor, scales_stride: tl.tensor, zeros_stride: tl.tensor, out_stride: tl.tensor,
    n: tl.tensor, k: tl.tensor, group: tl.tensor, ZEROS: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    n_at = tl.program_id(0) * N + tl.arange(0, N)
    k_at = tl.program_id(1) * K + tl.arange(0, K)
    inside = (n_at < n)[:, None] & (k_at < k)[None, :]
    n_far = n_at.to(tl.int64)[:, None]
    word = tl.load(packed + n_far * packed_stride + (k_at // 8)[None, :], mask=inside, other=0)
    group_at = (k_at // group)[None, :]
    scale = tl.load(scales + n_far * scales_stride + group_at, mask=inside, other=0.0).to(tl.float32)
    zero = 8.0
    if ZEROS:
        zero = tl.load(zeros + n_far * zeros_stride + group_at, mask=inside, other=0.0).to(tl.float32)
    whole = ((word >> (4 * (k_at % 8))[None, :]) & 15).to(tl.float32) - zero
    tl.store(out + n_far * out_stride + k_at[None, :], (whole * scale).to(out.dtype.element_ty), mask=inside)


def w4a16_linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    out: torch.Tensor,
    group: int,
    zeros: torch.Tensor | None = None,
) -> None:
    """x: [rows, k] float16 or bfloat16. packed: [n, k / 8] int32, the nibble of column 8 i + j in bits 4 j to 4 j + 3
    of element i. scales, and zeros if given: [n, k / group] of x's dtype, zeros whole numbers from 0 to 15. out:
    [rows, n] of x's dtype. Any row strides, neighbours in a row adjacent. Raises ValueError for anything else."""
    rows, k = x.shape
    n = packed.shape[0]
    _check(packed, scales, zeros, n, k, group, x.dtype, {"out": (out, (rows, n))})
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError(APART)
    if rows == 0 or n == 0:
        return
    tile = tables.row_for(KERNEL, rows)
    grid = (triton.cdiv(n, tile["N"]), triton.cdiv(rows, tile["ROWS"]))
    given = scales if zeros is None else zeros
    _w4a16_linear[grid](
        x, packed, scales, given, out, x.stride(0), packed.stride(0), scales.stride(0), given.stride(0), out.stride(0),
        rows, n, k // 8, group // 8, ZEROS=zeros is not None, **tile, num_warps=4,
    )  # fmt: skip


def unpack(packed: torch.Tensor, scales: torch.Tensor, group: int, zeros: torch.Tensor | None = None) -> torch.Tensor:
    """The weights, [n, k] of scales' dtype, each rounded once. Arguments as w4a16_linear's; raises ValueError."""
    n, k = packed.shape[0], packed.shape[1] * 8
    _check(packed, scales, zeros, n, k, group, scales.dtype, {})
    out = torch.empty(n, k, dtype=scales.dtype, device=scales.device)
    if n == 0 or k == 0:
        return out
    given = scales if zeros is None else zeros
    _unpack[(triton.cdiv(n, 8), triton.cdiv(k, 512))](
        packed, scales, given, out, packed.stride(0), scales.stride(0), given.stride(0), out.stride(0),
        n, k, group, ZEROS=zeros is not None, N=8, K=512, num_warps=4,
    )  # fmt: skip
    return out


APART = "neighbours in a row must be adjacent (last stride 1); make the operand contiguous"


def _check(
    packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, n: int, k: int, group: int,
    dtype: torch.dtype, more: dict[str, tuple[torch.Tensor, tuple[int, int]]],
) -> None:  # fmt: skip
    if group % 8 or k % group:
        raise ValueError(f"k = {k} must be a multiple of the group size {group}, and that of 8")
    wanted = {"packed": (packed, (n, k // 8), torch.int32), "scales": (scales, (n, k // group), dtype)}
    wanted |= {name: (tensor, shape, dtype) for name, (tensor, shape) in more.items()}
    if zeros is not None:
        wanted["zeros"] = (zeros, (n, k // group), dtype)
    for name, (tensor, shape, kind) in wanted.items():
        if tensor.shape != shape or tensor.dtype != kind:
            raise ValueError(f"{name} must be {list(shape)} {kind}")
        if tensor.shape[1] > 1 and tensor.stride(1) != 1:
            raise ValueError(APART)
