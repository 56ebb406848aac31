"""The shared nouns: frozen data that every room passes on, and nothing else.

Missing is None, never invented. Times are seconds unless a name says otherwise, sizes are bytes, ratios are
B over A with "above 1 is better" (latencies are inverted before they become a ratio). Everything here is plain
JSON when dumped, because the ledger keeps it.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator


class Frozen(BaseModel):
    """Plain, frozen, and strict about its keys: an unknown key is an error, not a comment."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def content_hash(value: JsonValue, length: int = 12) -> str:
    """First `length` hex digits of the SHA-256 of the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # surrogatepass: the name of a file that is no UTF-8, or "\ud800" in a source, counts as it stands.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]


# --- the machine and the work -------------------------------------------------------------------------------------


class Partition(Frozen):
    """How an AMD card is divided. One that is several devices to the runtimes is as many Cards at one PCI address."""

    number: int  # of this part, from 0
    of: int  # parts at this PCI address; 1: the card is whole
    compute: str | None = None  # "SPX", "DPX", "QPX", "CPX", as the driver writes it
    memory: str | None = None  # "NPS1", "NPS4"


class Card(Frozen):
    """One accelerator, or the CPU standing in for one. What names it, best first: uuid, PCI address (and part), index.
    Ledgers from before these were kept have None there."""

    arch: str  # "gfx906", "gfx950", "sm_90", "x86_64"
    kind: Literal["amd", "nvidia", "cpu"]
    name: str
    memory_bytes: int
    compute_units: int  # CUs, SMs, or CPU cores this process may use
    pci_address: str | None = None
    wavefront: int | None = None
    source: str  # where this was read: "/proc/cpuinfo", "KFD topology", "NVML"
    uuid: str | None = None  # "GPU-...", "MIG-...", as the maker's visible-device variables take it; None: it has none
    driver: str | None = None  # the kernel's driver that has it: "amdgpu", "hydcu", "nvidia"
    index: int | None = None  # its place as the maker's runtime counts when nothing is hidden; may change at a reboot
    node: int | None = None  # of the KFD topology
    render_minor: int | None = None  # /dev/dri/renderD<this>
    partition: Partition | None = None

    @property
    def place(self) -> str | None:
        """What a night file's engine.card may say: "0000:03:00.0", and "0000:03:00.0#2" for a part of a card."""
        if self.pci_address is None or self.partition is None or self.partition.of == 1:
            return self.pci_address
        return f"{self.pci_address}#{self.partition.number}"


class Rate(Frozen):
    """A rate of work that was measured: the median over `repeats` samples, and their extremes."""

    value: float = Field(gt=0)
    lowest: float = Field(gt=0)
    highest: float = Field(gt=0)
    repeats: int = Field(ge=1)


class MeasuredSheet(Frozen):
    """What a short test on tonight's own card reached, in the engine's interpreter. Not peaks: what a plain copy and
    the installed libraries' products came to."""

    arch: str
    card: str  # the name and, where known, the PCI address
    copy_gb_s: Rate  # bytes read plus bytes written, in 10^9 a second
    matmul_tflops: dict[str, Rate] = {}  # "fp32", "fp16", "bf16"
    how: str
    versions: dict[str, str | None] = {}
    at: str  # UTC, ISO 8601


class Limit(Frozen):
    """One line of a service objective: tpot_ms_p95 at most 60, or at most 2.5 times what tonight's baseline has.
    The second is for nights that run on many machines; judge/objective.py turns it into the first."""

    metric: str
    at_most: float | None = None
    times_baseline: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def one_kind_of_limit(self) -> Limit:
        if (self.at_most is None) == (self.times_baseline is None):
            raise ValueError("give either at_most (in the metric's unit) or times_baseline, not both")
        return self


class Objective(Frozen):
    """What to improve, and what must hold while it improves."""

    metric: str = "output_tokens_per_s"
    limits: tuple[Limit, ...] = ()


