"""A bounded profile of each arm, for path evidence alone: the same requests, the same profiler, nothing measured.

vLLM's own torch profiler first. Where it gives no kernels on an AMD card, both arms once more under rocprofv3: never
one arm by the one and the other by the other. In a container there is no rocprofv3: it would have to be inside, and its
files to come out.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from pathlib import Path

from agents.arms import Arm, ArmFailure
from agents.context import Night
from agents.pairs import burst
from agents.research.knobs import Knobs
from agents.research.traces.kernels import Category, Kernels, Window, read_kernels
from agents.research.traces.read import TraceError
from agents.state import Trial
from agents.tuning.probes import ArmSeen
from contracts import EngineSpec
from engine.command import environment
from engine.profile import profiled, start_profile, stop_profile, traces_in
from engine.rocprof import boottime_ns, rocprofv3_for, under_rocprofv3
from engine.running import EngineFailure, RunningEngine

# What a profiled launch costs beside its start: the burst, and the trace being written and read. Judged.
BURST_AND_TRACE_S = 60.0


class ProfileImpossible(Exception):
    """No profile, and so no evidence of this kind. One line that says why."""


def profile_cost_s(night: Night, *specs: EngineSpec) -> float:
    """What profiles of these engines by one profiler will cost, by their own latest starts: each compiles afresh, since
    the profiler makes it another engine with a compile cache of its own. Where rocprofv3 follows the torch profiler
    this comes twice, for four launches; each time it is asked for before anything is launched."""
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
    knobs: Knobs,
) -> tuple[ArmSeen, ArmSeen]:
    """Both arms with their kernels: B first (if it breaks under the profiler, A need not start), one after the other on
    an otherwise empty card. Traces are kept in `folder` of the night. An engine that breaks only here says nothing of
    the change. `knobs`: what the installed vLLM knows. Raises ProfileImpossible."""
    began, root = time.monotonic(), night.folder / folder
    needed, left = profile_cost_s(night, incumbent, candidate), max(spare_s, 0)
    if needed > spare_s:
        raise ProfileImpossible(f"its evidence needs a profile of both arms: {needed:.0f} s, and {left:.0f} s are left")
    specs: dict[Arm, EngineSpec] = {"B": candidate, "A": incumbent}
    by_rocprof = night.card.kind == "amd" and category == "kernel"
    found: dict[Arm, Kernels] = {}
    try:
        for arm, spec in specs.items():
            found[arm] = _by_torch(night, arm, spec, category, trial, root / arm)
            if by_rocprof and not found[arm].seen:
                raise ProfileImpossible(f"torch's profiler saw no kernel in arm {arm}")
    except ProfileImpossible as why:
        if not by_rocprof:
            raise
        left = max(spare_s - (time.monotonic() - began), 0)
        tool = _rocprofv3(night, specs, left, str(why))
        found = {arm: _by_rocprofv3(night, arm, specs[arm], tool, trial, root / arm, knobs) for arm in specs}
    night.arms.down()
    return dataclasses.replace(seen[0], kernels=found["A"]), dataclasses.replace(seen[1], kernels=found["B"])


# --- torch's profiler -------------------------------------------------------------------------------------------------


def _by_torch(night: Night, arm: Arm, spec: EngineSpec, category: Category, trial: Trial, folder: Path) -> Kernels:
    night.arms.down()
    already = frozenset(traces_in(folder))  # of a stage that was interrupted and runs again
    spec = profiled(spec, folder)
    try:
        engine = night.arms.up({arm: spec}, trial.experiment_id, trial.launch_pair)[arm]
        traces = _record(night, arm, engine, spec, trial, folder, already)
    except ArmFailure as broken:
        raise _cannot(arm, broken) from broken
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


def _cannot(arm: Arm, broken: ArmFailure) -> ProfileImpossible:
    return ProfileImpossible(f"arm {arm} cannot be profiled: {broken.failure.kind}: {broken.failure.reason}")


# --- rocprofv3 --------------------------------------------------------------------------------------------------------


def _rocprofv3(night: Night, specs: dict[Arm, EngineSpec], left_s: float, why: str) -> str:
    """The program. Raises ProfileImpossible: there is none for these engines, or no time for two launches more."""
    if any(spec.container for spec in specs.values()):
        raise ProfileImpossible(f"{why}; rocprofv3 is not used for engines in a container")
    tool = rocprofv3_for(environment(specs["B"], night.folder, os.environ))
    if tool is None:
        raise ProfileImpossible(f"{why}; rocprofv3 is neither on the engine's PATH nor in /opt/rocm*/bin: install it")
    needed = profile_cost_s(night, *specs.values())
    if needed > left_s:
        raise ProfileImpossible(f"{why}; both arms under rocprofv3 need {needed:.0f} s, and {left_s:.0f} s are left")
    return tool


def _by_rocprofv3(
    night: Night, arm: Arm, spec: EngineSpec, tool: str, trial: Trial, folder: Path, knobs: Knobs
) -> Kernels:
    """The launches of the burst, of the process that had most of them (in a parallel engine every rank runs the same
    kernels). The engine is ended before anything is read. Raises ProfileImpossible."""
    night.arms.down()
    folder.mkdir(parents=True, exist_ok=True)
    into = Path(tempfile.mkdtemp(prefix="rocprofv3-", dir=folder))  # nothing of a stage that was interrupted
    stop_s = night.config.limits.engine_stop_s
    spec = under_rocprofv3(spec, tool, into, stop_s, knobs.flags, knobs.env)
    alive_from = boottime_ns()
    try:
        night.arms.up({arm: spec}, trial.experiment_id, trial.launch_pair)
        begin = boottime_ns()
        burst(night, spec, trial.experiment_id, arm)
        end = boottime_ns()
    except ArmFailure as broken:
        raise _cannot(arm, broken) from broken
    night.arms.down()
    window = Window(alive_from, begin, end, boottime_ns())
    try:
        profiles = [read_kernels(path, "kernel", window) for path in traces_in(into)]
    except TraceError as error:
        raise ProfileImpossible(f"rocprofv3's record of arm {arm} cannot be used: {error}") from error
    if not profiles:
        raise ProfileImpossible(
            f"rocprofv3 left no record of arm {arm}, which had {stop_s:g} s to end (limits.engine_stop_s); "
            "the log of its launch may say why"
        )
    most = max(profiles, key=lambda profile: profile.launches)
    if not most.seen:
        raise ProfileImpossible(f"rocprofv3 recorded no kernel of arm {arm} during the burst")
    return most
