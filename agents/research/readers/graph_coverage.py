"""Does a decode step fit into a captured graph?

A step of n running sequences has n * (1 + draft tokens) tokens. Above the largest captured size the engine launches
every kernel from Python, and the card waits between them. Lists that somebody set by hand are often for one token a
sequence; draft tokens outgrow them. vLLM's default grows with max-num-seqs and the draft tokens, so undoing the list is
often enough, and where the default is in force already, a wider list is a wasted experiment: both are said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agents.research import graph_sizes, shares
from agents.research.batch_defaults import said
from agents.research.dossier import Dossier, holds
from agents.research.finding import Finding, Terms
from agents.research.graph_sizes import DefaultRule
from agents.research.tables.attention_calls import token_budget
from agents.research.tables.reading import read_text
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Lever

NAME = "graph_coverage"
SIZES, LARGEST, MODE = "cudagraph_capture_sizes", "max_cudagraph_capture_size", "cudagraph_mode"
SOURCE = "config/vllm.py"

# Judged: a replayed graph launches its kernels back to back, so little of the time without a kernel is left. For scale:
# one MI355X night reports 19 % more throughput where a list that ended at 64 tokens was widened to 256.
SPEEDUP, SPEEDUP_FROM = 5.0, "judged: a replayed graph leaves a fifth of the time in which no kernel ran"
PROBABILITY, PROBABILITY_UNSEEN = 0.7, 0.5  # judged; a profile shows the gaps, or none was given
SHARE_UNKNOWN = 0.10  # of all time, decode without a kernel, where no profile says it: cautious, judged


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


def look(dossier: Dossier) -> list[Finding]:
    if dossier.card.kind == "cpu":
        return []  # nothing is captured on a CPU
    settings = read_settings(dossier)
    off = _switched_off(dossier, settings)
    if off is not None:
        title = f"No graphs are captured at all: {off.detail}; the reader execution_mode proposes to go back"
        return [_fact(title, [off])]
    step = decode_step(dossier)
    if step is None:
        return []
    rule, where = _rule(dossier)
    max_seqs = _max_num_seqs(dossier) or step.sequences
    budget = token_budget(dossier)
    default = rule.sizes(max_seqs, step.width, budget) if rule else None
    now, source = _in_force(dossier, settings, default, where)
    if now is None:
        title = f"Whether graphs cover a decode step of {step.tokens} tokens is not known: {where.detail}"
        return [_fact(title, [where, _step_evidence(step)])]
    held = graph_sizes.covers([n for n in now if budget is None or n <= budget], step.width)
    evidence = [source, _step_evidence(step), *([where] if source is not where else [])]
    if held >= step.sequences:
        return [_covered(dossier, step, now, settings, evidence)]
    return [_uncovered(dossier, step, now, held, settings, default, evidence)]


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
    whole = [n for n in map(_whole, sizes) if n is not None] if isinstance(sizes, list) else None
    mode = config.get(MODE)
    return Settings(whole or None, _whole(config.get(LARGEST)), str(mode).upper() if mode is not None else None, owner)


def _switched_off(dossier: Dossier, settings: Settings) -> Evidence | None:
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
    limit, width, load = _max_num_seqs(dossier), 1 + dossier.draft_tokens, dossier.workload
    ranks = _whole(dossier.spec.flags.get("data-parallel-size")) or 1
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


def _max_num_seqs(dossier: Dossier) -> int | None:
    held = said(dossier, "sequences")
    return held.value if held else None


def _step_evidence(step: Step) -> Evidence:
    detail = f"{step.words}; {step.sequences} sequences of {step.width} tokens are {step.tokens} in a decode step"
    return Evidence(source="workload", detail=detail)


# --- what is captured ---


def _rule(dossier: Dossier) -> tuple[DefaultRule | None, Evidence]:
    """The installed version's default, and the line that says it."""
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


def _in_force(
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


def _covered(dossier: Dossier, step: Step, now: list[int], settings: Settings, evidence: list[Evidence]) -> Finding:
    whose = "the list set by hand" if settings.sizes or settings.largest else "vLLM's default list"
    title = (
        f"Graphs already cover a decode step of {step.tokens} tokens ({step.sequences} sequences x {step.width}): "
        f"{whose} goes to {max(now)}; proposing a wider one would waste a night"
    )
    idle = shares.share(dossier, "decode", "idle")
    if idle is not None:
        evidence = [*evidence, Evidence(source="profile", detail=f"{idle.words}: whatever the reason, not the list")]
    return _fact(title, evidence)


def _uncovered(
    dossier: Dossier,
    step: Step,
    now: list[int],
    held: int,
    settings: Settings,
    default: list[int] | None,
    evidence: list[Evidence],
) -> Finding:
    title = (
        f"A decode step of {step.tokens} tokens ({step.sequences} sequences x {step.width}) runs without a graph: the "
        f"largest captured size is {max(now)}, which holds {held} sequences"
    )
    change, told = _change(dossier, step, now, settings, default)
    fix = f"{told}. The engine's log says what it captured: vLLM lowers {MODE} by itself where a back end cannot follow"
    idle = shares.share(dossier, "decode", "idle")
    share, words = (
        (idle.value, idle.words)
        if idle
        else (
            SHARE_UNKNOWN,
            f"unknown without a profile; {SHARE_UNKNOWN:.0%} of all time judged, cautious",
        )
    )
    return Finding(
        reader=NAME,
        kind="opportunity",
        title=title,
        evidence=tuple(evidence),
        fix=fix,
        change=change,
        terms=Terms(
            phase="decode",
            share=min(1.0, max(0.0, share)),
            share_from=words,
            speedup=SPEEDUP,
            speedup_from=SPEEDUP_FROM,
            probability=PROBABILITY if idle else PROBABILITY_UNSEEN,
            cost_s=dossier.cost_s(),
        ),
        risk="low",
    )


def _change(
    dossier: Dossier, step: Step, now: list[int], settings: Settings, default: list[int] | None
) -> tuple[Change | None, str]:
    """One key back to the default where that covers the step, else a longer list; and the same in words. No change
    where two keys would have to move together, or a key is in a flag that no lever reaches."""
    enough = default is not None and graph_sizes.covers(default, step.width) >= step.sequences
    key = SIZES if settings.sizes is not None or settings.largest is None else LARGEST
    longer: Any = graph_sizes.extend(now, step.sequences, step.width)
    after: Any = None if enough and key in settings.owner else _largest(step) if key == LARGEST else longer
    told = f"remove {key}: vLLM's default goes to {max(default)}" if after is None and default else f"{key}: {after}"
    if settings.sizes is not None and settings.largest is not None:
        return None, f"{told}; {LARGEST} has to go with it: vLLM refuses two that do not agree"
    whose = settings.owner.get(key, "compilation")
    if whose == "json":
        return None, f"{told}, in the JSON of --compilation-config"
    lever, name = (Lever.COMPILATION, key) if whose == "compilation" else (Lever.ENGINE_FLAG, key.replace("_", "-"))
    return Change(lever=lever, key=name, before=LEVERS[lever].read(dossier.spec, name), after=after), told


def _largest(step: Step) -> int:
    """The least multiple of 16 whose grid holds the step."""
    size = -(-step.tokens // 16) * 16
    while graph_sizes.covers(graph_sizes.grid(size), step.width) < step.sequences:
        size += 16
    return size


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _fact(title: str, evidence: list[Evidence]) -> Finding:
    return Finding(reader=NAME, kind="fact", title=title, evidence=tuple(evidence))
