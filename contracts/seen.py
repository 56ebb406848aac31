"""What was seen: launches, measurements, gates, verdicts."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import JsonValue

from contracts.base import Frozen
from contracts.change import Hypothesis, Probe


class FailureKind(StrEnum):
    """Why an engine is not serving. The words appear in the report."""

    OUT_OF_MEMORY = "out_of_memory"
    REFUSED_CONFIGURATION = "refused_configuration"  # the engine said no to a flag, value or combination
    CRASH = "crash"
    HANG = "hang"  # alive, silent past its time limit
    PORT_TAKEN = "port_taken"
    NO_VLLM = "no_vllm"  # the interpreter has no vLLM
    NOT_OURS = "not_ours"  # what answers is not the process that we started


class Failure(Frozen):
    kind: FailureKind
    reason: str  # one line, from the engine's own last words where it had any
    log_tail: tuple[str, ...] = ()


class LaunchRecord(Frozen):
    """One start of one engine. pid and start time together name the process; either alone does not."""

    launch_id: str
    spec_id: str
    pid: int  # the engine's first process, as the host counts; in a container too
    pid_started: float  # seconds since the epoch, from the process table
    port: int
    nonce: str  # in the served model name
    ready_s: float | None = None
    realised: dict[str, JsonValue] = {}  # read back from the engine: log and endpoints
    mismatches: tuple[str, ...] = ()  # asked for one thing, realised another
    rss_bytes: int | None = None
    log_path: str  # relative to the night's folder
    container_id: str | None = None  # "docker://<id>" or "podman://<id>"; None: a process of the host


class PathEvidence(Frozen):
    """Present in B, absent in A, or there is no measurement."""

    outcome: Literal["proven", "absent", "unknown"]
    probe: Probe
    seen_in_a: str | None = None  # in words
    seen_in_b: str | None = None
    a: dict[str, JsonValue] = {}  # the same as data: lines, rows, launches, settings
    b: dict[str, JsonValue] = {}
    reason: str


class Measurement(Frozen):
    """One run of one workload on one launch. `metrics` are ms, tokens/s or requests/s by name; `conditions` is what
    else was true in the window; `void_reasons` is empty or the run says nothing."""

    launch_id: str
    arm: Literal["A", "B"]
    launch_pair: int
    run: int
    prompt_seed: int
    window_s: float
    completed: int
    failed: int
    metrics: dict[str, float | None]
    conditions: dict[str, JsonValue] = {}
    void_reasons: tuple[str, ...] = ()
    samples_path: str | None = None  # raw per-request samples, relative to the night's folder


class GateResult(Frozen):
    check: str  # "token_ids", "drift", "gsm8k", "numerics"
    outcome: Literal["pass", "fail", "inconclusive", "not_run"]
    mode: str  # how it compared, in words
    statistic: dict[str, JsonValue] = {}
    power: str | None = None  # what it could have seen
    reason: str
    seconds: float = 0.0
    artifact: str | None = None


class NoiseFloor(Frozen):
    """What two equal engines differ by tonight. Units are log ratios (0.01 is about 1 %)."""

    metric: str
    launch_sd: float  # of launch-pair means, about the known mean 0
    launch_df: int  # how many A/A launch pairs that rests on
    run_sd: float | None = None  # of single pairs within a launch pair
    pairs: tuple[float, ...] = ()  # the A/A log ratios themselves
    tokens_repeat: dict[str, bool] = {}  # "alone" / "concurrent": greedy IDs equal in fresh processes?


class VerdictWord(StrEnum):
    KEEP = "keep"
    REVERT = "revert"
    INCONCLUSIVE = "inconclusive"
    VOID = "void"  # the measurement says nothing
    FAILED = "failed"  # crash, hang, out of memory, refused


class Verdict(Frozen):
    word: VerdictWord
    reason: str  # words and numbers; this is what the morning reads
    metric: str | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None  # at the confidence that this decision spent
    confidence: float | None = None
    launch_pairs: int = 0
    alpha_spent: float = 0.0


class Experiment(Frozen):
    """A hypothesis that was tried, and all that was seen."""

    id: str
    hypothesis: Hypothesis
    launches: tuple[LaunchRecord, ...] = ()
    path_evidence: PathEvidence | None = None
    measurements: tuple[Measurement, ...] = ()
    gates: tuple[GateResult, ...] = ()
    verdict: Verdict | None = None
    seconds: float = 0.0
