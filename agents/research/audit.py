"""Asks every reader about one engine on one card, and puts what is worth trying first. Pure but for the trees that
readers read.

An opportunity's score is log(gain) * probability / hours of card time, gain by Amdahl from the share of the time that
it touches; every term is shown. What can be tried comes first, then traps, then facts.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from agents.research.card_dtypes import absent_dtype
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms, together
from agents.research.rank import reader_names
from agents.research.readers import READERS, known_priors
from agents.tuning.static_check import static_check
from contracts import Frozen, Hypothesis

_KINDS = ("opportunity", "trap", "fact")
TIE = " (same score as the one before: listed by risk, reader and title)"


class Audit(Frozen):
    """Best first, then traps, then facts. `notes`: what could not be read or was left out, one line each."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    def of(self, kind: str) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.kind == kind)


Told = tuple[list[Finding], list[str]]  # one reader's findings and notes

# Readers that parse whole trees: begun first, so that two processes end at about the same time.
_LONG = ("compile_storms", "arch_gates", "compile_evidence", "gemm_tables")


def audit(
    dossier: Dossier,
    readers: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda reader: None,
    processes: int = 1,
) -> Audit:
    """`readers` None: all of them. `processes`: how many readers work at a time. Raises UnknownReader. A reader that
    fails costs its own findings only."""
    names = reader_names(readers)
    told: dict[str, Told] = {}
    if processes > 1 and len(names) > 1:
        # No /dev/shm, no more processes: then one after the other.
        with contextlib.suppress(OSError, NotImplementedError):
            for name, said in _at_once(names, dossier, processes):
                progress(name)
                told[name] = said
    for name in names:
        if name not in told:
            progress(name)
            told[name] = ask(name, dossier)
    found = [finding for name in names for finding in told[name][0]]
    notes = [note for name in names for note in told[name][1]]
    usable: list[Finding] = []
    for finding in found:
        fault = _fault(finding, dossier)
        if fault:
            notes.append(f"{finding.change} ({finding.reader}): {fault}")
        else:
            usable.append(finding)
    return Audit(findings=order(merge(usable)), notes=tuple(dict.fromkeys(notes)))


def _at_once(names: Sequence[str], dossier: Dossier, processes: int) -> Iterator[tuple[str, Told]]:
    # fork: the readers and the dossier are there already. Nothing here runs threads.
    pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"), initializer=_end_quietly)
    try:
        asked = {pool.submit(ask, name, dossier): name for name in sorted(names, key=lambda n: n not in _LONG)}
        for done in as_completed(asked):
            try:
                yield asked[done], done.result()
            except (BrokenProcessPool, SystemExit):  # not asked again: it might end this process too
                why = "a reader's process was ended from outside; is there enough memory?"
                yield asked[done], ([], [f"reader {asked[done]} was left out: {why}"])
    finally:
        pool.shutdown(cancel_futures=True)


def _end_quietly() -> None:
    """Ctrl+C reaches every process, and the first one says so: the others tidy up and print nothing."""
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))


def ask(name: str, dossier: Dossier) -> Told:
    """One reader's findings and notes."""
    reader = READERS[name]
    try:
        findings = [*reader.look(dossier), *map(as_finding, reader.read(dossier))]
        return [printable(f) for f in findings], [_text(note) for note in reader.dropped(dossier)]
    except Exception as error:  # a reader is a guest: its fault must not end the audit
        return [], [_text(f"reader {name} failed and was left out: {type(error).__name__}: {error}")]


def printable(finding: Finding) -> Finding:
    """As it is, or with what is no Unicode text, or would steer a terminal, written out: a file's name, a text in a
    source or a profile."""
    held = finding.model_dump()
    plain = _plain(held)
    return finding if plain == held else Finding.model_validate(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(v) for v in value)
    return _text(value) if isinstance(value, str) else value


def _text(words: str) -> str:
    return words if words.isprintable() else "".join(map(_shown, words))


def _shown(char: str) -> str:
    return char if char.isprintable() or char in "\n\t" else repr(char)[1:-1]  # "\x1b", "\udcff"


def _fault(finding: Finding, dossier: Dossier) -> str | None:
    """Why an opportunity is none. Without a vLLM tree nothing is known of its flags, and none is refused for them."""
    if finding.kind != "opportunity" or finding.change is None:
        return None
    lacking = absent_dtype(finding.change, dossier)
    if lacking or not dossier.knobs.path:
        return lacking
    return static_check(finding.change, dossier.spec, dossier.knobs, dossier.refused_before, subject=dossier)


