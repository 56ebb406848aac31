"""What is measured on a drift comparison: sizes, and trends that rounding does not have. Pure functions of data.

Rounding has a size and no direction. Three trends are estimated over all texts, each with a standard error from the
differences between texts, because a text is the unit that repeats (positions of one text are not independent):

    likelihood  mean change of the log-probability of the text's own tokens (nats a token)
    sharpness   slope of move on level: at 0.01 the candidate's logits lie 1 % farther apart than the reference's
    growth      slope of ln(rms move at a position) on the position, a 100 tokens: at 0.1 the moves grow by 10 %
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accuracy_gate.drift_compare import DriftComparison, Floats

STRETCH = 32  # positions


@dataclass(frozen=True)
class Estimate:
    """`value` with its standard error; `error` is None with fewer than two texts."""

    value: float
    error: float | None


def size(comparison: DriftComparison) -> float:
    """rms of the moves (nats) at the positions at which anything moved; 0 where nothing did.

    A change may leave some positions bit-equal and not others (the first chunk of a chunked prefill): they would only
    make a fault in the rest look small.
    """
    squares = np.concatenate([text.sizes for text in comparison.texts] or [np.empty(0)]) ** 2
    moved = squares[squares > 0]
    return float(np.sqrt(moved.mean())) if len(moved) else 0.0


def largest(comparison: DriftComparison) -> tuple[float, str]:
    """The largest move (nats, unsigned) and where it was."""
    found = (0.0, "")
    for text in comparison.texts:
        if len(text.move):
            at = int(np.argmax(np.abs(text.move)))
            found = max(found, (abs(float(text.move[at])), f"{text.text_id}, token {int(text.where[at]) + 1}"))
    return found


def worst_stretch(comparison: DriftComparison) -> tuple[float, str]:
    """The largest rms of the moves over STRETCH positions in a row (nats) and where it begins; stretches start every
    half of one. Shorter texts are one stretch."""
    found = (0.0, "")
    for text in comparison.texts:
        squares = text.sizes**2
        length = min(STRETCH, len(squares))
        for start in range(0, max(1, len(squares) - length + 1), STRETCH // 2):
            part = squares[start : start + length]
            if len(part):
                found = max(found, (float(np.sqrt(part.mean())), f"{text.text_id} from token {start + 1} on"))
    return found


def trends(comparison: DriftComparison) -> dict[str, Estimate]:
    return {
        "likelihood": likelihood(comparison),
        "sharpness": sharpness(comparison),
        "growth": growth(comparison),
    }


def likelihood(comparison: DriftComparison) -> Estimate:
    return _ratio([(float(text.change.sum()), float(len(text.change))) for text in comparison.texts])


def sharpness(comparison: DriftComparison) -> Estimate:
    return _ratio([(float(text.move @ text.level), float(text.level @ text.level)) for text in comparison.texts])


def growth(comparison: DriftComparison) -> Estimate:
    """Positions at which nothing moved are left out: they have no logarithm, and say nothing of the others' size."""
    return _ratio([_growth(text.sizes) for text in comparison.texts])


def farther(unchanged: DriftComparison, candidate: DriftComparison) -> dict[str, Estimate]:
    """How much farther from exact the candidate is. Both comparisons are with float32, of the same texts:

        excess         rms of the candidate's moves over rms of the unchanged engine's; 1: as far
        excess_growth  slope of the logarithm of that ratio, position by position, a 100 tokens
    Paired, so that text that is hard to compute exactly weighs alike on both sides.
    """
    own = {text.text_id: text.sizes for text in unchanged.texts}
    pairs = [(text.sizes, own[text.text_id]) for text in candidate.texts]
    squares = _ratio([(float(theirs @ theirs), float(mine @ mine)) for theirs, mine in pairs])
    root = float(np.sqrt(squares.value))
    error = squares.error / (2 * root) if squares.error is not None and root else None
    return {
        "excess": Estimate(root, error),
        "excess_growth": _ratio([_growth(theirs, mine) for theirs, mine in pairs]),
    }


def _growth(sizes: Floats, over: Floats | None = None) -> tuple[float, float]:
    """Numerator and denominator of the slope of ln(sizes / over) on the position in hundreds, within one text."""
    over = np.ones_like(sizes) if over is None else over
    moved = np.nonzero((sizes > 0) & (over > 0))[0]
    if len(moved) < 2:
        return 0.0, 0.0
    hundreds = moved / 100 - moved.mean() / 100
    return float(hundreds @ np.log(sizes[moved] / over[moved])), float(hundreds @ hundreds)


def _ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """sum(above) / sum(below) over texts, with the usual linearised standard error of a ratio of sums:
    sqrt(n / (n - 1) * sum((above - value * below)^2)) / sum(below)."""
    above, below = (np.array(column) for column in zip(*pairs, strict=True)) if pairs else (np.empty(0), np.empty(0))
    if not below.sum():
        return Estimate(0.0, None)
    value = float(above.sum() / below.sum())
    if len(pairs) < 2:
        return Estimate(value, None)
    residual = above - value * below
    return Estimate(value, float(np.sqrt(len(pairs) / (len(pairs) - 1) * (residual @ residual)) / below.sum()))
