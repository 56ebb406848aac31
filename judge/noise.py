"""How much two equal engines differ tonight, from A/A launch pairs and from every experiment after them.

Model: the log ratio of a launch pair is gain + launch luck + the mean of its run pairs' luck. In an A/A the gain is
0 by construction, so m launch pairs give m degrees of freedom, not m - 1. Two or three launch pairs are very few: by
chance alone their sd is below half of the truth in 1 night of 4.5 (m = 2: P(chi2_2 / 2 < 1/4) = 0.22). Three things
stand against that: the t quantile of those few degrees of freedom (speed.py), the floor from the spread of runs
(below), and learning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.special import fdtri, stdtr

from contracts import JudgeRule, Measurement, NoiseFloor
from judge.ratios import CannotJudge, LaunchPair, better, complete, launch_pairs

# A warning is not a verdict: 1 % a check, so that a quiet night has none.
WARN_CHANCE = 0.01
# learn(): the most that one experiment may add, as a quantile of F. Without it one change with a wild arm (thread
# binding on a CPU: facts in docs/judge.md) hides every later gain of the night.
WILD_CHANCE = 0.01


def noise_floor(measurements: Iterable[Measurement], metric: str, rule: JudgeRule) -> NoiseFloor:
    """The noise floor of `metric` from the A/A runs (arms A and B equal, the experiments' own design).

    Raises CannotJudge with fewer than 2 complete launch pairs, when the metric is missing, or when all runs are
    equal.
    """
    pairs = complete(launch_pairs(measurements), rule.runs_per_launch)
    if len(pairs) < 2:
        raise CannotJudge(
            f"{len(pairs)} complete A/A launch pairs of {rule.runs_per_launch} valid run pairs; the noise floor needs 2"
        )
    return floor_from_ratios(metric, [p.log_ratios(metric) for p in pairs], _resolution(pairs, metric))


def floor_from_ratios(metric: str, ratios: Sequence[Sequence[float]], resolution: float = 0.0) -> NoiseFloor:
    """`ratios`: A/A log ratios, one row a launch pair, all rows equally long (runs_per_launch).

    launch_sd is the largest of
    - the root mean square of the launch-pair means (their known mean is 0);
    - run_sd / sqrt(runs): a mean of runs cannot be less noisy than its runs. Other degrees of freedom of the same
      data, so it catches two launch pairs that agreed by luck; in simulated null nights without it, false keeps were
      2.5 times as many;
    - `resolution`, the finest step that a run can show.
    """
    table = np.asarray(ratios, dtype=float)
    launches, runs = table.shape
    launch_sd = math.sqrt(float(np.mean(table.mean(axis=1) ** 2)))
    run_sd = math.sqrt(float(np.mean(table.var(axis=1, ddof=1)))) if runs > 1 else None
    launch_sd = max(launch_sd, (run_sd or 0.0) / math.sqrt(runs), resolution)
    if launch_sd == 0:
        raise CannotJudge(
            f"{metric} is the same to the last digit in all {2 * table.size} A/A runs: that is not a measurement"
        )
    return NoiseFloor(
        metric=metric, launch_sd=launch_sd, launch_df=launches, run_sd=run_sd, pairs=tuple(float(x) for x in table.flat)
    )


def learn(noise: NoiseFloor, measurements: Iterable[Measurement], rule: JudgeRule) -> NoiseFloor:
    """The floor after one more judged experiment: its launch pairs' spread about their own mean adds degrees of
    freedom.

    Only the first `min_launch_pairs` count: these are measured whatever the judge says, so that stopping early
    cannot choose which spreads are learnt. Call it after the verdict, never before (the experiment's own spread is
    in its test already). An experiment with too few launch pairs (crashed, void, a clear loser) teaches nothing and
    returns `noise` as it is.
    """
    try:
        pairs = complete(launch_pairs(measurements), rule.runs_per_launch)[: rule.min_launch_pairs]
        means = [p.log_ratio(noise.metric) for p in pairs]
    except CannotJudge:
        return noise
    return learn_from_means(noise, means) if len(means) == rule.min_launch_pairs else noise


def learn_from_means(noise: NoiseFloor, means: Sequence[float]) -> NoiseFloor:
    """Pool the variance of `means` (one a launch pair) into the floor, at most F's 99 % quantile times the floor's
    own."""
    df = len(means) - 1
    own = float(np.var(means, ddof=1))
    pooled = noise.launch_sd**2
    own = min(own, pooled * float(fdtri(df, noise.launch_df, 1 - WILD_CHANCE)))
    total = noise.launch_df + df
    learnt = math.sqrt((noise.launch_df * pooled + df * own) / total)
    return noise.model_copy(update={"launch_sd": learnt, "launch_df": total})


def noise_warnings(measurements: Iterable[Measurement], metric: str, rule: JudgeRule) -> tuple[str, ...]:
    """What an A/A must not show: one arm better than the other, or the second run of a pair better than the first.

    t tests over run pairs at 1 %, two-sided. Runs of one launch share its luck, so an arm warning can also mean that
    launches differ more than runs do; both are reasons to look before trusting small gains. Raises CannotJudge as
    noise_floor does.
    """
    pairs = complete(launch_pairs(measurements), rule.runs_per_launch)
    warnings = []
    arm = [x for p in pairs for x in p.log_ratios(metric)]
    if (mean := _shifted(arm)) is not None:
        who = "B" if mean > 0 else "A"
        warnings.append(
            f"A/A is not level: arm {who} was better by {math.expm1(abs(mean)):.2%} in {metric} ({len(arm)} run pairs, "
            f"{len(pairs)} launch pairs); either the arms are not equal (placement, memory, what else runs), or "
            "launches differ by more than runs do"
        )
    order = [
        x if first else -x
        for p in pairs
        for (a, b), x in zip(p.run_pairs, p.log_ratios(metric), strict=True)
        if (first := _a_first(a, b)) is not None
    ]
    if (mean := _shifted(order)) is not None:
        which = "second" if mean > 0 else "first"
        warnings.append(
            f"the order matters: the {which} run of a pair was better by {math.expm1(abs(mean)):.2%} in {metric}; "
            "ABBA cancels it over two run pairs, one run pair alone does not"
        )
    return tuple(warnings)


def _shifted(values: Sequence[float]) -> float | None:
    """The mean when a two-sided t test at WARN_CHANCE says that it is not 0."""
    if len(values) < 3 or not (sd := float(np.std(values, ddof=1))):
        return None
    mean = float(np.mean(values))
    t = abs(mean) / (sd / math.sqrt(len(values)))
    return mean if 2 * float(stdtr(len(values) - 1, -t)) < WARN_CHANCE else None


def _a_first(a: Measurement, b: Measurement) -> bool | None:
    """By the clock (condition started_at, seconds); None where it was not recorded."""
    at_a, at_b = a.conditions.get("started_at"), b.conditions.get("started_at")
    if isinstance(at_a, (int, float)) and isinstance(at_b, (int, float)):
        return at_a < at_b
    return None


def _resolution(pairs: Sequence[LaunchPair], metric: str) -> float:
    """The finest sd that a launch-pair mean of a rate can have. A run ends with an engine step, so its window is
    right to within one step: uniform, sd = step / (sqrt(12) window); two arms: times sqrt(2); the mean of r runs: /
    sqrt(r). 0 for a latency, and where the step (tpot_ms_p50) was not measured: no step is then known, and none is
    made up.
    """
    if better(metric) != "higher":
        return 0.0
    steps = [
        tpot / 1000 / m.window_s
        for p in pairs
        for m in (*p.a, *p.b)
        if (tpot := m.metrics.get("tpot_ms_p50")) and m.window_s > 0
    ]
    return float(np.median(steps)) / math.sqrt(12) * math.sqrt(2 / len(pairs[0].run_pairs)) if steps else 0.0
