"""Is the change really in use? The engines' own logs and configurations, a short burst of the workload on the changed
engine, or, where only the kernels tell, a bounded profile of both arms."""

from __future__ import annotations

import time
from pathlib import Path

from agents.context import Night
from agents.pairs import burst
from agents.profiling import ProfileImpossible, profile_arms
from agents.research.knobs import Knobs
from agents.state import Progress, Trial
from agents.tuning.probes import UNDER_LOAD, ArmSeen, judge_path, probe_for
from contracts import EngineSpec, Hypothesis, Measurement, PathEvidence, Probe
from engine.own_plugins import TOLD_WITHIN_S


def prove(
    night: Night, progress: Progress, trial: Trial, candidate: EngineSpec, knobs: Knobs, spare_s: float
) -> PathEvidence:
    """Called with the candidate up as arm B. The incumbent is known by its latest log, configuration and runs.

    A probe of kind "kernel" ends both arms and takes two launches of its own, with the profiler in both, or up to four
    where torch's profiler sees no kernels of an AMD card; the stages after it start what they need. `spare_s`: what is
    left for it. Raises ArmFailure when the changed engine breaks under the burst.
    """
    change = trial.hypothesis.change
    probe = night_file_probe(night, trial.hypothesis) or probe_for(change, knobs)
    runs: tuple[Measurement, ...] = ()
    if probe.kind in UNDER_LOAD or probe.under_load:
        runs = (burst(night, candidate, trial.experiment_id),)
    if probe.kind == "imported" or probe.under_load:
        time.sleep(TOLD_WITHIN_S)  # what the burst called is in the log by now
    a = ArmSeen(
        log=night.arms.log_of(progress.incumbent) or "",
        record=night.arms.record_of(progress.incumbent),
        runs=progress.incumbent_runs,
    )
    b = ArmSeen(log=night.arms.log_of(candidate) or "", record=night.arms.record_of(candidate), runs=runs)
    if probe.kind == "kernel":
        folder = Path("artifacts") / "profiles" / trial.experiment_id
        try:
            a, b = profile_arms(
                night, progress.incumbent, candidate, (a, b), probe.category, trial, folder, spare_s, knobs
            )
        except ProfileImpossible as problem:
            return PathEvidence(outcome="unknown", probe=probe, reason=str(problem))
    return judge_path(change, probe, a, b)


def night_file_probe(night: Night, hypothesis: Hypothesis) -> Probe | None:
    """The probe that the night file gives for its own hypothesis, if any."""
    change = hypothesis.change
    for item in night.config.try_first:
        same_key = hypothesis.change.key in (item.key, item.key.replace("_", "-"))
        if item.probe and same_key and (item.lever, item.after) == (change.lever, change.after):
            return item.probe
    return None
