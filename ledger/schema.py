"""What each kind of ledger line holds. `run_night.py schema` prints this as JSON Schema.

A kind is added, never renamed: old nights must stay readable.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import JsonValue

from contracts import (
    Card,
    Failure,
    Frozen,
    GateResult,
    Hypothesis,
    LaunchRecord,
    MeasuredSheet,
    Measurement,
    NightConfig,
    NoiseFloor,
    Objective,
    PathEvidence,
    Verdict,
)

STAGES = (
    "preflight", "baseline", "profile", "research", "pick", "static_check", "apply", "launch", "prove_path",
    "quick_gate", "measure", "full_gate", "judge", "keep", "revert", "confirm", "report",
)  # fmt: skip


class NightStarted(Frozen):
    config: NightConfig
    card: Card
    versions: dict[str, str | None]  # nightgate, its commit, python, vllm, torch, kernel
    guarded_files: dict[str, str]  # path -> sha256 of judge/ and accuracy_gate/ at the start


class NightResumed(Frozen):
    at_stage: str | None
    lost: tuple[str, ...]  # in words: what was in flight and has to be done again
    ended_orphans: tuple[int, ...]  # pids of our own engines that had to be ended


class GateSealed(Frozen):
    """At the start: what the gate will ask that no agent can know. accuracy_gate/held_out.py."""

    secret_sha256: str


class GateReferenced(Frozen):
    """The unchanged engine's own answers, with which every candidate is compared."""

    path: str  # relative to the night's folder
    sha256: str  # of that file; it is checked before each use
    prompts_hash: str
    texts_hash: str | None = None  # of the drift check
    questions: str | None = None  # where they come from
    questions_hash: str | None = None
    score: str | None = None  # of the unchanged engine, in words
    seconds: float  # that one full gate takes


class GateUnsealed(Frozen):
    """At the end: the secret, so that anyone can make the secret prompts again."""

    secret: str


class CardMeasured(Frozen):
    """Before the first engine: what the card reached in the copy test, and whether it stands for the sheet's number."""

    measured: MeasuredSheet
    overrides: str | None = None  # which number of the sheet it replaces tonight, in words; None: it replaces none
    seconds: float


class StageEntered(Frozen):
    stage: str
    experiment_id: str | None = None


class StageLeft(Frozen):
    stage: str
    experiment_id: str | None = None
    seconds: float


class LaunchStarted(Frozen):
    launch: LaunchRecord
    arm: Literal["A", "B"]
    experiment_id: str | None = None  # None: baseline or confirmation
    launch_pair: int = 0


class LaunchReady(Frozen):
    launch: LaunchRecord
    experiment_id: str | None = None


class LaunchFailed(Frozen):
    launch_id: str
    failure: Failure
    experiment_id: str | None = None
    seconds: float


class LaunchStopped(Frozen):
    launch_id: str
    seconds: float  # until its processes and its memory were gone
    forced: bool  # it did not stop when asked


class Measured(Frozen):
    measurement: Measurement
    experiment_id: str | None = None
    purpose: Literal["aa", "experiment", "confirm", "stock"]


class Gated(Frozen):
    result: GateResult
    experiment_id: str | None = None


class PathProven(Frozen):
    evidence: PathEvidence
    experiment_id: str


class Baseline(Frozen):
    metrics: dict[str, float | None]
    noise: NoiseFloor
    gate_mode: str
    arms: Literal["twin", "alternate"]
    arms_reason: str
    objective: Objective | None = None  # with every limit in its metric's own unit, as the night judges it
    seconds: float


class Profiled(Frozen):
    findings: dict[str, JsonValue]  # what the engine's own counters said under the workload


class Researched(Frozen):
    hypotheses: tuple[Hypothesis, ...]  # best first
    dropped: tuple[str, ...] = ()  # and why, one line each


class ExperimentStarted(Frozen):
    experiment_id: str
    hypothesis: Hypothesis
    try_number: int  # counts towards the night's error budget
    alpha: float  # what this try may spend


class Judged(Frozen):
    experiment_id: str
    verdict: Verdict
    seconds: float


class Kept(Frozen):
    experiment_id: str
    commit: str  # in the night's overlay repository
    spec_id: str


class Reverted(Frozen):
    experiment_id: str
    commit: str  # the overlay is at this commit again
    spec_id: str


class Confirmed(Frozen):
    """Clean base against the final stack, on fresh launches that no decision has seen."""

    verdict: Verdict
    base: dict[str, float | None]  # medians over the launches
    final: dict[str, float | None]
    stock: dict[str, float | None] | None = None  # the engine's own defaults, one launch, not judged
    gates: tuple[GateResult, ...] = ()


class TreeState(Frozen):
    files: int
    bytes: int
    digest: str  # SHA-256 over the sorted paths and their contents' hashes


class InstalledTrees(Frozen):
    """The installed files that a night's levers lie over, before the first engine and after the last."""

    when: Literal["before", "after"]
    trees: dict[str, TreeState]  # by the name that is imported
    left_out: str  # what is not looked at
    path: str  # relative to the night's folder: each file's own hash
    identical: bool | None = None  # after: to the trees before; None where there is nothing to compare with
    changed: tuple[str, ...] = ()  # "vllm/envs.py (changed)", the first of them
    changed_count: int = 0
    seconds: float


class Interrupted(Frozen):
    signal: str


class Warned(Frozen):
    message: str
    data: dict[str, Any] = {}


class NightFinished(Frozen):
    outcome: Literal["done", "budget", "interrupted", "problem"]
    reason: str
    exit_code: int


KINDS: dict[str, type[Frozen]] = {
    "night_started": NightStarted,
    "night_resumed": NightResumed,
    "gate_sealed": GateSealed,
    "gate_referenced": GateReferenced,
    "gate_unsealed": GateUnsealed,
    "card_measured": CardMeasured,
    "stage_entered": StageEntered,
    "stage_left": StageLeft,
    "launch_started": LaunchStarted,
    "launch_ready": LaunchReady,
    "launch_failed": LaunchFailed,
    "launch_stopped": LaunchStopped,
    "measured": Measured,
    "gated": Gated,
    "path_evidence": PathProven,
    "baseline": Baseline,
    "profiled": Profiled,
    "researched": Researched,
    "experiment_started": ExperimentStarted,
    "judged": Judged,
    "kept": Kept,
    "reverted": Reverted,
    "confirmed": Confirmed,
    "installed_trees": InstalledTrees,
    "interrupted": Interrupted,
    "warned": Warned,
    "night_finished": NightFinished,
}
