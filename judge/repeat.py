"""Void runs: repeat, wait, or give the experiment up. The loop asks after every run pair, decide() asks again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from contracts import Frozen, JudgeRule, Measurement
from judge.ratios import CannotJudge, complete, launch_pairs
from judge.void import VOID_REPEATS, pair_void_reasons

SPARE_LAUNCH_PAIRS = 2


class Progress(Frozen):
    """How far one launch pair is. `run` is what to measure next (both arms, fresh prompts when it is a repeat)."""

    state: Literal["complete", "unfinished", "repeat", "void"]
    launch_pair: int
    run: int | None = None
    reasons: tuple[str, ...] = ()  # of the void runs


def progress(
    measurements: Iterable[Measurement], launch_pair: int, runs_per_launch: int, repeats: int = VOID_REPEATS
) -> Progress:
    """A void run pair is repeated `repeats` times (same run number, both arms, fresh prompt seed); then the
    experiment is void.

    Void once or twice is bad luck; void again is how this engine is tonight, and repeating until a run passes would
    choose by outcome. Raises CannotJudge as launch_pairs does.
    """
    mine = [m for m in measurements if m.launch_pair == launch_pair]
    valid = [p.run_pairs for p in launch_pairs(mine)]
    done = {a.run for a, _ in valid[0]} if valid else set()
    if valid and len(valid[0]) >= runs_per_launch:
        return Progress(state="complete", launch_pair=launch_pair)
    void = _void_attempts(mine)
    for run, attempts in sorted(void.items()):
        if run not in done:
            reasons = tuple(dict.fromkeys(reason for reason_list in attempts for reason in reason_list))
            state: Literal["repeat", "void"] = "void" if len(attempts) > repeats else "repeat"
            return Progress(state=state, launch_pair=launch_pair, run=run, reasons=reasons)
    missing = next((run for run in range(runs_per_launch) if run not in done), None)
    return Progress(state="unfinished", launch_pair=launch_pair, run=missing)


def spare_launch_pairs(measurements: Iterable[Measurement], rule: JudgeRule) -> int:
    """How many launch pairs to measure beyond the night's design, at its start (A/A) and at its confirmation: one for
    each that void runs have spoilt, at most SPARE_LAUNCH_PAIRS. Without a noise floor there is no night, and without
    its confirmation no gain."""
    runs = tuple(measurements)
    try:
        whole = len(complete(launch_pairs(runs), rule.runs_per_launch))
    except CannotJudge:
        return 0  # more runs would not mend it; whoever judges them says what is wrong
    return min(len({m.launch_pair for m in runs}) - whole, SPARE_LAUNCH_PAIRS)


def _void_attempts(measurements: Iterable[Measurement]) -> dict[int, list[tuple[str, ...]]]:
    """Run number -> the reasons of each void attempt. An attempt is a prompt seed; its two arms are void together."""
    attempts: dict[tuple[int, int], list[Measurement]] = {}
    for m in measurements:
        attempts.setdefault((m.run, m.prompt_seed), []).append(m)
    void: dict[int, list[tuple[str, ...]]] = {}
    alone: dict[int, dict[str, Measurement]] = {}  # valid, but no partner with the same prompts
    for (run, _), runs in sorted(attempts.items()):
        shared = set.intersection(*(set(m.void_reasons) for m in runs)) if len(runs) > 1 else set()
        reasons = tuple(r if r in shared else f"arm {m.arm}: {r}" for m in runs for r in m.void_reasons)
        good = {m.arm: m for m in runs if not m.void_reasons}
        if not reasons and len(good) == 2:
            reasons = pair_void_reasons(good["A"], good["B"])
        if reasons:
            void.setdefault(run, []).append(reasons)
        elif len(good) == 1:
            alone.setdefault(run, {}).update({m.arm: m for m in good.values()})
    for run, arms in alone.items():
        if len(arms) == 2:
            void.setdefault(run, []).append(pair_void_reasons(arms["A"], arms["B"]))
    return void