class Workload(Frozen):
    """Prompts, lengths and arrivals. `concurrency` makes it a closed loop, `rate_per_s` an open (Poisson) one."""

    name: str
    concurrency: int | None = Field(None, ge=1)
    rate_per_s: float | None = Field(None, gt=0)
    requests: int = Field(ge=1)  # in the measured window
    warmup_requests: int = Field(ge=0)
    input_tokens: tuple[int, int]  # uniform, inclusive
    output_tokens: tuple[int, int]  # uniform, inclusive; generation ignores EOS so that both arms do equal work
    shared_prefix_tokens: int = Field(0, ge=0)
    seed: int = 0
    objective: Objective = Objective()

    @model_validator(mode="after")
    def one_kind_of_arrival(self) -> Workload:
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("give either concurrency (closed loop) or rate_per_s (open loop), not both")
        for name, (low, high) in (("input_tokens", self.input_tokens), ("output_tokens", self.output_tokens)):
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be [low, high] with 1 <= low <= high")
        return self

    @property
    def peak_tokens(self) -> int:
        """The longest sequence that one request can become."""
        return self.shared_prefix_tokens + self.input_tokens[1] + self.output_tokens[1]


# --- what runs, and the one thing that changes --------------------------------------------------------------------


class Lever(StrEnum):
    """What a tuning agent may touch. One file each in agents/tuning/levers/."""

    ENGINE_FLAG = "engine_flag"  # key "max-num-seqs"
    ENVIRONMENT = "environment"  # key "VLLM_CPU_KVCACHE_SPACE"
    COMPILATION = "compilation_config"  # key "mode", inside vLLM's --compilation-config
    # What lies in files. Keys: "<file>#<row>" for a row of a table, "<distribution>/<name>" for a patch.
    MOE_TABLE = "vllm_moe_table"  # vLLM's fused-MoE tiles, by VLLM_TUNED_CONFIG_FOLDER
    AITER_JSON = "aiter_json"  # AITER's attention and GEMM tiles: no override upstream, so an overlay tree
    AITER_CSV = "aiter_csv"  # AITER's tuned GEMM and MoE rows, by each family's own variable
    KERNEL_TABLE = "kernel_table"  # the tiles of nightgate's own kernels, and which of them run
    SOURCE_PATCH = "source_patch"  # a unified diff against one installed distribution


class Container(Frozen):
    """The engine runs in an image. What the image sets by itself is part of the image; "auto" in a list stands for what
    the night's card needs (engine/container_card.py)."""

    image: str = Field(min_length=1)  # name@sha256:... says for good what runs; a tag may move
    runtime: Literal["docker", "podman"] = "docker"
    python: str = "python3"  # inside the image
    devices: tuple[str, ...] = ("auto",)
    groups: tuple[str, ...] = ("auto",)  # numbers: a name may be another group inside
    mounts: tuple[str, ...] = ()  # "/host:/inside", with ":ro" where nothing may be written
    shm_gib: float = Field(16, gt=0)  # of the container's own /dev/shm; memory is taken as it is used
    extra: tuple[str, ...] = ()  # further options of `docker run`, the last word

    @field_validator("devices", "groups", mode="before")
    @classmethod
    def one_or_more(cls, value: Any) -> Any:
        """`devices: auto` is `devices: [auto]`."""
        return (value,) if value == "auto" else tuple(value) if isinstance(value, list) else value


class EngineSpec(Frozen):
    """The resolved configuration of one engine: all that decides what runs, and nothing that differs by launch
    (port, nonce and folders are the launch's own)."""

    python: str  # the engine's interpreter, inside the container where there is one; never the loop's
    model: str
    flags: dict[str, JsonValue] = {}  # long name without dashes; true = bare flag, false = --no-flag
    env: dict[str, str] = {}
    compilation: dict[str, JsonValue] = {}
    overlay: dict[Lever, dict[str, JsonValue]] = {}  # what is laid over the installed files, by lever and its key
    plugin_paths: tuple[str, ...] = ()  # folders put on the engine's PYTHONPATH, each a vLLM plugin distribution
    container: Container | None = None  # None: an interpreter of the host

    @property
    def id(self) -> str:
        return content_hash(self.model_dump(mode="json"))


