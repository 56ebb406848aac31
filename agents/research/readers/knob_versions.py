"""Does the audited vLLM have every knob that tonight's configuration, its priors and the night file name?

A flag that a version does not know ends the start of the engine; an environment variable that it does not know is
ignored, with a warning in the log at most, and the night measures nothing. So a name is looked up in this version's own
source first, then in configs/knob_history.yaml, which knows what took its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import JsonValue

from agents.research.dossier import Dossier
from agents.research.finding import Finding
from agents.research.gates.files import read_files
from agents.research.knob_history import History, HistoryError, Told, default_before, load_history, translate
from agents.research.priors import Prior, PriorError, load_priors
from agents.tuning.levers import LEVERS
from contracts import Evidence, Lever

NAME = "knob_versions"
CALLED = {Lever.ENGINE_FLAG: "flag", Lever.ENVIRONMENT: "variable", Lever.COMPILATION: "compilation key"}
HAPPENS = {
    Lever.ENGINE_FLAG: "the engine refuses to start",
    Lever.ENVIRONMENT: "it is ignored, with a warning in the log at most",
    Lever.COMPILATION: "the engine refuses to start",
}


@dataclass(frozen=True)
class Named:
    """A knob that somebody names."""

    lever: Lever
    key: str
    value: JsonValue
    who: str  # "tonight's engine configuration", "configs/priors/x.yaml#id"
    tried: bool  # somebody would set it; False: the incumbent has it
    known_elsewhere: bool = False  # a prior's: a variable of a fork is no mistake, and reader `prior` leaves it out


def look(dossier: Dossier) -> list[Finding]:
    if not dossier.knobs.flags:
        return []
    try:
        history = load_history()
    except HistoryError as error:
        title = "what changed between versions of vLLM is not looked at: the file cannot be used"
        return [Finding(reader=NAME, kind="fact", title=title, evidence=(Evidence(source=NAME, detail=str(error)),))]
    named = list(_named(dossier))
    elsewhere = _read_elsewhere(dossier, [n.key for n in named if n.lever is Lever.ENVIRONMENT])
    found: dict[str, Finding] = {}
    for one in named:
        for finding in _of(one, dossier, history, elsewhere):
            same = found.get(finding.title)
            evidence = finding.evidence if same is None else tuple(dict.fromkeys(same.evidence + finding.evidence))
            found[finding.title] = finding.model_copy(update={"evidence": evidence})
    return [*found.values(), *_defaults(dossier, history)]


def _named(dossier: Dossier) -> Iterator[Named]:
    for lever, actions in ((lever, LEVERS[lever]) for lever in CALLED):
        for key in actions.keys(dossier.spec):
            value = actions.read(dossier.spec, key)
            yield Named(lever, key, value, "tonight's engine configuration", False)
            if lever is Lever.ENGINE_FLAG and isinstance(value, dict):
                for inner, held in value.items():
                    yield Named(lever, f"{key}.{inner}", held, "tonight's engine configuration", False)
    for item in dossier.try_first:
        if item.lever in CALLED:
            yield Named(item.lever, item.key, item.after, "the night file's try_first", True)
    for path in dossier.priors:
        try:
            priors = load_priors(path)
        except PriorError:
            continue  # reader `prior` says so
        for prior in priors:
            if prior.lever in CALLED and prior.key and prior.outcome == "helps" and _meant_for(prior, dossier):
                yield Named(Lever(prior.lever), prior.key, prior.value, prior.source, True, known_elsewhere=True)


def _meant_for(prior: Prior, dossier: Dossier) -> bool:
    """By card and version; a prior for others is dropped by reader `prior`, with that reason."""
    when = prior.when
    if (when.kind and when.kind != dossier.card.kind) or (when.arch and dossier.card.arch not in when.arch):
        return False
    try:
        return SpecifierSet(when.vllm or "").contains(Version(dossier.knobs.version), prereleases=True)
    except InvalidVersion:
        return not when.vllm


def _of(one: Named, dossier: Dossier, history: History, elsewhere: set[str]) -> Iterator[Finding]:
    told = translate(one.lever, one.key, one.value, dossier.knobs, history)
    name = LEVERS[one.lever].normalise(one.key)
    says = Evidence(source=one.who, detail=f"{name} = {one.value!r}")
    if told.outcome == "there":
        yield from _deprecated(name, one, says, dossier)
        return
    plain = name.split(".")[0]
    if one.lever is Lever.ENVIRONMENT and (plain in elsewhere or not _judged(plain, dossier)):
        return
    lacks = f"{dossier.knobs.named} has no {CALLED[one.lever]} {name}"
    title = f"{lacks}: {HAPPENS[one.lever]}"
    if one.lever is Lever.ENVIRONMENT and plain.startswith("AITER_"):
        looked = Evidence(source="aiter", detail=f"{plain} stands in quotes in none of its Python files")
        yield _trap(
            f"this AITER has no variable {plain}: it is ignored", (says, looked), "leave it out, or update AITER"
        )
        return
    if told.outcome == "renamed":
        value = f" with {told.value!r}" if told.value is not None else ""
        title = f"{lacks}; it is the {CALLED[told.lever]} {told.key} now"
        yield _trap(title, (says, _past(plain), _where(told, dossier)), f"use {told.key}{value}")
    elif told.outcome == "gone":
        yield _trap(f"{title} ({told.why})", (says, _past(plain)), told.instead)
    elif not (one.known_elsewhere and one.lever is Lever.ENVIRONMENT):
        table = "envs.py" if one.lever is Lever.ENVIRONMENT else "the source of its options"
        looked = Evidence(source=dossier.knobs.named, detail=f"{name} is not in {table}")
        fix = f"did you mean {told.nearest}?" if told.nearest else "leave it out, or check its spelling"
        yield _trap(title, (says, looked), fix)


def _trap(title: str, evidence: tuple[Evidence | None, ...], fix: str) -> Finding:
    return Finding(reader=NAME, kind="trap", title=title, evidence=tuple(e for e in evidence if e), fix=fix)


def _past(knob: str) -> Evidence:
    return Evidence(source=f"configs/knob_history.yaml#{knob}", detail="what became of it, and the versions looked at")


def _where(told: Told, dossier: Dossier) -> Evidence | None:
    knob = dossier.knobs.of(told.lever).get(told.key.split(".")[0])
    return None if knob is None else Evidence(source=f"vllm/{knob.source}", detail=f"{knob.name} is here")


def _deprecated(name: str, one: Named, says: Evidence, dossier: Dossier) -> Iterator[Finding]:
    knobs = dossier.knobs
    first, dot, rest = name.partition(".")
    parts = (knobs.aliases.get(first, first), *rest.split(".")[:1])
    keys = [".".join(parts[:n]) for n in range(1, len(parts) + 1) if parts[n - 1]]
    if one.lever is Lever.COMPILATION:
        keys = [f"compilation-config.{first}"]
    for key in keys:
        end = knobs.deprecated.get(key)
        if end is None:
            continue
        past = end.gone_in and _reached(end.gone_in, knobs.version)
        when = f", to go in {end.gone_in}" if end.gone_in else ""
        title = f"{key} is deprecated in {knobs.named}{when}{' and so overdue' if past else ''}"
        evidence = (says, Evidence(source=f"vllm/{end.source}", detail=end.says))
        fix = "a gain that rests on it lasts until the next version; look for its successor in the source"
        yield Finding(reader=NAME, kind="fact", title=title, evidence=evidence, fix=fix)


def _reached(gone_in: str, version: str) -> bool:
    try:
        return Version(gone_in) <= Version(version)
    except InvalidVersion:
        return False


# --- variables that are read outside the table ---


def _judged(name: str, dossier: Dossier) -> bool:
    """Only names of projects whose source is at hand: others are read by libraries that nobody looked at."""
    return name.startswith("VLLM_") or (name.startswith("AITER_") and bool(dossier.aiter))


def _read_elsewhere(dossier: Dossier, names: list[str]) -> set[str]:
    """Of the variables that vLLM's table lacks: those that its other files, or AITER's, mention in quotes."""
    found = set()
    for root, start in ((dossier.knobs.path, "VLLM_"), (dossier.aiter, "AITER_")):
        open_ones = {n for n in names if n.startswith(start) and n not in dossier.knobs.env}
        if not root or not open_ones or not Path(root).is_dir():
            continue
        quoted = {n: (f'"{n}"'.encode(), f"'{n}'".encode()) for n in open_ones}
        for text in read_files(Path(root)).texts.values():
            found |= {n for n, forms in quoted.items() if any(form in text for form in forms)}
    return found


# --- defaults that are not what they were ---


def _defaults(dossier: Dossier, history: History) -> Iterator[Finding]:
    version = dossier.knobs.version
    for entry in history.knobs:
        knob = dossier.knobs.of(entry.lever).get(entry.knob)
        change = default_before(entry, version)
        if knob is None or change is None or (entry.arch and dossier.card.arch not in entry.arch):
            continue
        older, was, now = change
        held = LEVERS[entry.lever].read(dossier.spec, entry.knob)
        if held is not None or (knob.default_known and knob.default != now):
            continue
        yield Finding(
            reader=NAME,
            kind="fact",
            title=f"{entry.knob} is {now!r} by default in vLLM {version}, and was {was!r} in {older}",
            evidence=(
                Evidence(source=f"vllm/{knob.source}", detail=f"default {knob.default!r}"),
                Evidence(source=f"configs/knob_history.yaml#{entry.knob}", detail=f"{entry.why} ({entry.source})"),
            ),
            fix=entry.instead,
        )
