"""Measuring one launch pair: both arms freshly launched, then interleaved pairs of runs with equal prompts."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from agents.arms import Arm
from agents.context import Night
from cards.sentinel import Sentinel
from contracts import EngineSpec, Measurement, Workload, content_hash
from engine.measure import measure
from engine.running import EngineFailure
from judge.void import VOID_REPEATS, card_void_reasons, pair_void_reasons, run_void_reasons
from ledger.schema import Measured

Purpose = Literal["aa", "experiment", "confirm", "stock"]
# The run number of a burst, so that it has prompts of its own: with those of run 0, a third of that run's prompt tokens
# came from the prefix cache in arm B alone, and the pair was void (H200, 2026-11-30).
BURST = -1
# Bursts at the start of a launch on a GPU, at most: a wave of requests touches the batch sizes that a run begins with,
# and so the variants of kernels that the start did not compile. On an H200 the first 8 to 16 seconds of load on a
# launch ran at 0.5 to 0.9 of the later speed (vLLM 0.26.0, 2026-11-30).
SETTLING = 3


def prompt_seed(night: Night, purpose: Purpose, experiment_id: str | None, launch_pair: int, run: int) -> int:
    """Fresh prompts for every pair of runs of a night, the same ones for its two arms, the same again in a night
    with the same seed."""
    key: JsonValue = [night.config.workload.seed, purpose, experiment_id, launch_pair, run]
    return int(content_hash(key, 8), 16)


def measure_launch_pair(
    night: Night,
    spec_a: EngineSpec,
    spec_b: EngineSpec,
    arms: str,
    launch_pair: int,
    purpose: Purpose,
    experiment_id: str | None = None,
) -> list[Measurement]:
    """All runs of one launch pair, void ones included and marked. Engines already up with these specs are used.

    Twin: both resident, runs alternate ABBA. Alternate: one arm's runs, then the other's, the order changing with the
    launch pair. Raises ArmFailure.
    """
    plan = _Plan(night, {"A": spec_a, "B": spec_b}, launch_pair, purpose, experiment_id)
    if arms == "twin":
        return plan.twin()
    return plan.alternate()


class _Plan:
    def __init__(
        self,
        night: Night,
        specs: dict[Arm, EngineSpec],
        launch_pair: int,
        purpose: Purpose,
        experiment_id: str | None,
    ) -> None:
        self.night, self.specs, self.launch_pair = night, specs, launch_pair
        self.purpose, self.experiment_id = purpose, experiment_id
        self.runs = night.config.judge.runs_per_launch

    def twin(self) -> list[Measurement]:
        self.night.arms.up(self.in_order_of_start(), self.experiment_id, self.launch_pair)
        for arm in self.specs:
            self.settle(arm)
        done: list[Measurement] = []
        run = attempt = 0
        while run < self.runs:
            order: tuple[Arm, Arm] = ("A", "B") if (run + self.launch_pair) % 2 == 0 else ("B", "A")
            pair = {arm: self.run_once(arm, run, attempt) for arm in order}
            reasons = self.pair_reasons(pair["A"], pair["B"])
            kept = [self.record(m, reasons) for m in pair.values()]
            done += kept
            if any(m.void_reasons for m in kept) and attempt < VOID_REPEATS:
                attempt += 1
                continue
            run, attempt = run + 1, 0
        return done

    def in_order_of_start(self) -> dict[Arm, EngineSpec]:
        """Which arm starts first changes with the launch pair, so that the better place on the machine does too. An
        experiment's first launch pair begins with B, which is up already."""
        b_first = (self.launch_pair % 2 == 0) == (self.purpose == "experiment")
        return dict(sorted(self.specs.items(), reverse=b_first))

    def alternate(self) -> list[Measurement]:
        first: tuple[Arm, Arm] = ("A", "B") if self.launch_pair % 2 == 0 else ("B", "A")
        by_arm: dict[Arm, list[Measurement]] = {}
        for arm in first:
            other: Arm = "B" if arm == "A" else "A"
            self.night.arms.down(other)
            self.night.arms.up({arm: self.specs[arm]}, self.experiment_id, self.launch_pair)
            self.settle(arm)
            by_arm[arm] = [self.run_once(arm, run, 0) for run in range(self.runs)]
        done: list[Measurement] = []
        for a, b in zip(by_arm["A"], by_arm["B"], strict=True):
            done += [self.record(m, self.pair_reasons(a, b)) for m in (a, b)]
        return done

    def settle(self, arm: Arm) -> None:
        """Bursts until one compiles nothing, on a GPU: what is compiled inside a window makes the run void, and a void
        run costs more than a burst. Not recorded. A CPU engine compiles all that it needs before it is ready."""
        if self.night.card.kind == "cpu":
            return
        for burst_number in range(SETTLING):
            seen = self.run_once(arm, BURST - 1 - burst_number, 0, one_wave(self.night.config.workload))
            if not seen.conditions.get("compiles_in_window"):
                return

    def pair_reasons(self, a: Measurement, b: Measurement) -> tuple[str, ...]:
        return (*pair_void_reasons(a, b), *card_void_reasons(a, b, self.night.config.judge))

    def run_once(self, arm: Arm, run: int, attempt: int, workload: Workload | None = None) -> Measurement:
        night = self.night
        night.check_interrupted()
        workload = workload or night.config.workload
        engine = night.arms.up({arm: self.specs[arm]}, self.experiment_id, self.launch_pair)[arm]
        seed = prompt_seed(night, self.purpose, self.experiment_id, self.launch_pair, run) + attempt
        out = night.folder / "artifacts" / "runs"
        sentinel = Sentinel(night.card, night.arms.pids)
        try:
            measurement = measure(
                engine, workload, seed, arm, self.launch_pair, run, out, night.config.limits, sentinel
            )
        except EngineFailure as cause:
            raise night.arms.failed(arm, cause, self.experiment_id) from cause
        reasons = run_void_reasons(measurement, workload, night.config.judge.foreign_cpu_share)
        return measurement.model_copy(update={"void_reasons": reasons})

    def record(self, measurement: Measurement, pair_reasons: tuple[str, ...]) -> Measurement:
        reasons = tuple(dict.fromkeys((*measurement.void_reasons, *pair_reasons)))
        full = measurement.model_copy(update={"void_reasons": reasons})
        self.night.emit("measured", Measured(measurement=full, experiment_id=self.experiment_id, purpose=self.purpose))
        return full


