"""Noise for benchmarks/judge_false_keeps.py: each model makes the log speeds of two equal arms, launch by launch and
run by run.

What is measured: a CPU's runs have a coefficient of variation of 2.6 % (same server, 5 runs); a quiet H200's run
pairs have an sd of 0.75 % and its launches 0.13 % (vLLM 0.32 and 0.26, 2026-11-29). What is assumed, because nobody
measured it: the CPU's launch-to-launch sd (1 %), and every tail, drift and jump below.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Rng = np.random.Generator
Arms = tuple[np.ndarray, np.ndarray]  # log speed of A and of B, each (launch pairs, runs)
Draw = Callable[[Rng, int, int, bool, int], Arms]  # (rng, launch pairs, runs, is it the A/A?, try number from 1)


@dataclass(frozen=True)
class Model:
    name: str
    draw: Draw


@dataclass(frozen=True)
class Scale:
    launch: float  # sd of one launch, log units
    run: float  # sd of one run


CPU = Scale(launch=0.01, run=0.026)
CPU_LAUNCHES = Scale(launch=0.03, run=0.026)  # launches differ more than runs do
H200 = Scale(launch=0.0013, run=0.0075 / math.sqrt(2))


def _arms(
    rng: Rng, n: int, r: int, s: Scale, luck: Callable[[tuple[int, ...]], np.ndarray], b_scale: float = 1.0
) -> Arms:
    a = s.launch * luck((n, 1)) + s.run * luck((n, r))
    b = b_scale * (s.launch * luck((n, 1)) + s.run * luck((n, r)))
    return a, b


def normal(s: Scale) -> Draw:
    return lambda rng, n, r, aa, j: _arms(rng, n, r, s, rng.standard_normal)


def heavy(s: Scale) -> Draw:
    """Student's t with 3 degrees of freedom, scaled to the same sd."""
    return lambda rng, n, r, aa, j: _arms(rng, n, r, s, lambda shape: rng.standard_t(3, shape) / math.sqrt(3))


def spikes(s: Scale) -> Draw:
    """One launch or run in 20 is 5 times as far off."""

    def luck(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape) * np.where(rng.random(shape) < 0.05, 5.0, 1.0)

    return lambda rng, n, r, aa, j: _arms(rng, n, r, s, lambda shape: luck(rng, shape))


def drift(s: Scale) -> Draw:
    """The machine slows by 2 % a run, and wanders by 1 % a run; runs in the order ABBA, BAAB, ..."""

    def draw(rng: Rng, n: int, r: int, aa: bool, j: int) -> Arms:
        a, b = _arms(rng, n, r, s, rng.standard_normal)
        path = np.cumsum(rng.normal(-0.02, 0.01, (n, r, 2)).reshape(n, 2 * r), axis=1).reshape(n, r, 2)
        a_first = (np.arange(n)[:, None] + np.arange(r)[None, :]) % 2 == 0
        return a + np.where(a_first, path[..., 0], path[..., 1]), b + np.where(a_first, path[..., 1], path[..., 0])

    return draw


def noisier_change(s: Scale, times: float) -> Draw:
    """The changed arm is `times` as noisy as the incumbent; the A/A cannot know."""
    return lambda rng, n, r, aa, j: _arms(rng, n, r, s, rng.standard_normal, 1.0 if aa else times)


def noisier_night(s: Scale, times: float) -> Draw:
    """Everything after the A/A is `times` as noisy: somebody else came onto the machine and stayed."""

    def draw(rng: Rng, n: int, r: int, aa: bool, j: int) -> Arms:
        a, b = _arms(rng, n, r, s, rng.standard_normal)
        return (a, b) if aa else (times * a, times * b)

    return draw


def better_place(s: Scale, by: float) -> Draw:
    """Arm B's place (cores, memory) is better by `by` all night, in the A/A too."""

    def draw(rng: Rng, n: int, r: int, aa: bool, j: int) -> Arms:
        a, b = _arms(rng, n, r, s, rng.standard_normal)
        return a, b + by

    return draw


def wild_change(s: Scale, at: int, times: float) -> Draw:
    """One try of the night is `times` as noisy in its changed arm; what does that do to the tries after it?"""
    return lambda rng, n, r, aa, j: _arms(rng, n, r, s, rng.standard_normal, times if j == at and not aa else 1.0)


def resampled(path: Path) -> Draw:
    """Real launches of one engine on an H200 (`launches.csv`): two different launches of the four at random, and for
    each run one of the five prompt sets that both served. Only six different launch pairs, so rare luck cannot show
    here."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    seeds = sorted({row["prompt_seed"] for row in rows})
    launches = sorted({row["launch"] for row in rows})
    speed = {(row["launch"], row["prompt_seed"]): math.log(float(row["requests_per_s"])) for row in rows}
    table = np.array([[speed[launch, seed] for seed in seeds] for launch in launches])

    def draw(rng: Rng, n: int, r: int, aa: bool, j: int) -> Arms:
        pick = np.array([rng.choice(len(launches), 2, replace=False) for _ in range(n)])
        prompts = rng.integers(len(seeds), size=(n, r))
        return table[pick[:, :1], prompts], table[pick[:, 1:], prompts]

    return draw
