"""What runs, and the one thing that changes."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from contracts.base import Frozen, content_hash


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

    @field_validator("overlay")
    @classmethod
    def without_empty_sections(cls, value: dict[Lever, dict[str, JsonValue]]) -> dict[Lever, dict[str, JsonValue]]:
        """`source_patch: {}` lays nothing, and is the same spec as one without it."""
        return {lever: section for lever, section in value.items() if section}

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


MOST_NAMES = 3  # of a long table's rows or a long list's entries
MOST_ENTRIES = 16  # a list of so many is shown whole
MOST_CHARS = 160


def rows_words(value: JsonValue) -> str:
    """JSON in one short line: a table of several rows by their first names ("12 rows: 1, 32, 40, ..."), a long list by
    its first entries and its last, and other long text cut."""
    if isinstance(value, dict) and len(value) > 1 and all(isinstance(row, dict) for row in value.values()):
        names = sorted(value, key=lambda name: (len(name), name))
        more = ["..."] if len(names) > MOST_NAMES else []
        return _cut(f"{len(names)} rows: {', '.join([*names[:MOST_NAMES], *more])}")
    if isinstance(value, list) and len(value) > MOST_ENTRIES:
        first = ", ".join(json.dumps(entry) for entry in value[:MOST_NAMES])
        return _cut(f"{len(value)} values: {first}, ..., {json.dumps(value[-1])}")
    return _cut(json.dumps(value))


def value_words(lever: Lever, value: JsonValue) -> str:
    """A value of this lever as a person reads it, in one short line; None is "default"."""
    if lever is Lever.SOURCE_PATCH:
        return patch_words(value)
    return "default" if value is None else _cut(value) if isinstance(value, str) else rows_words(value)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 4]} ..."


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
        before, after = (value_words(self.lever, value) for value in (self.before, self.after))
        return f"{self.lever}: {self.key}: {before} -> {after}"


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
    under_load: bool = False  # log_line: only requests bring it, so the changed engine gets a short burst first
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