def single_run(night: Night, spec: EngineSpec, purpose: Purpose) -> Measurement:
    """One run on one fresh launch in arm A, recorded, not paired; a void one is repeated as those of pairs are, and the
    last one stands. Raises ArmFailure."""
    plan = _Plan(night, {"A": spec, "B": spec}, 0, purpose, None)
    plan.settle("A")
    for attempt in range(VOID_REPEATS + 1):
        run = plan.record(plan.run_once("A", 0, attempt), ())
        if not run.void_reasons:
            break
    return run


def burst(night: Night, spec: EngineSpec, experiment_id: str, arm: Arm = "B") -> Measurement:
    """A short look at an engine under the workload, for path evidence only: as many requests as run at a time, no
    warm-up, the same ones in both arms. It is not recorded as a measurement. Raises ArmFailure."""
    plan = _Plan(night, {arm: spec}, 0, "experiment", experiment_id)
    return plan.run_once(arm, BURST, 0, one_wave(night.config.workload))


def one_wave(workload: Workload) -> Workload:
    return workload.model_copy(update={"requests": burst_size(workload), "warmup_requests": 0})


def burst_size(workload: Workload) -> int:
    """Enough to fill every slot once: the concurrency of a closed loop, a quarter of the requests of an open one."""
    return workload.concurrency or max(1, workload.requests // 4)
