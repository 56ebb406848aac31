"""What the readers may look at: all that is known about tonight before the first experiment, and nothing to alter."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.research.model_shape import ModelShape
from cards.sheet import CardSheet
from contracts import Card, EngineSpec, Evidence, Frozen, Hypothesis, TryItem, Workload


class PhaseProfile(Frozen):
    """Where one phase's time goes, from a profile. `shares`: of the time in kernels, by category (attention, gemm, moe,
    norm, sampling, communication, other). A number that is not known is absent."""

    phase: Literal["prefill", "decode"]
    weight: float | None = None  # of all time under the workload; absent: worked out, from step_ms too (shares.py)
    step_ms: float | None = None  # one step, wall clock
    kernel_ms: float | None = None  # of it in kernels
    shares: dict[str, float] = {}
    source: str


class Dossier(Frozen):
    """`profile` holds the engine's own counters under tonight's workload, means and peaks over the A/A runs:
    running_mean, running_peak, waiting_mean, waiting_peak (requests), kv_cache_usage_peak (0 to 1), preemptions, and
    what else there was. A missing counter is absent."""

    spec: EngineSpec  # the incumbent
    knobs: Knobs
    workload: Workload
    card: Card
    profile: dict[str, JsonValue] = {}
    model_config_json: dict[str, JsonValue] = {}  # the model's config.json
    realised: dict[str, JsonValue] = {}  # what the engine says that it runs with
    try_first: tuple[TryItem, ...] = ()
    refused_before: tuple[str, ...] = ()  # change ids refused on this stack
    priors: tuple[str, ...] = ()  # paths of configs/priors/*.yaml
    pair_s: float | None = None  # what one launch pair took tonight
    gate_s: float | None = None  # what one full gate took tonight
    arms: Literal["twin", "alternate"] | None = None  # are both engines of a pair up at once? None: no night runs
    # What an audit knows besides; all of it may be missing.
    model: ModelShape | None = None
    sheet: CardSheet | None = None
    aiter: str = ""  # a folder named aiter: installed, unpacked or checked out; vLLM's own folder is knobs.path
    phases: tuple[PhaseProfile, ...] = ()
    traces: tuple[str, ...] = ()  # paths of profiles
    engine_logs: tuple[str, ...] = ()  # paths of logs of engines that ran

    @property
    def draft_tokens(self) -> int:
        """Of speculative decoding: tokens proposed for each step, 0 without it."""
        held = self.spec.flags.get("speculative-config")
        count = held.get("num_speculative_tokens", 0) if isinstance(held, dict) else 0
        return count if isinstance(count, int) else 0

    @property
    def tensor_parallel(self) -> int:
        held = self.spec.flags.get("tensor-parallel-size", 1)
        return held if isinstance(held, int) and held > 0 else 1

    def counter(self, name: str) -> float | None:
        """A counter of the profile, or None where it was not seen."""
        value = self.profile.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def cost_s(self, compiles: bool = False) -> float:
        """Expected card time of one experiment: two launch pairs, half of one more for the first start alone and the
        path probe, and a full gate (measured before the gate asked sums: 200 to 208 s where a pair took 70 and a gate
        about 30). 75 s a pair and 35 s a gate where tonight has not measured them. A compiled engine starts 60 s later
        than an eager one, in each of two launches. All of it on a 2-core x86 machine, vLLM 0.32.0, 2026-11-29."""
        return 2.5 * (self.pair_s or 75.0) + (self.gate_s or 35.0) + (2 * 60.0 if compiles else 0.0)

    def improves(self) -> str:
        """The family of tonight's objective."""
        return family(self.workload.objective.metric)


def family(metric: str) -> str:
    """throughput, ttft, tpot or e2e."""
    for name, starts in (("ttft", ("ttft",)), ("tpot", ("tpot", "itl")), ("e2e", ("e2e",))):
        if metric.startswith(starts):
            return name
    return "throughput"


def scored(h: Hypothesis) -> Hypothesis:
    """With the predicted gain capped by its bound and score = log(gain) * probability / cost_s."""
    gain = min(h.predicted_gain, h.bound) if h.bound is not None else h.predicted_gain
    return h.model_copy(update={"predicted_gain": gain, "score": math.log(gain) * h.probability / h.cost_s})


def holds(dossier: Dossier, what: str, value: JsonValue) -> Evidence:
    """Evidence that tonight's engine configuration holds a value."""
    return Evidence(source="tonight's engine configuration", detail=f"{what} = {value!r}")
