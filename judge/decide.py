"""Keep, revert, inconclusive, void, or measure more: asked after each launch pair, answered in words and numbers.

The order of the questions: are the runs worth anything (void)? does the change break a service limit? is it faster?
Correctness was judged before, by the accuracy gate; a change that is fast and wrong never gets here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contracts import Frozen, JudgeRule, Measurement, NoiseFloor, Objective, Verdict, VerdictWord
from judge import words
from judge.ratios import CannotJudge, LaunchPair, complete, launch_pairs
from judge.repeat import progress
from judge.service import Finding, Standing, judge_limits
from judge.speed import Call, Speed, judge_speed
from judge.void import VOID_REPEATS


class NeedMore(Frozen):
    """No verdict yet. `repeat`: (launch pair, run) of a void run pair to measure again with fresh prompts, in its
    own launch pair or by a fresh one; None: the next launch pair."""

    reason: str
    repeat: tuple[int, int] | None = None


def decide(
    objective: Objective,
    noise: NoiseFloor,
    measurements: Iterable[Measurement],
    rule: JudgeRule,
    alpha: float,
    bound: float | None,
) -> Verdict | NeedMore:
    """The verdict on one experiment, from all its runs so far.

    noise: of the objective's metric (noise.py). alpha: what this experiment may spend (spending.alpha_for_try).
    bound: the largest gain that is believed (a ratio; Amdahl), or None. Call it once after each launch pair; launch
    pairs beyond rule.max_launch_pairs are not looked at.
    Raises ValueError when noise belongs to another metric: that is a mistake of the caller, not a fact about the
    night.
    """
    if noise.metric != objective.metric:
        raise ValueError(f"the noise floor is of {noise.metric}, the objective of {objective.metric}")
    runs = tuple(measurements)
    try:
        pairs = complete(launch_pairs(runs), rule.runs_per_launch)[: max(rule.max_launch_pairs, rule.min_launch_pairs)]
        if (waiting := _incomplete(runs, pairs, rule, alpha, objective.metric)) is not None:
            return waiting
        ratios = [pair.log_ratios(objective.metric) for pair in pairs]
        limits = judge_limits(pairs, objective.limits, rule)
    except CannotJudge as missing:
        return Verdict(
            word=VerdictWord.VOID, reason=f"cannot judge: {missing.reason}", metric=objective.metric, alpha_spent=alpha
        )
    speed = judge_speed(ratios, noise, rule, alpha, bound)
    answer = _weigh(speed, limits, rule, bound)
    if answer is None:
        so_far, have = _so_far(speed, objective.metric, rule), words.count(len(pairs), "launch pair")
        return NeedMore(reason=f"{so_far}: not decided after {have} of {rule.max_launch_pairs}")
    word, because = answer
    return Verdict(
        word=word,
        reason=f"{_so_far(speed, objective.metric, rule)}{because}",
        metric=objective.metric,
        ratio=words.ratio(speed.estimate),
        interval=(words.ratio(speed.lower), words.ratio(speed.upper)),
        confidence=1 - 2 * speed.chance,
        launch_pairs=speed.launch_pairs,
        alpha_spent=alpha,
    )


def _incomplete(
    runs: Sequence[Measurement], pairs: Sequence[LaunchPair], rule: JudgeRule, alpha: float, metric: str
) -> Verdict | NeedMore | None:
    """VOID after too many void runs, NeedMore when the latest launch pair is not complete, else None: look at the
    pairs.

    A run is repeated VOID_REPEATS times, in its launch pair or (where its engine is gone) by a fresh launch pair. An
    older unfinished launch pair without void runs was lost with the loop (kill -9) and counts neither way.
    """
    begun = sorted({m.launch_pair for m in runs})
    if not begun:
        return NeedMore(reason="nothing is measured yet")
    states = [progress(runs, number, rule.runs_per_launch) for number in begun]
    bad = [s for s in states if s.state in ("repeat", "void")]
    if any(s.state == "void" for s in bad) or len(bad) > VOID_REPEATS:
        told = "; ".join(f"launch pair {s.launch_pair}, run {s.run}: {', '.join(s.reasons)}" for s in bad)
        # Looks that were taken have spent their chance, whatever became of the rest.
        spent = alpha if len(pairs) >= rule.min_launch_pairs else 0.0
        reason = f"void, and void again whenever repeated: {told}"
        return Verdict(word=VerdictWord.VOID, reason=reason, metric=metric, launch_pairs=len(pairs), alpha_spent=spent)
    last = states[-1]
    if last.state == "repeat" and last.run is not None:
        reason = f"launch pair {last.launch_pair}, run {last.run} was void ({', '.join(last.reasons)}): repeat it"
        return NeedMore(reason=reason, repeat=(last.launch_pair, last.run))
    if last.state == "unfinished":
        all_of = words.count(rule.runs_per_launch, "run pair")
        return NeedMore(reason=f"launch pair {last.launch_pair} does not have all of its {all_of} yet")
    return None


def _weigh(
    speed: Speed, limits: Sequence[Finding], rule: JudgeRule, bound: float | None
) -> tuple[VerdictWord, str] | None:
    """The word and the end of its sentence, or None for more launch pairs."""
    worth = words.percent(rule.smallest_gain)
    held = "".join(f"; {f.words}" for f in limits)
    enough = speed.launch_pairs >= rule.min_launch_pairs
    broken = [f.words for f in limits if f.standing in (Standing.BROKEN, Standing.WORSENED)]
    unsure = [f.words for f in limits if f.standing is Standing.UNSURE]
    if broken and enough:
        return VerdictWord.REVERT, f", but {'; '.join(broken)}"
    match speed.call:
        case Call.KEEP if unsure:
            last = speed.launch_pairs >= rule.max_launch_pairs
            return (VerdictWord.INCONCLUSIVE, f", but {'; '.join(unsure)}") if last else None
        case Call.KEEP:
            return VerdictWord.KEEP, f", above the smallest gain of {worth}{held}"
        case Call.SUSPECT:
            return VerdictWord.INCONCLUSIVE, (
                f": suspect, not great: more than the {words.number(bound or 0)}x that its share of the time allows "
                f"(Amdahl), so something else changed or was mismeasured{held}"
            )
        case Call.LOSER:
            return VerdictWord.REVERT, f": worse than the incumbent{held}"
        case Call.TOO_SMALL:
            return VerdictWord.REVERT, f": less than the smallest gain of {worth}{held}"
        case Call.HOPELESS:
            return VerdictWord.INCONCLUSIVE, (
                f": stopped early, {words.count(rule.max_launch_pairs, 'launch pair')} could show no gain below "
                f"{words.times(speed.detectable)} at this noise and alpha{held}"
            )
        case Call.UNDECIDED:
            shown = (
                f"{words.count(speed.launch_pairs, 'launch pair')} can show a gain from {words.times(speed.detectable)}"
            )
            return VerdictWord.INCONCLUSIVE, f": neither shown to help nor shown not to; {shown}{held}"
        case Call.MORE:
            return None


def _so_far(speed: Speed, metric: str, rule: JudgeRule) -> str:
    n = speed.launch_pairs
    interval = words.interval(speed.estimate, speed.lower, speed.upper, 1 - 2 * speed.chance)
    rests_on = f"{words.count(n, 'launch pair')}, {words.count(n * rule.runs_per_launch, 'run pair')}"
    return f"{metric} {interval}, {rests_on})"
