"""Service limits: what must hold while the main metric improves. Pure functions of complete launch pairs.

| incumbent | changed | finding |
| --- | --- | --- |
| any | meets | met |
| meets | meets, but is surely worse, and under the limit perhaps by noise | unsure: more launch pairs; never kept so |
| meets | misses, perhaps by noise | unsure too |
| meets | misses, surely | broken: revert, whatever the gain |
| misses | misses, surely and materially worse | worsened: revert |
| misses | misses, not so | missed by both: no reason against it |

A run's number is a percentile already; meeting a limit is judged on the median over runs. "Surely worse" = a one-sided
t test at 95 % over run pairs says that B is worse than A; a miss is sure when every launch of B has its median above
the limit besides. "Under the limit perhaps by noise" = a one-sided t test at 95 % over B's runs does not show that
their mean is under it. "Materially" = by more than the smallest gain. Run pairs share their launch's luck, so this
guard is rougher than the speed test; it errs towards not keeping.

Without the second row a night kept 12 sequences at a time at 19.8 of at most 20.7 ms, and its confirmation measured
22.9 (2 AVX-512 cores, 2026-11-30).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median, stdev

from contracts import JudgeRule, Limit
from judge.ratios import CannotJudge, LaunchPair, value
from judge.speed import margin
from judge.words import measured

WORSE_CHANCE = 0.05


class Standing(StrEnum):
    MET = "met"
    BROKEN = "broken"
    UNSURE = "unsure"
    WORSENED = "worsened"
    MISSED_BY_BOTH = "missed_by_both"


@dataclass(frozen=True)
class Finding:
    standing: Standing
    words: str


def judge_limits(pairs: Sequence[LaunchPair], limits: Sequence[Limit], rule: JudgeRule) -> tuple[Finding, ...]:
    """One finding a limit, in the objective's order. Raises CannotJudge when a limit's metric was not measured."""
    return tuple(_judge(pairs, limit, rule) for limit in limits)


def _judge(pairs: Sequence[LaunchPair], limit: Limit, rule: JudgeRule) -> Finding:
    metric, most = limit.metric, limit.at_most
    if most is None:
        raise CannotJudge(f"the limit on {metric} is relative to the baseline and not resolved (judge/objective.py)")
    a = median(value(m, metric) for p in pairs for m in p.a)
    b_launches = [[value(m, metric) for m in p.b] for p in pairs]
    b = median(x for launch in b_launches for x in launch)
    # above 0: B has more of what must stay small
    worse = [math.log(value(y, metric) / value(x, metric)) for p in pairs for x, y in p.run_pairs]
    surely_worse = len(worse) > 1 and fmean(worse) > margin(WORSE_CHANCE, stdev(worse), len(worse) - 1, len(worse))
    numbers = f"{metric} {measured('', b)} of at most {measured(metric, most)}"
    before = f"the incumbent has {measured(metric, a)}"
    if b <= most:
        if a <= most and surely_worse and not _surely_under(b_launches, most):
            return Finding(Standing.UNSURE, f"{numbers}, {before}: under the limit, but not by more than noise")
        return Finding(Standing.MET, numbers if a <= most else f"{numbers} ({before})")
    if a <= most:
        if surely_worse and all(median(launch) > most for launch in b_launches):
            return Finding(Standing.BROKEN, f"{numbers}, {before}: the change breaks this limit")
        return Finding(Standing.UNSURE, f"{numbers}, {before}: over the limit, but not by more than noise")
    if surely_worse and fmean(worse) > math.log1p(rule.smallest_gain):
        return Finding(Standing.WORSENED, f"{numbers}, {before}: missed before, and now missed by more")
    return Finding(Standing.MISSED_BY_BOTH, f"{numbers}, {before}: missed by both")


def _surely_under(launches: Sequence[Sequence[float]], most: float) -> bool:
    """Whether the mean of the runs' log ratios to the limit is below 0 at 95 %."""
    over = [math.log(x / most) for launch in launches for x in launch]
    return len(over) > 1 and fmean(over) + margin(WORSE_CHANCE, stdev(over), len(over) - 1, len(over)) <= 0
