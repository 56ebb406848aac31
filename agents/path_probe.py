"""Is the change really in use? The engine's own log, or a short burst of the workload on the changed engine."""

from __future__ import annotations

from agents.context import Night
from agents.pairs import burst
from agents.research.knobs import Knobs
from agents.state import Progress, Trial
from agents.tuning.probes import judge_path, probe_for
from contracts import EngineSpec, Hypothesis, Measurement, PathEvidence, Probe


def prove(night: Night, progress: Progress, trial: Trial, candidate: EngineSpec, knobs: Knobs) -> PathEvidence:
    """Called with the candidate up as arm B. The incumbent is known by its latest log and its latest runs.

    Raises ArmFailure when the changed engine breaks under the burst.
    """
    change = trial.hypothesis.change
    probe = night_file_probe(night, trial.hypothesis) or probe_for(change, knobs)
    seen: list[Measurement] = []
    if probe.kind == "peak_running":
        seen = [burst(night, candidate, trial.experiment_id)]
    log_a = night.arms.log_of(progress.incumbent) or ""
    log_b = night.arms.log_of(candidate) or ""
    return judge_path(change, probe, log_a, log_b, progress.incumbent_runs, seen)


def night_file_probe(night: Night, hypothesis: Hypothesis) -> Probe | None:
    """The probe that the night file gives for its own hypothesis, if any."""
    change = hypothesis.change
    for item in night.config.try_first:
        same_key = hypothesis.change.key in (item.key, item.key.replace("_", "-"))
        if item.probe and same_key and (item.lever, item.after) == (change.lever, change.after):
            return item.probe
    return None
