"""Does a decode step fit into a captured graph?

A step of n running sequences has n * (1 + draft tokens) tokens. Above the largest captured size the engine launches
every kernel from Python, and the card waits between them. Lists that somebody set by hand are often for one token a
sequence; draft tokens outgrow them. vLLM's default grows with max-num-seqs and the draft tokens, so undoing the list is
often enough, and where the default is in force already, a wider list is a wasted experiment: both are said.
"""

from __future__ import annotations

from typing import Any

from agents.research import graph_sizes, shares
from agents.research.captured import (
    LARGEST,
    MODE,
    SIZES,
    Settings,
    Step,
    decode_step,
    in_force,
    max_num_seqs,
    read_settings,
    rule_of,
    step_evidence,
    switched_off,
)
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms
from agents.research.tables.attention_calls import token_budget
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Lever

NAME = "graph_coverage"
FOR_NIGHTS = True

PROBABILITY, PROBABILITY_UNSEEN = 0.7, 0.5  # judged; a profile or a counter shows the gaps, or neither was given
SHARE_UNKNOWN = 0.10  # of all time, decode without a kernel, where no profile says it: cautious, judged


def look(dossier: Dossier) -> list[Finding]:
    if dossier.card.kind == "cpu":
        return []  # nothing is captured on a CPU
    settings = read_settings(dossier)
    off = switched_off(dossier, settings)
    if off is not None:
        title = f"No graphs are captured at all: {off.detail}; the reader execution_mode proposes to go back"
        return [_fact(title, [off])]
    step = decode_step(dossier)
    if step is None:
        return []
    rule, where = rule_of(dossier)
    max_seqs = max_num_seqs(dossier) or step.sequences
    budget = token_budget(dossier)
    default = rule.sizes(max_seqs, step.width, budget) if rule else None
    now, source = in_force(dossier, settings, default, where)
    if now is None:
        title = f"Whether graphs cover a decode step of {step.tokens} tokens is not known: {where.detail}"
        return [_fact(title, [where, step_evidence(step)])]
    held = graph_sizes.covers([n for n in now if budget is None or n <= budget], step.width)
    evidence = [source, step_evidence(step), *([where] if source is not where else [])]
    if held >= step.sequences:
        return [_covered(dossier, step, now, settings, evidence)]
    return [_uncovered(dossier, step, now, held, settings, default, evidence)]


def _covered(dossier: Dossier, step: Step, now: list[int], settings: Settings, evidence: list[Evidence]) -> Finding:
    whose = "the list set by hand" if settings.sizes or settings.largest else "vLLM's default list"
    title = (
        f"Graphs already cover a decode step of {step.tokens} tokens ({step.sequences} sequences x {step.width}): "
        f"{whose} goes to {max(now)}; proposing a wider one would waste a night"
    )
    idle = _idle(dossier)
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
    idle = _idle(dossier)
    share, words = (
        (idle.value, idle.words)
        if idle
        else (
            SHARE_UNKNOWN,
            f"unknown without a profile or a counter; {SHARE_UNKNOWN:.0%} of all time judged, cautious",
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
            share_measured=idle is not None and idle.measured,
            speedup=shares.GRAPH_SPEEDUP,
            speedup_from=shares.GRAPH_SPEEDUP_FROM,
            probability=PROBABILITY if idle else PROBABILITY_UNSEEN,
            cost_s=dossier.cost_s(),
        ),
        risk="low",
    )


def _idle(dossier: Dossier) -> shares.Share | None:
    """Of all time, without a kernel: of decode by a profile, else of everything by the driver's counter."""
    return shares.share(dossier, "decode", "idle") or shares.card_idle(dossier)


def _change(
    dossier: Dossier, step: Step, now: list[int], settings: Settings, default: list[int] | None
) -> tuple[Change | None, str]:
    """One key back to the default where that covers the step, else a longer list; and the same in words. No change
    where two keys would have to move together, or a key is in a flag that no lever reaches."""
    enough = default is not None and graph_sizes.covers(default, step.width) >= step.sequences
    key = SIZES if settings.sizes is not None or settings.largest is None else LARGEST
    budget = token_budget(dossier)
    held = [n for n in now if budget is None or n <= budget]  # the others vLLM drops
    longer: Any = graph_sizes.extend(held, step.sequences, step.width)
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


def _fact(title: str, evidence: list[Evidence]) -> Finding:
    return Finding(reader=NAME, kind="fact", title=title, evidence=tuple(evidence))