def as_finding(h: Hypothesis) -> Finding:
    """A night's hypothesis among an audit's findings. Its gain is of the whole, so its terms are written backwards: the
    share that its bound allows (all, where it has none) and the speed-up of that share which gives the gain."""
    share = 1.0 if h.bound is None else max(0.0, 1 - 1 / h.bound)
    rest = 1 / h.predicted_gain - (1 - share)
    return Finding(
        reader=h.proposer,
        kind="opportunity",
        title=h.why,
        evidence=h.evidence,
        change=h.change,
        terms=Terms(
            phase="all",
            share=share,
            share_from="all of it" if h.bound is None else f"bound {h.bound:.2f}x",
            share_measured=h.bound is not None,
            speedup=share / max(rest, 1e-9) if share else 1.0,
            speedup_from=f"predicted gain {h.predicted_gain:.2f}x",
            probability=h.probability,
            cost_s=h.cost_s,
        ),
        risk=h.risk,
    )


def merge(found: Sequence[Finding]) -> list[Finding]:
    """One finding a change: the highest score stands, evidence and readers are joined. Without a change: one finding
    for what is called the same (Finding.same_as), joined with the best one of that name that has a change. All others
    stay as they are, equal ones once."""
    groups: dict[str, list[Finding]] = {}
    for finding in found:
        group = groups.setdefault(_key(finding), [])
        if finding not in group:
            group.append(finding)
    for name in [key for key, group in groups.items() if _named(group[0]) == key]:
        alike = [g for g in groups.values() if g[0].change is not None and g[0].same_as == name]
        if alike:  # what a night tries leads: the words of the same thing are evidence of its likeliest row
            max(alike, key=lambda group: max(map(score, group))).extend(groups.pop(name))
    return [_merged(group) if len(group) > 1 else group[0] for group in groups.values()]


def _key(finding: Finding) -> str:
    if finding.kind == "opportunity" and finding.change:
        return finding.change.id
    return _named(finding) or finding.model_dump_json()


def _named(finding: Finding) -> str:
    """What an opportunity without a change is called, "" for others."""
    named = finding.kind == "opportunity" and finding.terms and finding.change is None
    return finding.same_as if named else ""


def _merged(group: list[Finding]) -> Finding:
    best = max(group, key=lambda f: (f.change is not None, score(f)))  # the first of equals
    joined: dict[str, Any] = {
        "reader": " + ".join(dict.fromkeys(f.reader for f in group)),
        "evidence": tuple(dict.fromkeys(e for f in group for e in f.evidence)),
    }
    here = [f for f in group if f.reader != known_priors.NAME]
    if best.change is None and here:
        return _of_parts(here, [f for f in group if f not in here]).model_copy(update=joined)
    if best.change and best.same_as:  # what is known of the whole is evidence of this part
        group = [f for f in group if f.change is not None or f in here]
    others = [f"{f.reader}: {f.title}" for f in group if f is not best and f.title not in best.title]
    fix = next((f.fix for f in (best, *group) if f.fix), "")
    return best.model_copy(update={**joined, "title": "; also ".join([best.title, *others]), "fix": fix})


def _of_parts(here: list[Finding], elsewhere: list[Finding]) -> Finding:
    """What was read here leads, and each finding of it is a part; what is known from elsewhere is evidence."""
    best = max(here, key=score)
    return best.model_copy(
        update={
            "title": "; also ".join([best.title, *(f.title for f in here if f is not best)]),
            "fix": "\n".join(dict.fromkeys(f.fix for f in here if f.fix)),
            "terms": together([f.terms for f in here if f.terms], [f.terms for f in elsewhere if f.terms]),
        }
    )


def score(finding: Finding) -> float:
    return finding.terms.score if finding.terms else 0.0


def order(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """By kind, then by score; of equals the lower risk, then what was read here before what is known from elsewhere,
    then by reader and title; of two opportunities with one score the later one says so."""
    risks = ("low", "medium", "high")

    def place(f: Finding) -> tuple[object, ...]:
        elsewhere = f.reader == known_priors.NAME
        return (_KINDS.index(f.kind), -round(score(f), 6), risks.index(f.risk), elsewhere, f.reader, f.title)

    ranked = sorted(found, key=place)
    out: list[Finding] = []
    for finding in ranked:
        if out and finding.kind == out[-1].kind == "opportunity" and math.isclose(score(finding), score(out[-1])):
            finding = finding.model_copy(update={"title": finding.title + TIE})
        out.append(finding)
    return tuple(out)
