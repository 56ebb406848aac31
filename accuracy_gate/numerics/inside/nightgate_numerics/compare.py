"""Is this result as good as a plain implementation's? Errors are counted in ulps (units in the last place) of the
output's dtype at the float64 reference, and the tolerance is the plain implementation's own error on the same inputs.

    rms      <= RMS_FACTOR * max(plain's rms, one rounding's) * (1 + RMS_CHANCE / sqrt(elements))
    largest  <= max(p + 1, 2 p),  p = max(plain's largest, one rounding's)
    |mean|   <= |plain's mean| + MEAN_ULP + MEAN_SIGMAS * rms / sqrt(elements)

One rounding to nearest errs by up to 0.5 ulp, evenly: rms 1/sqrt(12) = 0.29. A second rounding of the same relative
size makes that sqrt(2) = 1.41 times as much, and moves an element by at most one more ulp (half an ulp of a number just
over a power of two is one ulp of a number just under it). So an implementation may round an intermediate once where the
plain one does not, and no more.

The mean (signed: away from zero is positive) sees what is smaller than a rounding and the same everywhere: an epsilon,
a constant, truncation instead of rounding.

An ulp of a sum that cancels says little: the terms were rounded at their own size. For such outputs the ulp is taken at
that size (Way.size, the root of the summed squares of the terms) where the reference is smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

ONE_ROUNDING = 1 / math.sqrt(12)
LARGEST_ROUNDING = 0.5
RMS_FACTOR = 1.5
RMS_CHANCE = 3.0  # the rms of n sums of two roundings varies by 0.59 / sqrt(n) of itself; five times that
MEAN_ULP = 0.1  # the largest |mean| of an honest implementation is in docs/kernel_numerics.md
MEAN_SIGMAS = 5.0
PLAIN_RMS = 1.5  # ulps; more, and the plain implementation is none
FEWEST = 32  # elements (of an output, of a row) from which an rms and a mean are taken
MEAN_TOLD = 1024  # elements from which a mean is reported: chance leaves it 0.29 / sqrt(1024) = 0.01 ulp

_MANTISSA = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23}  # stored bits
_SMALLEST = {torch.float16: -24, torch.bfloat16: -133, torch.float32: -149}  # exponent of the least subnormal


@dataclass(frozen=True)
class Error:
    """In ulps. `row_rms` is the largest rms of any row, 0 where rows are shorter than FEWEST."""

    elements: int
    row: int  # elements in a row
    rms: float
    row_rms: float
    largest: float
    mean: float
    at: tuple[int, ...]  # of the largest


def ulp(reference: torch.Tensor, dtype: torch.dtype, least: torch.Tensor | None) -> torch.Tensor:
    """float64, the shape of `reference`: the distance of neighbouring numbers of `dtype` there, or at `least` where
    that is larger."""
    size = reference.abs()
    if least is not None:
        size = torch.maximum(size, least)
    exponent = torch.frexp(size).exponent.double() - 1 - _MANTISSA[dtype]  # size = 1.xxx * 2^(exponent + mantissa)
    exponent = torch.where(size > 0, exponent, -torch.inf).clamp(min=_SMALLEST[dtype])
    return torch.exp2(exponent)


def error(result: torch.Tensor, reference: torch.Tensor, least: torch.Tensor | None) -> Error:
    """Raises ValueError when nothing can be said: shapes differ."""
    if result.shape != reference.shape:
        raise ValueError(f"result {tuple(result.shape)}, reference {tuple(reference.shape)}")
    off = (result.double() - reference) / ulp(reference, result.dtype, least)
    squares = off.square()
    row_rms = math.sqrt(float(squares.mean(-1).max())) if off.shape[-1] >= FEWEST else 0.0
    at: tuple[int, ...] = ()
    left = int(off.abs().argmax())
    for size in reversed(off.shape):
        left, index = divmod(left, size)
        at = (index, *at)
    return Error(
        elements=off.numel(), row=off.shape[-1], rms=math.sqrt(float(squares.mean())), row_rms=row_rms,
        largest=float(off.abs().max()), mean=float((off * reference.sign()).mean()), at=at,
    )  # fmt: skip


def judge(kernel: Error, plain: Error) -> str | None:
    """What is wrong with the kernel's error, in words and numbers; None: nothing. Pure."""
    largest = max(plain.largest, LARGEST_ROUNDING)
    if kernel.largest > (limit := max(largest + 1, 2 * largest)):
        where = ", ".join(map(str, kernel.at))
        return f"off by {kernel.largest:.4g} ulp at [{where}]; a plain implementation's largest allows {limit:.2f}"
    if kernel.elements < FEWEST:
        return None
    if kernel.rms > (limit := _rms_limit(plain.rms, kernel.elements)):
        return f"rms {kernel.rms:.4g} ulp over {kernel.elements} elements; a plain implementation's allows {limit:.2f}"
    if kernel.row_rms > (limit := _rms_limit(plain.row_rms, kernel.row)):
        return f"rms {kernel.row_rms:.4g} ulp in one row; a plain implementation's allows {limit:.2f}"
    chance = MEAN_SIGMAS * max(kernel.rms, ONE_ROUNDING) / math.sqrt(kernel.elements)
    if abs(kernel.mean) > (limit := abs(plain.mean) + MEAN_ULP + chance):
        return f"{kernel.mean:+.3g} ulp off on average over {kernel.elements} elements; {limit:.2f} is allowed"
    return None


def _rms_limit(plain: float, elements: int) -> float:
    return RMS_FACTOR * max(plain, ONE_ROUNDING) * (1 + RMS_CHANCE / math.sqrt(elements))


def bad_plain(plain: Error) -> str | None:
    """The plain implementation sets the tolerance, so it is held to something itself."""
    if plain.elements >= FEWEST and not plain.rms <= PLAIN_RMS:
        return f"the case's plain implementation is off by {plain.rms:.3g} ulp rms, over {PLAIN_RMS}: no tolerance"
    return None
