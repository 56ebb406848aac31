"""What LangGraph checkpoints between two nodes: plain JSON, so that a night killed anywhere can be read and resumed.

Engines, locks and screens are not in here. They belong to agents/context.py and are built again after a resume.
"""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import JsonValue

from contracts import (
    Change,
    EngineSpec,
    Frozen,
    GateResult,
    Hypothesis,
    Measurement,
    NoiseFloor,
    Objective,
    PathEvidence,
    Verdict,
)
from ledger.schema import GateReferenced


class Trial(Frozen):
    """The experiment in hand."""

    experiment_id: str
    hypothesis: Hypothesis
    candidate: EngineSpec | None = None
    try_number: int
    alpha: float
    launch_pair: int = 0  # the next one to be measured
    measurements: tuple[Measurement, ...] = ()
    gates: tuple[GateResult, ...] = ()
    looked: bool = False  # the judge has had the chance to keep it: the try counts, however it ends
    path: PathEvidence | None = None
    verdict: Verdict | None = None
    started_s: float  # night seconds when it was picked


class Winner(Frozen):
    """A kept change and what it was worth when it was judged."""

    experiment_id: str
    change: Change
    verdict: Verdict
    commit: str


class Progress(Frozen):
    """Everything a night knows between two nodes."""

    base: EngineSpec
    incumbent: EngineSpec
    arms: str = "twin"
    arms_reason: str = ""
    launch_pair: int = 0  # of the baseline or the confirmation: the next one to be measured
    runs: tuple[Measurement, ...] = ()  # of the baseline or the confirmation so far
    gates: tuple[GateResult, ...] = ()  # of the confirmation
    noise: NoiseFloor | None = None
    baseline: dict[str, float | None] = {}
    objective: Objective | None = None  # as it is judged tonight: no limit relative to the baseline any more
    reference: GateReferenced | None = None  # where the clean base's answers are, and what they must hash to
    profile: dict[str, JsonValue] = {}
    queue: tuple[Hypothesis, ...] = ()
    tries: int = 0  # experiments that reached a speed decision: what the night's error budget counts
    started: int = 0  # experiments of any kind
    tried: tuple[Change, ...] = ()  # tonight
    trial: Trial | None = None
    winners: tuple[Winner, ...] = ()
    incumbent_runs: tuple[Measurement, ...] = ()  # its latest ones: what a probe compares with
    incumbent_failures: int = 0  # in a row
    pair_s: float = 0.0  # what the last launch pair cost, for the budget
    outcome: str = "done"  # done, budget, problem
    reason: str = ""
    goto: str = "preflight"

    def but(self, **changes: Any) -> Progress:
        """A copy with some fields changed, validated."""
        return Progress.model_validate({**self.model_dump(mode="json"), **_plain(changes)})


def _plain(changes: dict[str, Any]) -> dict[str, Any]:
    def dump(value: Any) -> Any:
        if isinstance(value, Frozen):
            return value.model_dump(mode="json")
        if isinstance(value, (tuple, list)):
            return [dump(v) for v in value]
        return value

    return {key: dump(value) for key, value in changes.items()}


class State(TypedDict):
    """The graph's one channel."""

    progress: dict[str, Any]
