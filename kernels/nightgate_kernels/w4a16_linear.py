"""x @ w.T for a few rows of x and 4-bit weights, without matrix instructions: the decode step of cards that have none.

    w[n, k] = (nibble(n, k) - 8) * scales[n, k // group]

gfx906 has no MFMA; what a decode step costs there is reading the weights. So each weight is read once for up to 8 rows,
unpacked in registers, multiplied and summed in float32, and never written. Sums run in one order whatever the grid
(no split over k, no atomics), so results repeat bitwise. More than 8 rows are right, but read the weights again for
every 8.
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
    x: tl.tensor, packed: tl.tensor, scales: tl.tensor, out: tl.tensor,
    x_stride: tl.tensor, packed_stride: tl.tensor, scales_stride: tl.tensor, out_stride: tl.tensor,
    rows: tl.tensor, n: tl.tensor, words: tl.tensor, words_per_group: tl.tensor,
    ROWS: tl.constexpr, N: tl.constexpr, WORDS: tl.constexpr,
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
        scale_at = n_far[:, None] * scales_stride + (word_at // words_per_group)[None, :]
        scale = tl.load(scales + scale_at, mask=weights_in, other=0.0).to(tl.float32)
        part = tl.zeros((ROWS, N, WORDS), dtype=tl.float32)
        for j in tl.static_range(8):
            whole = ((word >> (4 * j)) & 15).to(tl.float32) - 8.0
            ours = tl.load(x + row_far[:, None] * x_stride + (word_at * 8 + j)[None, :], mask=x_in, other=0.0)
            part += ours.to(tl.float32)[:, None, :] * whole[None, :, :]
        sums += part * scale[None, :, :]
    total = tl.sum(sums, axis=2)
    out_at = row_far[:, None] * out_stride + n_at[None, :]
    tl.store(out + out_at, total.to(out.dtype.element_ty), mask=row_in[:, None] & n_in[None, :])


def w4a16_linear(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, out: torch.Tensor, group: int) -> None:
    """x: [rows, k] float16 or bfloat16. packed: [n, k / 8] int32, the nibble of column 8 i + j in bits 4 j to 4 j + 3
    of element i. scales: [n, k / group] of x's dtype. out: [rows, n] of x's dtype. Any row strides, neighbours in a row
    adjacent. Raises ValueError for anything else."""
    rows, k = x.shape
    n = packed.shape[0]
    if group % 8 or k % group:
        raise ValueError(f"k = {k} must be a multiple of the group size {group}, and that of 8")
    for name, tensor, shape, dtype in (
        ("packed", packed, (n, k // 8), torch.int32),
        ("scales", scales, (n, k // group), x.dtype),
        ("out", out, (rows, n), x.dtype),
    ):
        if tensor.shape != shape or tensor.dtype != dtype:
            raise ValueError(f"{name} must be {list(shape)} {dtype}")
    if any(tensor.shape[1] > 1 and tensor.stride(1) != 1 for tensor in (x, packed, scales, out)):
        raise ValueError("neighbours in a row must be adjacent (last stride 1); make the operand contiguous")
    if rows == 0 or n == 0:
        return
    tile = tables.row_for(KERNEL, rows)
    grid = (triton.cdiv(n, tile["N"]), triton.cdiv(rows, tile["ROWS"]))
    _w4a16_linear[grid](
        x, packed, scales, out, x.stride(0), packed.stride(0), scales.stride(0), out.stride(0),
        rows, n, k // 8, group // 8, **tile, num_warps=4,
    )  # fmt: skip
