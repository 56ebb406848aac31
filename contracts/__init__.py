"""The shared nouns: frozen data that every room passes on, and nothing else.

Missing is None, never invented. Times are seconds unless a name says otherwise, sizes are bytes, ratios are
B over A with "above 1 is better" (latencies are inverted before they become a ratio). Everything here is plain
JSON when dumped, because the ledger keeps it.
"""

from contracts.base import Frozen, content_hash
from contracts.change import (
    Change,
    Container,
    EngineSpec,
    Evidence,
    Hypothesis,
    Lever,
    Probe,
    patch_words,
    rows_words,
    value_words,
)
from contracts.machine import Card, Limit, MeasuredSheet, Objective, Partition, Rate, Workload
from contracts.night import CardRule, EngineSettings, Event, GateRule, JudgeRule, Limits, NightConfig, SumsRule, TryItem
from contracts.seen import (
    Experiment,
    Failure,
    FailureKind,
    GateResult,
    LaunchRecord,
    Measurement,
    NoiseFloor,
    PathEvidence,
    Verdict,
    VerdictWord,
)

__all__ = [
    "Card",
    "CardRule",
    "Change",
    "Container",
    "EngineSettings",
    "EngineSpec",
    "Event",
    "Evidence",
    "Experiment",
    "Failure",
    "FailureKind",
    "Frozen",
    "GateResult",
    "GateRule",
    "Hypothesis",
    "JudgeRule",
    "LaunchRecord",
    "Lever",
    "Limit",
    "Limits",
    "MeasuredSheet",
    "Measurement",
    "NightConfig",
    "NoiseFloor",
    "Objective",
    "Partition",
    "PathEvidence",
    "Probe",
    "Rate",
    "SumsRule",
    "TryItem",
    "Verdict",
    "VerdictWord",
    "Workload",
    "content_hash",
    "patch_words",
    "rows_words",
    "value_words",
]