def patch_words(value: JsonValue) -> str:
    """A unified diff in a few words: "vllm/envs.py +1/-1", "vllm/a.py and 2 more +10/-3"; None is "not patched"."""
    if not isinstance(value, str):
        return "not patched" if value is None else json.dumps(value)
    lines = value.splitlines()
    files = [line[4:].split("\t")[0] for line in lines if line.startswith("+++ ")]
    added, removed = (sum(line.startswith(s) and not line.startswith(f"{s * 3} ") for line in lines) for s in "+-")
    first = files[0].removeprefix("b/") if files else "no file"
    return f"{first}{f' and {len(files) - 1} more' if files[1:] else ''} +{added}/-{removed}"


class Change(Frozen):
    """One lever, one key, before and after. None means: not set, the engine's own default."""

    lever: Lever
    key: str
    before: JsonValue = None
    after: JsonValue = None

    @property
    def id(self) -> str:
        return content_hash(self.model_dump(mode="json"))

    def __str__(self) -> str:
        def show(value: JsonValue) -> str:
            if self.lever is Lever.SOURCE_PATCH:
                return patch_words(value)
            return "default" if value is None else json.dumps(value) if not isinstance(value, str) else value

        return f"{self.lever}: {self.key}: {show(self.before)} -> {show(self.after)}"


class Probe(Frozen):
    """How to see that a change is really in use: something in the engine that is there in B and not in A."""

    kind: Literal[
        "log_line",  # a line that the engine writes
        "peak_running",  # more, or fewer, requests at a time
        "realised",  # the configuration that was read back from the running engine
        "table_row",  # the row of a table that the engine's own process looked up
        "imported",  # a patched file that the engine's own process imported
        "counter",  # calls of a kernel of ours, counted in the engine's own process
        "kernel",  # kernels and their launches in a bounded profile; costs two launches more
        "none",
    ]
    # A regular expression; "{after}" stands for the new value. log_line: a line of the engine's log. realised: a line
    # that must be in B's log as well, without which the setting is not used. table_row: the table's name. counter: the
    # counter's name. kernel: the kernel's symbol.
    pattern: str = ""
    key: str = ""  # realised: its name in LaunchRecord.realised
    category: Literal["kernel", "cpu_op"] = "kernel"  # kernel: what to look at; on a CPU only operators are traced
    # kernel: the symbol is in both arms, and all of these must differ (a changed tile keeps its symbol).
    differs: tuple[Literal["launches", "grid", "block", "shared_memory", "registers"], ...] = ()
    present_in: Literal["B", "A"] = "B"  # "A": it must be in A and gone in B (a feature switched off)
    source: str = ""  # how we know that this means what we say


class Evidence(Frozen):
    """Something a reader of the report can check."""

    source: str  # file:line, table row, "engine log", "configs/priors/vllm_cpu.yaml#eager"
    detail: str


class Hypothesis(Frozen):
    """A change worth trying, who says so, and why. score = log(gain) * probability / cost."""

    change: Change
    proposer: str  # the reader's name, "night file", or "model"
    why: str
    evidence: tuple[Evidence, ...] = ()
    predicted_gain: float = Field(gt=0)  # ratio on the objective's metric
    bound: float | None = None  # the most that Amdahl's law allows; a gain above it is suspect
    probability: float = Field(ge=0, le=1)
    cost_s: float = Field(gt=0)  # expected card time
    risk: Literal["low", "medium", "high"] = "low"
    planted: bool = False  # a labelled trap of the embedded night; shown in the report, never used in a decision
    score: float = 0.0

    @property
    def id(self) -> str:
        return self.change.id


# --- what was seen ------------------------------------------------------------------------------------------------


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


# --- the night ----------------------------------------------------------------------------------------------------


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
