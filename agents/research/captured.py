"""Which graph sizes an engine is told to capture, which it captures then, and what a decode step needs: one reading for
the reader that proposes (readers/graph_coverage.py) and the lever that refuses (tuning/levers/capture_sizes.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agents.research import graph_sizes
from agents.research.batch_defaults import said
from agents.research.dossier import Dossier, holds
from agents.research.graph_sizes import DefaultRule
from agents.research.tables.attention_calls import token_budget
from agents.research.tables.reading import read_text
from contracts import Evidence

SIZES, LARGEST, MODE = "cudagraph_capture_sizes", "max_cudagraph_capture_size", "cudagraph_mode"
SOURCE = "config/vllm.py"


@dataclass(frozen=True)
class Settings:
    """What the configuration says of capturing, and whose key each setting is: "compilation", "json" (a JSON flag) or
    "flag" (one of its own)."""

    sizes: list[int] | None
    largest: int | None
    mode: str | None
    owner: dict[str, str]


@dataclass(frozen=True)
class Step:
    """A decode step. `words` say where the number of sequences is from."""

    sequences: int
    width: int  # tokens of a sequence
    words: str

    @property
    def tokens(self) -> int:
        return self.sequences * self.width


# --- what is asked for ---


def read_settings(dossier: Dossier) -> Settings:
    """From --compilation-config (the last one given counts, whole) and from the flags of their own."""
    spec, owner = dossier.spec, {}
    config: dict[str, JsonValue] = {}
    given = spec.flags.get("compilation-config")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = None
    asked = spec.compilation or (given if isinstance(given, dict) else {})
    whose = "compilation" if spec.compilation else "json"
    for key in (SIZES, LARGEST, MODE):
        flag = key.replace("_", "-")
        value = next((v for k, v in asked.items() if k.replace("-", "_") == key), None)
        if value is not None:
            config[key], owner[key] = value, whose
        elif spec.flags.get(flag) is not None:
            config[key], owner[key] = spec.flags[flag], "flag"
    sizes = config.get(SIZES)
    whole = [n for n in map(counted, sizes) if n is not None] if isinstance(sizes, list) else None
    mode = config.get(MODE)
    return Settings(whole or None, counted(config.get(LARGEST)), str(mode).upper() if mode is not None else None, owner)


def switched_off(dossier: Dossier, settings: Settings) -> Evidence | None:
    flags = dossier.spec.flags
    if flags.get("enforce-eager") is True:
        return holds(dossier, "enforce-eager", True)
    if settings.mode in ("NONE", "0"):
        return holds(dossier, MODE, settings.mode)
    if str(flags.get("optimization-level")).removeprefix("O") == "0":
        return holds(dossier, "optimization-level", flags["optimization-level"])
    return None


def decode_step(dossier: Dossier) -> Step | None:
    """The widest one that the workload brings about; None in an open loop of which nothing was seen."""
    limit, width, load = max_num_seqs(dossier), 1 + dossier.draft_tokens, dossier.workload
    ranks = counted(dossier.spec.flags.get("data-parallel-size")) or 1
    if load.concurrency is not None:
        there, words = -(-load.concurrency // ranks), f"{load.concurrency} requests at a time"
        words += f" over {ranks} data-parallel ranks" if ranks > 1 else ""
    elif (peak := dossier.counter("running_peak")) is not None and peak >= 1:
        there, words = int(peak), f"{peak:g} requests ran at a time at most"
    else:
        return None
    if limit is None:
        words += "; max-num-seqs is not known, and taken to be just enough"
    elif limit < there:
        there, words = limit, f"{words}, max-num-seqs {limit}"
    budget = token_budget(dossier)
    if budget is not None and budget // width < there:
        there, words = max(1, budget // width), f"{words}, max-num-batched-tokens {budget}"
    return Step(there, width, words)


def max_num_seqs(dossier: Dossier) -> int | None:
    held = said(dossier, "sequences")
    return held.value if held else None


def step_evidence(step: Step) -> Evidence:
    detail = f"{step.words}; {step.sequences} sequences of {step.width} tokens are {step.tokens} in a decode step"
    return Evidence(source="workload", detail=detail)


# --- what is captured ---


def rule_of(dossier: Dossier) -> tuple[DefaultRule | None, Evidence]:
    """The installed version's default, and the line that says it."""
    if not dossier.knobs.path:
        return None, Evidence(source="no vLLM", detail="vLLM's default list: no vLLM was given")
    root = Path(dossier.knobs.path)
    text, problem = read_text(root / SOURCE)
    source = f"{root.name}/{SOURCE}"
    if text is None:
        return None, Evidence(source=source, detail=f"vLLM's default list: the file {problem or 'is not there'}")
    try:
        rule = graph_sizes.default_rule(text, dossier.card.arch)
    except graph_sizes.UnknownError as error:
        return None, Evidence(source=source, detail=f"vLLM's default list is not in a form known here: {error}")
    return rule, Evidence(source=f"{source}:{rule.line}", detail=f"{rule.text}, with a cap of {rule.cap}")


def in_force(
    dossier: Dossier, settings: Settings, default: list[int] | None, where: Evidence
) -> tuple[list[int] | None, Evidence]:
    """The sizes that are captured, and who says so: the engine itself, the configuration, or the default."""
    said = dossier.realised.get(f"compilation.{SIZES}")
    sizes = [n for n in said if isinstance(n, int)] if isinstance(said, list) else []
    if sizes:
        detail = f"captures {len(sizes)} sizes up to {max(sizes)}"
        return sizes, Evidence(source="realised configuration", detail=detail)
    if settings.sizes is not None:
        held, source = sorted(set(settings.sizes)), holds(dossier, SIZES, None).source
        return held, Evidence(source=source, detail=f"{SIZES}: {len(held)} sizes, {held[0]} to {held[-1]}")
    if settings.largest is not None:
        return graph_sizes.grid(settings.largest), holds(dossier, LARGEST, settings.largest)
    return default, where


def counted(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
