"""Made-up measurements for the judge's tests: made up here, and looked at by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from contracts import Measurement, NoiseFloor, Workload

METRIC = "output_tokens_per_s"
WORKLOAD = Workload(
    name="made up", concurrency=8, requests=48, warmup_requests=8, input_tokens=(64, 128), output_tokens=(32, 64)
)
FINE: dict[str, Any] = {
    "identity_ok": True,
    "generator_late": False,
    "load_kept": True,
    "client_cpu_share": 0.1,
    "compiles_in_window": 0,
    "prefix_caching": True,
    "prefix_hit_rate": 0.0,
    "foreign_cpu_share": 0.01,
    "prompt_tokens": 4608,
    "output_tokens": 2304,
}


def floor(sd: float = 0.01, df: int = 2) -> NoiseFloor:
    return NoiseFloor(metric=METRIC, launch_sd=sd, launch_df=df)


def a_run(arm: Literal["A", "B"], launch_pair: int = 0, run: int = 0, **other: Any) -> Measurement:
    """A valid run; `speed`, `metrics` and `conditions` are laid over it."""
    second = (arm == "B") == ((launch_pair + run) % 2 == 0)  # ABBA, BAAB, ...
    conditions = FINE | {"started_at": 1000.0 * launch_pair + 40.0 * run + 20.0 * second}
    fields: dict[str, Any] = {
        "launch_id": f"L{launch_pair}{arm}",
        "arm": arm,
        "launch_pair": launch_pair,
        "run": run,
        "prompt_seed": 100 * launch_pair + run,
        "window_s": 10.0,
        "completed": WORKLOAD.requests,
        "failed": 0,
        "metrics": {METRIC: other.pop("speed", 300.0), **other.pop("metrics", {})},
        "conditions": conditions | other.pop("conditions", {}),
    }
    return Measurement(**(fields | other))


def experiment(ratios: Sequence[Sequence[float]], **metrics: tuple[float, float]) -> list[Measurement]:
    """One row of B/A ratios a launch pair. `metrics`: other metrics as (A's value, B's value)."""
    return [
        a_run(
            arm,
            launch_pair,
            run,
            speed=300.0 * (ratio if arm == "B" else 1.0),
            metrics={name: values[arm == "B"] for name, values in metrics.items()},
        )
        for launch_pair, row in enumerate(ratios)
        for run, ratio in enumerate(row)
        for arm in ("A", "B")
    ]


def noisy(gain: float, launch_pairs: int, sd: float, seed: int, runs: int = 2) -> list[Measurement]:
    draw = np.random.default_rng(seed).normal(0, sd, (launch_pairs, runs))
    return experiment((gain * np.exp(draw)).tolist())


def changed(runs: Sequence[Measurement], when: Callable[[Measurement], bool], **update: Any) -> list[Measurement]:
    return [m.model_copy(update=update) if when(m) else m for m in runs]
