"""From measurements to log ratios. Above 0 means that arm B is better, whatever the metric.

A run pair is one run of A and one of B with the same prompts; a launch pair is all run pairs of two fresh launches,
and its mean is the one number that the judge counts (runs within a launch share its luck, so they are not
replicates). A number that is not there is never replaced: everything here raises CannotJudge instead, saying what is
missing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from contracts import Measurement
from judge.void import pair_void_reasons


class CannotJudge(Exception):
    """The data do not hold the number that was asked for. `reason` is one line for the report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class LaunchPair:
    """Two fresh launches and their run pairs, ordered by run number."""

    number: int
    run_pairs: tuple[tuple[Measurement, Measurement], ...]  # (A, B), none of them void

    @property
    def a(self) -> tuple[Measurement, ...]:
        return tuple(a for a, _ in self.run_pairs)

    @property
    def b(self) -> tuple[Measurement, ...]:
        return tuple(b for _, b in self.run_pairs)

    def log_ratios(self, metric: str) -> tuple[float, ...]:
        """One log ratio a run pair. Raises CannotJudge when one of them is missing."""
        return tuple(pair_log_ratio(a, b, metric) for a, b in self.run_pairs)

    def log_ratio(self, metric: str) -> float:
        """The launch pair's own number: the mean of its run pairs' log ratios."""
        ratios = self.log_ratios(metric)
        return math.fsum(ratios) / len(ratios)


def better(metric: str) -> Literal["higher", "lower"]:
    """By the metric's name: a rate (`..._per_s`) is better higher, a time (`..._ms`, `..._ms_p95`, `..._s`) lower.

    Raises CannotJudge for any other name: a guess here would turn every verdict of the night around.
    """
    words = metric.split("_")
    if len(words) > 2 and words[-2:] == ["per", "s"]:
        return "higher"
    if "ms" in words[1:] or words[-1] == "s" and len(words) > 1:
        return "lower"
    raise CannotJudge(
        f"{metric}: cannot tell whether more is better; name a rate ..._per_s and a time ..._ms, ..._ms_p95 or ..._s"
    )


def value(measurement: Measurement, metric: str) -> float:
    """The metric of one run: finite and above 0, or CannotJudge."""
    where = f"run {measurement.run} of arm {measurement.arm}, launch pair {measurement.launch_pair}"
    number = measurement.metrics.get(metric)
    if number is None:
        known = ", ".join(sorted(k for k, v in measurement.metrics.items() if v is not None)) or "nothing"
        raise CannotJudge(f"{metric} was not measured in {where} (measured: {known})")
    if not math.isfinite(number) or number <= 0:
        raise CannotJudge(f"{metric} is {number:g} in {where}; only a finite number above 0 has a ratio")
    return float(number)


def pair_log_ratio(a: Measurement, b: Measurement, metric: str) -> float:
    """log(B / A), inverted for a latency, so that above 0 is better. Raises CannotJudge."""
    ratio = math.log(value(b, metric)) - math.log(value(a, metric))
    return ratio if better(metric) == "higher" else -ratio


def launch_pairs(measurements: Iterable[Measurement]) -> tuple[LaunchPair, ...]:
    """The launch pairs with their valid run pairs, by number. A void run, or a pair that the two runs together make
    void, does not count; launch pairs without a valid run pair are left out.

    The two runs of a pair carry the same launch_pair, run and prompt_seed, so a repeated pair (fresh prompts)
    replaces a void one by itself. Raises CannotJudge when one arm has two valid runs for one pair: choosing would be
    a choice of result.
    """
    arms: dict[tuple[int, int, int], dict[str, Measurement]] = defaultdict(dict)
    for m in measurements:
        if m.void_reasons:
            continue
        arm = arms[m.launch_pair, m.run, m.prompt_seed]
        if m.arm in arm:
            raise CannotJudge(
                f"arm {m.arm} has two valid runs for launch pair {m.launch_pair}, run {m.run}, prompt seed "
                f"{m.prompt_seed}; repeat a void run pair with a fresh prompt seed"
            )
        arm[m.arm] = m
    found: dict[int, list[tuple[Measurement, Measurement]]] = defaultdict(list)
    for (number, _, _), arm in sorted(arms.items()):
        if "A" in arm and "B" in arm and not pair_void_reasons(arm["A"], arm["B"]):
            found[number].append((arm["A"], arm["B"]))
    return tuple(LaunchPair(number, tuple(pairs)) for number, pairs in found.items())


def complete(pairs: Sequence[LaunchPair], runs_per_launch: int) -> tuple[LaunchPair, ...]:
    """Those of the night's design: exactly as many run pairs as every other launch pair, so that their means are
    equally noisy. A surplus run pair (a repeat that was not needed) is dropped, the latest first, whatever it
    showed."""
    return tuple(
        LaunchPair(p.number, p.run_pairs[:runs_per_launch]) for p in pairs if len(p.run_pairs) >= runs_per_launch
    )
