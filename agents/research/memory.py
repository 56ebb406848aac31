"""What earlier nights found out about the same stack: what is not tried again, and what is likelier to help.

The same stack: engine versions, card, model and objective are the same (Stack). On it
- a change whose engine did not start, or whose answers were wrong, is not tried again, whatever it starts from;
- a change that was judged too slow, or to break a limit, or to be worth less than ENOUGH_POWER smallest gains, is not
  tried again from the same value under the same load;
- a change that was kept is likelier to help.
The newest verdict on a change stands. Rehearsals on a stand-in engine and planted changes count for nothing.
`remember` is pure; memory_folders.py reads the nights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from agents.research.finding import Finding
from agents.tuning.levers import LEVERS
from contracts import (
    Card,
    Change,
    EngineSpec,
    Evidence,
    Experiment,
    FailureKind,
    Frozen,
    Hypothesis,
    VerdictWord,
    Workload,
    content_hash,
)
from judge.words import count
from ledger.view import NightView, Try
from ledger.words import stand_in

NAME = "memory"

# An inconclusive verdict whose interval ends below this many smallest gains had the power to see a gain worth having;
# a wider one says only that the night was too short or too noisy for it. Judged.
ENOUGH_POWER = 2.0
KEPT, CONFIRMED = 0.8, 0.9  # probability that a change that was kept, or kept and confirmed, helps again. Judged.
NOT_THE_ENGINE = ("nightgate", "commit", "python", "kernel")  # versions that do not decide how fast vLLM is
NOT_THE_LOAD = ("name", "requests", "warmup_requests", "seed")  # of a workload: how it is measured, not what it is
# Failures of the place, which say nothing of the change.
NOT_THE_CHANGE = (FailureKind.PORT_TAKEN, FailureKind.NO_VLLM, FailureKind.NOT_OURS)


class Stack(Frozen):
    """What has to be the same for a verdict to hold again. `load` counts for verdicts on speed only."""

    engine: dict[str, str]  # vllm, torch, build
    card: str
    model: str  # hash of config.json, or the path where it cannot be read
    metric: str
    load: str


class PastNight(Frozen):
    name: str  # its folder
    model: str  # model_identity of its engine's model
    view: NightView


class Remembered(Frozen):
    """One change that a night has judged. about: what the verdict rests on; a start or an answer does not depend on
    the load, nor on what the change started from."""

    change: Change
    outcome: Literal["refused", "kept", "unused"]  # unused: accepted by the engine and not in use
    about: Literal["start", "answers", "speed"]
    night: str
    experiment: str
    reason: str
    same_load: bool
    confirmed: bool | None = None  # of what was kept, by fresh launches; None: the night did not get there

    @property
    def evidence(self) -> Evidence:
        return Evidence(source=f"logs/{self.night}/ledger.jsonl#{self.experiment}", detail=self.reason)


class Memory(Frozen):
    """Newest first. `notes`: what was left out, one line each."""

    remembered: tuple[Remembered, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[Remembered, ...]:
        """What is not to be tried again, with the reasons."""
        return tuple(r for r in self.remembered if r.outcome == "refused" and (r.same_load or r.about != "speed"))


def stack_of(versions: Mapping[str, str | None], card: Card, model: str, workload: Workload) -> Stack:
    """`versions` as in a ledger's first line (agents/preflight.py: engine_versions), `model` from model_identity."""
    load = {k: v for k, v in workload.model_dump(mode="json").items() if k not in NOT_THE_LOAD}
    return Stack(
        engine={k: v for k, v in sorted(versions.items()) if v is not None and k not in NOT_THE_ENGINE},
        card=f"{card.arch} {card.name}, {card.compute_units} compute units",
        model=model,
        metric=workload.objective.metric,
        load=content_hash(load),
    )


def model_identity(path: str, config: Mapping[str, Any] | None) -> str:
    """Two checkpoints with one config.json are one model here: their speed is the same."""
    return f"config {content_hash(dict(config))}" if config else path


def stack_of_night(night: PastNight) -> Stack | None:
    """None where the night has not said how it started."""
    view = night.view
    if view.config is None or view.card is None:
        return None
    return stack_of(view.versions, view.card, night.model, view.config.workload)


def difference(a: Stack, b: Stack) -> str | None:
    """The first thing that makes two stacks two, in words, or None. The load does not."""
    if "vllm" not in a.engine or "vllm" not in b.engine:
        return "its version of vLLM is not known"
    for name in ("engine", "card", "model", "metric"):
        if getattr(a, name) != getattr(b, name):
            return f"another {name}: {getattr(a, name)}, not {getattr(b, name)}"
    return None


def remember(nights: Iterable[PastNight], tonight: Stack) -> Memory:
    """What the nights of this stack say."""
    notes: list[str] = []
    found: list[Remembered] = []
    others = 0
    for night in sorted(nights, key=lambda n: n.view.started_at or "", reverse=True):
        stack = stack_of_night(night)
        if stand_in(night.view) or _rehearsed(night.view):
            notes.append(f"{night.name}: a rehearsal on a stand-in engine, left out")
        elif stack is None:
            notes.append(f"{night.name}: its first line is missing, left out")
        elif difference(stack, tonight):
            others += 1
        else:
            planted = sum(t.experiment.hypothesis.planted for t in night.view.tries)
            if planted:
                notes.append(f"{night.name}: {count(planted, 'planted change')}, left out")
            same_load = stack.load == tonight.load
            found += [r for t in night.view.tries if (r := _judged(t, night, same_load)) is not None]
    if others:
        notes.append(f"{count(others, 'night')} of another stack, left out")
    return Memory(remembered=_newest(found), notes=tuple(notes))


