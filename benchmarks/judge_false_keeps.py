"""How often does a night of changes that do nothing keep one, and what gains does the judge see? Beside four naive
rules.

    python -m benchmarks.judge_false_keeps [--nights 2000] [--data ../shared/data/h200_twin/launches.csv]

Whole nights through the judge's own functions, on made-up and on resampled real noise (judge_noise_models.py).
Results are kept in docs/judge.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import stdtrit
from scipy.stats import binomtest

from benchmarks import judge_noise_models as noise_models
from benchmarks.judge_noise_models import CPU, CPU_LAUNCHES, H200, Model
from contracts import JudgeRule, NoiseFloor
from judge.confirm import CONFIDENCE
from judge.noise import floor_from_ratios, learn_from_means
from judge.speed import Call, judge_speed, margin, spread
from judge.spending import alpha_for_try

RULE = JudgeRule()  # 0.05 a night, smallest gain 2 %, 2 to 4 launch pairs of 2 run pairs, 2 A/A launch pairs, 20 tries
METRIC = "output_tokens_per_s"


@dataclass
class Night:
    """What one simulated night did, by try."""

    kept: list[bool] = field(default_factory=list)
    launch_pairs: list[int] = field(default_factory=list)
    naive: dict[str, bool] = field(default_factory=dict)  # rule -> did it keep anything?
    aa_sd: float = 0.0  # the noise floor's launch_sd, as the A/A gave it


def single_run(a: np.ndarray, b: np.ndarray) -> bool:
    """One run each, faster is kept."""
    return bool(b[0, 0] > a[0, 0])


def best_of_runs(a: np.ndarray, b: np.ndarray) -> bool:
    """The best of 4 runs each, over two launches; faster is kept."""
    return bool(b[:2].max() > a[:2].max())


def three_percent(a: np.ndarray, b: np.ndarray) -> bool:
    """One run pair, kept when it is over 3 % better."""
    return bool(b[0, 0] - a[0, 0] > math.log(1.03))


def plain_t_test(a: np.ndarray, b: np.ndarray) -> bool:
    """Paired, one-sided 5 %, over the 4 run pairs of two launch pairs, each try for itself."""
    d = (b - a)[:2].ravel()
    return bool(d.mean() > -stdtrit(d.size - 1, 0.05) * d.std(ddof=1) / math.sqrt(d.size))


NAIVE: dict[str, Callable[[np.ndarray, np.ndarray], bool]] = {
    "one run": single_run,
    "best of 4": best_of_runs,
    "one pair > 3 %": three_percent,
    "t test, 5 % a try": plain_t_test,
}


def run_night(
    rng: np.random.Generator, model: Model, gain: float, rule: JudgeRule, learning: bool, naive: bool
) -> Night:
    """One night in which every change is worth `gain` (log ratio); a keep leaves the incumbent as it is."""
    runs = rule.runs_per_launch
    a, b = model.draw(rng, rule.aa_launch_pairs, runs, True, 0)
    floor = floor_from_ratios(METRIC, (b - a).tolist())
    night = Night(naive=dict.fromkeys(NAIVE, False) if naive else {}, aa_sd=floor.launch_sd)
    for j in range(1, rule.max_tries + 1):
        a, b = model.draw(rng, rule.max_launch_pairs, runs, False, j)
        b = b + gain
        ratios = (b - a).tolist()
        kept, used = one_try(ratios, floor, rule, alpha_for_try(rule.false_keep_chance, j))
        night.kept.append(kept)
        night.launch_pairs.append(used)
        if learning and used >= rule.min_launch_pairs:
            floor = learn_from_means(floor, (b - a)[: rule.min_launch_pairs].mean(axis=1).tolist())
        for name in night.naive:
            night.naive[name] = night.naive[name] or NAIVE[name](a, b)
    return night


def one_try(ratios: Sequence[Sequence[float]], floor: NoiseFloor, rule: JudgeRule, alpha: float) -> tuple[bool, int]:
    """(kept?, launch pairs used), as decide() goes: one look after each launch pair."""
    for n in range(1, rule.max_launch_pairs + 1):
        call = judge_speed(ratios[:n], floor, rule, alpha, None).call
        if call is not Call.MORE:
            return call is Call.KEEP, n
    raise AssertionError("the last look always decides")


def false_keep_table(models: Sequence[Model], nights: int, seed: int, console: Console) -> Table:
    title = (
        f"Chance of a false keep in a night of {RULE.max_tries} null changes, promised 5 % at most ({nights} nights)"
    )
    table = Table(box=box.SIMPLE, title=title)
    for heading in ("noise", "judge", "95 % interval", "launch pairs/try", "no learning", *NAIVE):
        table.add_column(heading, justify="left" if heading == "noise" else "right")
    for model in track(models, "null nights", console=console):
        rng = np.random.default_rng(seed)
        done = [run_night(rng, model, 0.0, RULE, True, True) for _ in range(nights)]
        still = [run_night(rng, model, 0.0, RULE, False, False) for _ in range(nights // 2)]
        bad = sum(any(night.kept) for night in done)
        low, high = binomtest(bad, nights).proportion_ci(0.95)
        pairs = np.mean([night.launch_pairs for night in done])
        naive = [f"{np.mean([night.naive[name] for night in done]):.1%}" for name in NAIVE]
        frozen = np.mean([any(night.kept) for night in still])
        table.add_row(
            model.name, f"{bad / nights:.2%}", f"{low:.2%} to {high:.2%}", f"{pairs:.2f}", f"{frozen:.2%}", *naive
        )
    return table


def unlucky_table(nights: int, seed: int) -> Table:
    """The promise is over nights, A/A luck included. What does it look like in the nights whose A/A was
    misleading?"""
    table = Table(box=box.SIMPLE, title="The same, by what the A/A happened to say (CPU, launches 3 %)")
    for heading in ("A/A sd over the true sd", "share of nights", "chance of a false keep"):
        table.add_column(heading, justify="right")
    model = Model("", noise_models.normal(CPU_LAUNCHES))
    truth = math.sqrt(2 * CPU_LAUNCHES.launch**2 + 2 * CPU_LAUNCHES.run**2 / RULE.runs_per_launch)
    rng = np.random.default_rng(seed)
    done = [run_night(rng, model, 0.0, RULE, True, False) for _ in range(nights)]
    for low, high in ((0.0, 0.5), (0.5, 0.75), (0.75, 1.0), (1.0, 1.5), (1.5, 9.0)):
        some = [night for night in done if low <= night.aa_sd / truth < high]
        share = f"{np.mean([any(night.kept) for night in some]):.2%} of {len(some)}" if some else "-"
        table.add_row(f"{low:g} to {high:g}", f"{len(some) / nights:.1%}", share)
    return table


def power_table(models: Sequence[Model], nights: int, seed: int, console: Console) -> Table:
    table = Table(
        box=box.SIMPLE, title=f"Chance that a real gain is kept, by the try it comes at ({nights} nights each)"
    )
    tries = (1, 2, 5, 10, 20)
    for heading in ("noise", "gain", *(f"try {j}" for j in tries), "launch pairs/try", "try 10, no learning"):
        table.add_column(heading, justify="left" if heading == "noise" else "right")
    for model in track(models, "gains", console=console):
        for gain in (0.02, 0.05, 0.10, 0.50):
            rng = np.random.default_rng(seed)
            done = [run_night(rng, model, math.log1p(gain), RULE, True, False) for _ in range(nights)]
            still = [run_night(rng, model, math.log1p(gain), RULE, False, False) for _ in range(nights)]
            kept = np.mean([night.kept for night in done], axis=0)
            pairs = np.mean([night.launch_pairs for night in done])
            frozen = np.mean([night.kept[9] for night in still])
            table.add_row(
                model.name, f"{gain:.0%}", *(f"{kept[j - 1]:.0%}" for j in tries), f"{pairs:.2f}", f"{frozen:.0%}"
            )
    return table


def confirm_table(models: Sequence[Model], nights: int, seed: int) -> Table:
    """Does the headline's interval hold the truth? After 10 tries, the configured number of fresh launch pairs."""
    table = Table(
        box=box.SIMPLE,
        title=f"Confirmation: how often its {CONFIDENCE:.0%} interval misses a true 1.5x ({nights} nights)",
    )
    for heading in ("noise", "missed", "median width"):
        table.add_column(heading, justify="left" if heading == "noise" else "right")
    truth, n, runs = math.log(1.5), RULE.confirm_launch_pairs, RULE.runs_per_launch
    for model in models:
        rng = np.random.default_rng(seed)
        missed, widths = 0, []
        for _ in range(nights):
            a, b = model.draw(rng, RULE.aa_launch_pairs, runs, True, 0)
            floor = floor_from_ratios(METRIC, (b - a).tolist())
            for j in range(1, 11):
                a, b = model.draw(rng, RULE.min_launch_pairs, runs, False, j)
                floor = learn_from_means(floor, (b - a).mean(axis=1).tolist())
            a, b = model.draw(rng, n, runs, False, 11)
            ratios = (b - a + truth).tolist()
            half = margin((1 - CONFIDENCE) / 2, *spread(ratios, floor), n)
            missed += abs(float(np.mean(ratios)) - truth) > half
            widths.append(math.expm1(2 * half))
        table.add_row(model.name, f"{missed / nights:.1%}", f"{np.median(widths):.1%}")
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nights", type=int, default=2000)
    options.add_argument("--seed", type=int, default=20261129)
    options.add_argument("--data", type=Path, default=Path("../shared/data/h200_twin/launches.csv"))
    chosen = options.parse_args()
    m = noise_models
    models = [
        Model("CPU, normal", m.normal(CPU)),
        Model("CPU, launches 3 %", m.normal(CPU_LAUNCHES)),
        Model("CPU, heavy tails", m.heavy(CPU)),
        Model("CPU, 1 in 20 is x 5", m.spikes(CPU)),
        Model("CPU, drifting 2 % a run", m.drift(CPU)),
        Model("CPU, B's noise x 2", m.noisier_change(CPU, 2.0)),
        Model("CPU, B's noise x 4", m.noisier_change(CPU, 4.0)),
        Model("CPU, noise x 2 after A/A", m.noisier_night(CPU, 2.0)),
        Model("CPU launches 3 %, x 2 after A/A", m.noisier_night(CPU_LAUNCHES, 2.0)),
        Model("CPU, try 3 wild (x 10)", m.wild_change(CPU, 3, 10.0)),
        Model("CPU launches 3 %, try 3 wild (x 10)", m.wild_change(CPU_LAUNCHES, 3, 10.0)),
        Model("CPU, B placed 1 % better", m.better_place(CPU, 0.01)),
        Model("H200, normal", m.normal(H200)),
        Model("H200, heavy tails", m.heavy(H200)),
        Model("H200, B placed 1 % better", m.better_place(H200, 0.01)),
        Model("H200, B placed 3 % better", m.better_place(H200, 0.03)),
    ]
    real = [Model("H200, real launches resampled", m.resampled(chosen.data))] if chosen.data.exists() else []
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not real:
        console.print(f"[yellow]{chosen.data} is not there: the resampled rows are left out (--data PATH)")
    console.print(false_keep_table([*models, *real], chosen.nights, chosen.seed, console))
    console.print(confirm_table([*models, *real], chosen.nights, chosen.seed))
    console.print(unlucky_table(2 * chosen.nights, chosen.seed))
    power = [
        models[0],
        models[1],
        Model("CPU, try 3 wild (x 10)", m.wild_change(CPU, 3, 10.0)),
        Model("H200, normal", m.normal(H200)),
        *real,
    ]
    console.print(power_table(power, max(chosen.nights // 8, 1), chosen.seed, console))


if __name__ == "__main__":
    main()
