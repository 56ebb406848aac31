"""A bounded profile of each arm, for path evidence alone: the same requests, the same profiler, nothing measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from agents.arms import Arm, ArmFailure
from agents.context import Night
from agents.pairs import burst
from agents.research.traces.kernels import Category, Kernels, read_kernels
from agents.research.traces.read import TraceError
from agents.state import Trial
from agents.tuning.probes import ArmSeen
from contracts import EngineSpec
from engine.profile import profiled, start_profile, stop_profile, traces_in
from engine.running import EngineFailure, RunningEngine

# What a profiled launch costs beside its start: the burst, and the trace being written and read. Judged.
BURST_AND_TRACE_S = 60.0


class ProfileImpossible(Exception):
    """No profile, and so no evidence of this kind. One line that says why."""


def profile_cost_s(night: Night, *specs: EngineSpec) -> float:
    """What profiles of these engines will cost, by their own latest starts: each compiles afresh, since the flag makes
    it another engine with a compile cache of its own."""
    records = [night.arms.record_of(spec) for spec in specs]
    starts = [r.ready_s if r and r.ready_s else night.config.limits.engine_start_s for r in records]
    return sum(starts) + len(specs) * BURST_AND_TRACE_S


def profile_arms(
    night: Night,
    incumbent: EngineSpec,
    candidate: EngineSpec,
    seen: tuple[ArmSeen, ArmSeen],
    category: Category,
    trial: Trial,
    folder: Path,
    spare_s: float,
) -> tuple[ArmSeen, ArmSeen]:
    """Both arms with their kernels: B first (if it breaks under the profiler, A need not start), one after the other on
    an otherwise empty card. Traces are kept in `folder` of the night. An engine that breaks only here says nothing of
    the change. Raises ProfileImpossible."""
    needed = profile_cost_s(night, incumbent, candidate)
    if needed > spare_s:
        left = max(spare_s, 0)
        raise ProfileImpossible(f"its evidence needs a profile of both arms: {needed:.0f} s, and {left:.0f} s are left")
    b = _profile(night, "B", candidate, category, trial, night.folder / folder / "B")
    a = _profile(night, "A", incumbent, category, trial, night.folder / folder / "A")
    night.arms.down()
    return dataclasses.replace(seen[0], kernels=a), dataclasses.replace(seen[1], kernels=b)


def _profile(night: Night, arm: Arm, spec: EngineSpec, category: Category, trial: Trial, folder: Path) -> Kernels:
    night.arms.down()
    already = frozenset(traces_in(folder))  # of a stage that was interrupted and runs again
    spec = profiled(spec, folder)
    try:
        engine = night.arms.up({arm: spec}, trial.experiment_id, trial.launch_pair)[arm]
        traces = _record(night, arm, engine, spec, trial, folder, already)
    except ArmFailure as broken:
        reason = broken.failure.reason
        raise ProfileImpossible(f"arm {arm} cannot be profiled: {broken.failure.kind}: {reason}") from broken
    try:
        return read_kernels(traces[0], category)  # the first worker's: every rank runs the same kernels
    except TraceError as error:
        raise ProfileImpossible(f"the profile of arm {arm} cannot be read: {error}") from error


def _record(
    night: Night,
    arm: Arm,
    engine: RunningEngine,
    spec: EngineSpec,
    trial: Trial,
    folder: Path,
    already: frozenset[Path],
) -> tuple[Path, ...]:
    try:
        start_profile(engine)
        burst(night, spec, trial.experiment_id, arm)
        return stop_profile(engine, folder, already)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, trial.experiment_id) from cause
