"""A night file, resolved, and a line of the ledger."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue

from contracts.base import Frozen
from contracts.change import Container, Lever, Probe
from contracts.machine import Workload


class JudgeRule(Frozen):
    """How sure the night must be. See judge/ for the statistics."""

    false_keep_chance: float = Field(0.05, gt=0, lt=0.5)  # chance of even one false keep in the whole night
    smallest_gain: float = Field(0.02, ge=0)  # a change worth less than this is not worth keeping
    min_launch_pairs: int = Field(2, ge=2)
    max_launch_pairs: int = Field(4, ge=2)
    runs_per_launch: int = Field(2, ge=1)
    aa_launch_pairs: int = Field(2, ge=2)
    max_tries: int = Field(20, ge=1)
    confirm_launch_pairs: int = Field(3, ge=2)
    foreign_cpu_share: float = Field(0.25, ge=0, le=1)  # see judge/void.py; 1 allows any
    slowed_share: float = Field(0.1, ge=0, le=1)  # of a window slowed by heat, see judge/void.py; 1 allows any
    clock_drop: float = Field(0.15, ge=0, le=1)  # of one arm's clock against the other's; 1 allows any


class SumsRule(Frozen):
    """Grade-school sums: what is asked, how it is scored, what must hold."""

    questions: str  # a JSONL, "datasets:openai/gsm8k", or "arithmetic:held_out_stories" (from tonight's secret seed)
    count: int = Field(250, ge=16)
    style: str = "mi355x_night"
    model: str | None = None  # asked instead of the night's model, under the same settings; None: the night's own
    max_tokens: int | None = Field(None, ge=8)  # of an answer; None: the style's own
    concurrency: int = Field(32, ge=1)
    floor: float = Field(0.965, ge=0, lt=1)
    margin: float = Field(0.02, gt=0, lt=1)  # the loss against the unchanged engine that must be ruled out


class GateRule(Frozen):
    prompts: int = Field(24, ge=4)  # of the concurrent mode
    alone_prompts: int = Field(12, ge=4)  # of the alone mode, the first of them: one at a time is slow
    tokens: int = Field(60, ge=8)
    concurrency: int = Field(8, ge=1)  # of the concurrent mode; the alone mode is always 1
    seed: int = 7  # of the prompts that are not from tonight's secret seed
    more_widths: int = Field(2, ge=0)  # further batch widths, at the edges of captures and of max-num-seqs
    drift_texts: int = Field(16, ge=0)  # fixed texts whose log-probabilities are compared; 0: no such check
    gsm8k: SumsRule | None = None


class Limits(Frozen):
    """Every wait ends. Seconds."""

    engine_start_s: float = Field(300, gt=0)
    engine_stop_s: float = Field(30, gt=0)
    request_s: float = Field(120, gt=0)
    run_s: float = Field(300, gt=0)
    report_reserve_s: float = Field(60, ge=0)  # of the budget, kept for the report
    confirm_reserve_s: float = Field(0, ge=0)  # of the budget, kept for the confirmation
    disk_free_bytes: int = 1 << 30


class CardRule(Frozen):
    """What to do when somebody else is on the card, at the start and before each launch; and what is measured of it."""

    when_busy: Literal["refuse", "wait"] = "refuse"
    wait_minutes: float = Field(60, gt=0)  # the longest wait; it counts towards the night's minutes
    copy_test: bool = False  # measure the card's bandwidth, and let it stand for the sheet's number tonight


class TryItem(Frozen):  # a hypothesis written by hand in the night file
    lever: Lever
    key: str
    after: JsonValue = None
    why: str
    predicted_gain: float = Field(1.05, gt=0)
    probability: float = Field(0.5, ge=0, le=1)
    cost_s: float = Field(120, gt=0)
    probe: Probe | None = None
    planted: bool = False


class EngineSettings(Frozen):
    python: str = "auto"  # what set-up chose (.engine-python), or the container's
    model: str
    card: str | None = None  # which one: PCI address or uuid; None: the first that the engine can serve on
    flags: dict[str, JsonValue] = {}
    env: dict[str, str] = {}
    compilation: dict[str, JsonValue] = {}
    overlay: dict[Lever, dict[str, JsonValue]] = {}  # tables and patches that you run with already
    plugin_paths: tuple[str, ...] = ()
    container: Container | None = None
    port: int | None = Field(None, ge=1, le=65535)  # None: a free one


class NightConfig(Frozen):
    """A night file, resolved: paths absolute, workload included."""

    name: str
    minutes: float = Field(gt=0)
    engine: EngineSettings
    workload: Workload
    arms: Literal["auto", "twin", "alternate"] = "auto"
    card: CardRule = CardRule()
    judge: JudgeRule = JudgeRule()
    gate: GateRule = GateRule()
    limits: Limits = Limits()
    priors: tuple[str, ...] = ()
    readers: tuple[str, ...] | None = None  # None: every reader
    heed_earlier_nights: bool = True  # what they refused on this stack is not tried again
    try_first: tuple[TryItem, ...] = ()


class Event(Frozen):
    """One line of the ledger. `hash` is the SHA-256 of the line's canonical JSON without `hash`; `prev` is the hash of
    the line before, so that a line cannot be changed, dropped or put in unseen."""

    seq: int
    at: str  # UTC, ISO 8601
    kind: str
    data: dict[str, Any]
    prev: str
    hash: str
