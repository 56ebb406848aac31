"""The headline: clean base (A) against the final stack (B), on fresh launches that no decision has seen.

Every keep was chosen because it looked good, so the product of the kept ratios overstates (the winner's curse).
Fresh launches are free of that choice: one comparison, one interval, and the claim shrinks to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from contracts import JudgeRule, Measurement, NoiseFloor, Objective, Verdict, VerdictWord
from judge import words
from judge.ratios import CannotJudge, complete, launch_pairs
from judge.service import Standing, judge_limits
from judge.speed import margin, spread

CONFIDENCE = 0.95


def confirm(
    objective: Objective,
    noise: NoiseFloor,
    measurements: Iterable[Measurement],
    rule: JudgeRule,
    claimed: float | None = None,
    confidence: float = CONFIDENCE,
) -> Verdict:
    """KEEP: the final stack is confirmed, `ratio` is the night's headline. REVERT: worse than the base, or breaks a
    limit that the base meets. INCONCLUSIVE: the night may claim nothing. VOID: fewer than 2 complete launch pairs,
    or a metric is missing.

    `claimed`: the product of the kept ratios, told beside what was confirmed. The interval is two-sided at
    `confidence` and stands outside the night's false-keep budget (a false confirmation has (1 - confidence) / 2 of
    its own).
    """
    metric = objective.metric
    try:
        pairs = complete(launch_pairs(measurements), rule.runs_per_launch)
        if len(pairs) < 2:
            raise CannotJudge(f"{words.count(len(pairs), 'complete launch pair')}; a confirmation needs 2 or more")
        ratios = [pair.log_ratios(metric) for pair in pairs]
        limits = judge_limits(pairs, objective.limits, rule)
    except CannotJudge as missing:
        return Verdict(word=VerdictWord.VOID, reason=f"not confirmed: {missing.reason}", metric=metric)
    estimate = math.fsum(math.fsum(row) / len(row) for row in ratios) / len(ratios)
    sd, df = spread(ratios, noise)
    half = margin((1 - confidence) / 2, sd, df, len(ratios))
    broken = [f.words for f in limits if f.standing in (Standing.BROKEN, Standing.WORSENED)]
    interval = words.interval(estimate, estimate - half, estimate + half, confidence)
    numbers = f"{metric} {interval}, {words.count(len(pairs), 'fresh launch pair')})"
    if broken:
        word, says = VerdictWord.REVERT, f"{numbers}, but {'; '.join(broken)}"
    elif estimate + half < 0:
        word, says = VerdictWord.REVERT, f"the final stack is worse than the clean base: {numbers}"
    elif estimate - half > 0:
        word, says = VerdictWord.KEEP, f"confirmed: {numbers}{''.join(f'; {f.words}' for f in limits)}"
    else:
        word, says = (
            VerdictWord.INCONCLUSIVE,
            f"not confirmed, the interval holds 1: {numbers}; the night claims no gain",
        )
    if claimed is not None and word is VerdictWord.KEEP:
        says += _beside(math.log(claimed), estimate, half)
    return Verdict(
        word=word,
        reason=says,
        metric=metric,
        ratio=words.ratio(estimate),
        interval=(words.ratio(estimate - half), words.ratio(estimate + half)),
        confidence=confidence,
        launch_pairs=len(pairs),
    )


def _beside(claimed: float, estimate: float, half: float) -> str:
    promised = f"; the kept changes multiply to {words.times(claimed)}"
    if claimed > estimate + half:
        return f"{promised}, more than is confirmed: the claim shrinks to {words.times(estimate)}"
    if claimed < estimate - half:
        return f"{promised}, less than is confirmed: they help each other, or something else changed"
    return f"{promised}, which agrees"