def refused_ids(memory: Memory, spec: EngineSpec) -> tuple[str, ...]:
    """For Dossier.refused_before: the changes as they were tried, and those that lead from `spec` to a value with which
    the engine did not start or answered wrongly."""
    ids: list[str] = []
    for r in memory.refused:
        ids.append(r.change.id)
        if r.about != "speed":
            before = LEVERS[r.change.lever].read(spec, r.change.key)
            ids.append(r.change.model_copy(update={"before": before}).id)
    return tuple(dict.fromkeys(ids))


def why_refused(memory: Memory, change: Change) -> str | None:
    """In words, with the night's name, or None where nothing speaks against it."""
    for r in memory.refused:
        if r.change.id == change.id or (r.about != "speed" and _value(r.change) == _value(change)):
            return f"{r.night} has tried it on this stack: {r.reason}"
    return None


def likelier(h: Hypothesis, memory: Memory) -> Hypothesis:
    """With a higher probability where an earlier night kept this value under this load. The predicted gain stays: a
    kept ratio is the best of several, so it is a little too good."""
    for r in memory.remembered:
        if r.outcome == "kept" and r.same_load and r.confirmed is not False and _value(r.change) == _value(h.change):
            return h.model_copy(
                update={
                    "probability": max(h.probability, CONFIRMED if r.confirmed else KEPT),
                    "why": f"{h.why}; {r.night} kept it on this stack",
                    "evidence": (*h.evidence, r.evidence),
                }
            )
    return h


def facts(memory: Memory) -> list[Finding]:
    """For an audit: what was tried on this stack, one finding a change."""
    refused = set(memory.refused)
    found = []
    for r in memory.remembered:
        load = "" if r.same_load else ", under another load"
        if r.outcome == "kept":
            again = {True: " and confirmed", False: " and then not confirmed", None: ""}[r.confirmed]
            title = f"{r.change} was kept{again} by {r.night} on this stack{load}: {r.reason}"
        elif r.outcome == "unused":
            title = f"{r.change} was accepted and not in use in {r.night} on this stack: {r.reason}"
        elif r in refused:
            title = f"{r.change} is not tried again: {r.night} has tried it on this stack: {r.reason}"
        else:
            title = f"{r.change} was refused by {r.night} on this stack{load}, so it may be tried again: {r.reason}"
        found.append(Finding(reader=NAME, kind="fact", title=title, evidence=(r.evidence,)))
    return found


def _judged(tried: Try, night: PastNight, same_load: bool) -> Remembered | None:
    """None: planted, without a verdict, or one that says nothing of the change."""
    e, verdict = tried.experiment, tried.experiment.verdict
    if verdict is None or e.hypothesis.planted:
        return None

    def said(outcome: Literal["refused", "kept", "unused"], about: Literal["start", "answers", "speed"]) -> Remembered:
        return Remembered(
            change=e.hypothesis.change,
            outcome=outcome,
            about=about,
            night=night.name,
            experiment=e.id,
            reason=f"{verdict.word}: {verdict.reason}",
            same_load=same_load,
            confirmed=_confirmed(night.view) if outcome == "kept" else None,
        )

    match verdict.word:
        case VerdictWord.KEEP:
            return said("kept", "speed") if e.id in night.view.kept_ids else None
        case VerdictWord.FAILED:
            return None if _failure(e, night.view) in NOT_THE_CHANGE else said("refused", "start")
        case VerdictWord.REVERT:
            wrong = any(g.outcome == "fail" for g in e.gates)
            return said("refused", "answers" if wrong else "speed")
        case VerdictWord.INCONCLUSIVE:
            return said("refused", "speed") if _powerful(e, night.view) else None
        case VerdictWord.VOID:
            absent = e.path_evidence is not None and e.path_evidence.outcome == "absent"
            return said("unused", "start") if absent else None


def _failure(e: Experiment, view: NightView) -> str | None:
    """What kind of failure ended this experiment: the last that was written, else the verdict's first word."""
    seen = [f.failure.kind for f in view.failures if f.experiment_id == e.id]
    return seen[-1] if seen else e.verdict.reason.partition(":")[0] if e.verdict else None


def _powerful(e: Experiment, view: NightView) -> bool:
    """Neither shown to help nor shown not to, but a gain worth having is ruled out."""
    interval = e.verdict.interval if e.verdict else None
    smallest = view.config.judge.smallest_gain if view.config else 0.0
    return interval is not None and interval[0] <= 1 and interval[1] < 1 + ENOUGH_POWER * smallest


def _confirmed(view: NightView) -> bool | None:
    """Of the whole stack of kept changes; a confirmation that could not be measured says neither."""
    word = view.confirmed.verdict.word if view.confirmed else None
    return {VerdictWord.KEEP: True, VerdictWord.REVERT: False}.get(word) if word else None


def _rehearsed(view: NightView) -> bool:
    launches = (*view.launches, *(launch for e in view.experiments for launch in e.launches))
    return any(launch.realised.get("stand_in") for launch in launches)


def _value(change: Change) -> tuple[str, str, str]:
    """What a change leads to; where it starts does not count."""
    return change.lever, change.key, json.dumps(change.after, sort_keys=True)


def _newest(found: Iterable[Remembered]) -> tuple[Remembered, ...]:
    """Of `found`, newest first, without what a newer verdict has overtaken: one on the same change, or on the same
    value unless both are refusals for speed, which depend on where each change started."""
    stand: list[Remembered] = []
    for r in found:
        newer = [n for n in stand if _value(n.change) == _value(r.change)]
        if not any(n.change.id == r.change.id or not (_for_speed(n) and _for_speed(r)) for n in newer):
            stand.append(r)
    return tuple(stand)


def _for_speed(r: Remembered) -> bool:
    return r.outcome == "refused" and r.about == "speed"
