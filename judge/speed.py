"""Faster or not: the sequential test on log ratios. Plain numbers in, one call out; decide.py gives it words.

Statistic. n launch pairs have means x_1..x_n of their run pairs, with mean m. The floor has sd s0 on f degrees of
freedom. Pooled variance v = (f s0^2 + sum (x_i - m)^2) / (f + n - 1). With equal noise in A/A and experiments,
(m - true gain) / sqrt(v / n) has Student's t distribution with f + n - 1 degrees of freedom, exactly, for normal noise.
Three things only ever widen it. A changed engine may be noisier than the A/A, so v is never below what the experiment
itself shows: the variance of its launch pairs, and that of its run pairs within launches over their number. And one arm
may have the better place all night, which no spread about an experiment's own mean can show: the sd is never below the
A/A's mean.

Keep: H0 is "true gain <= 0". Kept when the lower limit is above 0 AND the estimate is at least the smallest gain. A
false keep is thus one that does not help at all, and that is what the night bounds. The smallest gain says what is
worth having, not what is true; H0 "true gain <= smallest gain" would let a 3 % gain through only as surely as a 1 %
gain today. A gain between 0 and the smallest can be kept by a lucky estimate; it is then small, not false.

Looks. After each of min..max launch pairs the experiment may be kept; K = max - min + 1 looks share its alpha
equally (Bonferroni): loose for looks that are this correlated, and it needs no assumption about how they are.

Revert needs no budget (it cannot be a false keep): one-sided 95 % that the gain is below the smallest, or 99 % that
it is below 0 while there are fewer launch pairs than the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import stdtrit

from contracts import JudgeRule, NoiseFloor

REVERT_CHANCE = 0.05  # a change worth exactly the smallest gain is given up about this often, at each look
EARLY_REVERT_CHANCE = 0.01  # on one launch pair, where only the floor says how far it may be off


class Call(StrEnum):
    KEEP = "keep"
    SUSPECT = "suspect"  # better than its bound allows
    LOSER = "loser"  # worse than the incumbent
    TOO_SMALL = "too_small"  # not worth the smallest gain
    HOPELESS = "hopeless"  # cannot be shown with the launch pairs that are left
    UNDECIDED = "undecided"  # all launch pairs used
    MORE = "more"


@dataclass(frozen=True)
class Speed:
    """Everything in log ratios. lower and upper are one-sided limits at `chance` each: together an interval of 1 - 2
    chance."""

    call: Call
    launch_pairs: int
    estimate: float
    lower: float
    upper: float
    chance: float
    detectable: float  # the least estimate that would have been kept after max_launch_pairs, at this noise


def looks(rule: JudgeRule) -> int:
    return max(rule.max_launch_pairs - rule.min_launch_pairs, 0) + 1


def spread(ratios: Sequence[Sequence[float]], noise: NoiseFloor) -> tuple[float, int]:
    """(sd of one launch pair's mean, degrees of freedom) from the run pairs' log ratios, one row a launch pair."""
    table = np.asarray(ratios, dtype=float)
    n, runs = table.shape
    between = float(table.mean(axis=1).var(ddof=1)) if n > 1 else 0.0
    within = float(table.var(axis=1, ddof=1).mean()) / runs if runs > 1 else 0.0
    df = noise.launch_df + n - 1
    pooled = (noise.launch_df * noise.launch_sd**2 + (n - 1) * between) / df
    off_level = math.fsum(noise.pairs) / len(noise.pairs) if noise.pairs else 0.0
    return math.sqrt(max(pooled, between, within, off_level**2)), df


def margin(chance: float, sd: float, df: int, n: int) -> float:
    """Half-width: Student's t quantile for a one-sided `chance` times the standard error of n launch pairs."""
    return -float(stdtrit(df, chance)) * sd / math.sqrt(n)


def judge_speed(
    ratios: Sequence[Sequence[float]], noise: NoiseFloor, rule: JudgeRule, alpha: float, bound: float | None
) -> Speed:
    """What n >= 1 launch pairs say: `ratios` has one row of run-pair log ratios for each. `alpha` is what this whole
    experiment may spend (spending.py), `bound` the largest ratio that is believed. Meant to be called once for each n:
    again on other data of the same n is one more look.
    """
    n = len(ratios)
    last = max(rule.max_launch_pairs, rule.min_launch_pairs)
    share = alpha / looks(rule)
    worth = math.log1p(rule.smallest_gain)
    estimate = math.fsum(math.fsum(row) / len(row) for row in ratios) / n
    sd, df = spread(ratios, noise)
    detectable = max(margin(share, sd, noise.launch_df + last - 1, last), worth)

    def said(call: Call, chance: float = share) -> Speed:
        half = margin(chance, sd, df, n)
        return Speed(call, n, estimate, estimate - half, estimate + half, chance, detectable)

    if n < rule.min_launch_pairs:
        loser = estimate + margin(EARLY_REVERT_CHANCE, sd, df, n) < 0
        return said(Call.LOSER, EARLY_REVERT_CHANCE) if loser else said(Call.MORE)
    if estimate >= worth and estimate - margin(share, sd, df, n) > 0:
        surely_above = bound is not None and estimate - margin(REVERT_CHANCE, sd, df, n) > math.log(max(bound, 1e-9))
        return said(Call.SUSPECT) if surely_above else said(Call.KEEP)
    likely_most = estimate + margin(REVERT_CHANCE, sd, df, n)
    if likely_most < 0:
        return said(Call.LOSER, REVERT_CHANCE)
    if likely_most < worth:
        return said(Call.TOO_SMALL, REVERT_CHANCE)
    if n >= last:
        return said(Call.UNDECIDED)
    if likely_most < detectable:
        return said(Call.HOPELESS)
    return said(Call.MORE)
