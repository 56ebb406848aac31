"""Asks every reader, checks and merges what they say, and puts the best first. Pure but for the priors' files.

score = log(predicted gain) * probability / cost in card seconds: the expected gain in log throughput that a second of
card time buys. The predicted gain is capped by the hypothesis's bound, where there is one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import partial

from agents.command import USAGE, Problem
from agents.research.card_dtypes import absent_dtype
from agents.research.dossier import Dossier, scored
from agents.research.knobs import near
from agents.research.limited import at_most
from agents.research.readers import READERS, Reader
from agents.tuning.levers import LEVERS
from agents.tuning.static_check import static_check
from contracts import Change, Evidence, Frozen, Hypothesis, TryItem

NIGHT_FILE = "night file"
_RISKS = ("low", "medium", "high")
# A line of the ledger holds all of them, at most 16 MB (ledger/line.py). The largest table of AITER e4048607 and vLLM
# 0.33.0 that a row change could lay whole is below 100 KB; a patch that a person lists counts as it is.
MOST_CHARS, MOST_CHARS_TOGETHER = 512 << 10, 6 << 20
# Seconds of one reader, judged: a whole audit of vLLM and an AITER checkout took 31 (2-core x86, 2026-11-30).
MOST_S = 180.0
MOST_DROPPED = 1000  # characters of a line that says why one was left out


class Research(Frozen):
    """Best first, and what was left out: one line each with the reason."""

    hypotheses: tuple[Hypothesis, ...]
    dropped: tuple[str, ...] = ()


class UnknownReader(Problem):
    """The night file names a reader that there is not."""

    exit_code = USAGE


def reader_names(readers: Sequence[str] | None) -> list[str]:
    """`readers`, or all of them. Raises UnknownReader: asked before a night, so that a slip costs no baseline."""
    names = list(READERS) if readers is None else list(readers)
    for name in names:
        if name not in READERS:
            meant = near(name, READERS)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(READERS)}"
            raise UnknownReader(f"readers: there is no reader {name}; {hint}")
    return names


def research(dossier: Dossier, readers: Sequence[str] | None = None) -> Research:
    """`readers` None: all of them. Raises UnknownReader. A reader that fails, or takes MOST_S, costs its own findings
    only."""
    names = reader_names(readers)
    found = [from_night_file(item, dossier) for item in dossier.try_first]
    dropped: list[str] = []
    for name in names:
        try:
            said, left_out = at_most(MOST_S, partial(_asked, READERS[name], dossier))
            found += said
            dropped += left_out
        except Exception as error:  # a reader is a guest: its fault must not end the night
            what = " ".join(str(error).split())[:300]
            dropped.append(f"reader {name} failed and was left out: {type(error).__name__}: {what}")
    kept: list[Hypothesis] = []
    for h in found:
        # What a person lists by hand is tried all the same, whatever the card's sheet and earlier nights say.
        by_hand = h.proposer == NIGHT_FILE
        fault = unwritable(h) or (None if by_hand else absent_dtype(h.change, dossier))
        refused = () if by_hand else dossier.refused_before
        fault = fault or static_check(h.change, dossier.spec, dossier.knobs, refused, subject=dossier)
        if fault:
            dropped.append(f"{h.change} ({h.proposer}): {fault}"[:MOST_DROPPED])
        else:
            kept.append(scored(h))
    best, more = _that_fit(order(merge(kept)))
    return Research(hypotheses=best, dropped=tuple(dict.fromkeys([*dropped, *more])))


def _asked(reader: Reader, dossier: Dossier) -> tuple[list[Hypothesis], list[str]]:
    return reader.hypotheses(dossier), reader.dropped(dossier)


def unwritable(h: Hypothesis) -> str | None:
    """Why no line of the ledger can hold it, or None: a damaged table may hold NaN, which JSON has not, or megabytes. A
    line that cannot be written ends the night."""
    try:
        size = _size(h)
    except ValueError:
        return "it holds a number that is none (NaN or infinity): repair the table that it is from"
    if size > MOST_CHARS and h.proposer != NIGHT_FILE:
        return f"it takes {size:,} characters, more than the {MOST_CHARS:,} that are tried"
    return None


def _size(h: Hypothesis) -> int:
    """Characters as JSON. Raises ValueError for NaN and infinities."""
    return len(json.dumps(h.model_dump(mode="json"), allow_nan=False))


def _that_fit(ranked: tuple[Hypothesis, ...]) -> tuple[tuple[Hypothesis, ...], list[str]]:
    """The best of them, as many as one line holds, and a line for each of the others."""
    best: list[Hypothesis] = []
    more: list[str] = []
    room = MOST_CHARS_TOGETHER
    for h in ranked:
        size = _size(h)
        if size <= room:
            best.append(h)
            room -= size
        else:
            more.append(f"{h.change} ({h.proposer}): better ones fill the ledger's line"[:MOST_DROPPED])
    return tuple(best), more


def from_night_file(item: TryItem, dossier: Dossier) -> Hypothesis:
    """A hand-written hypothesis, with the writer's own numbers."""
    lever = LEVERS[item.lever]
    key = lever.normalise(item.key)
    change = Change(lever=item.lever, key=key, before=lever.read(dossier.spec, key), after=item.after)
    return Hypothesis(
        change=change,
        proposer=NIGHT_FILE,
        why=item.why,
        evidence=(Evidence(source=NIGHT_FILE, detail="try_first"),),
        predicted_gain=item.predicted_gain,
        probability=item.probability,
        cost_s=item.cost_s,
        planted=item.planted,
    )


def merge(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """One hypothesis a change. The numbers of the highest score stand; proposers, reasons and evidence are joined, the
    lowest bound and the highest risk count."""
    groups: dict[str, list[Hypothesis]] = {}
    for h in found:
        groups.setdefault(h.change.id, []).append(h)
    return [_merged(group) if len(group) > 1 else group[0] for group in groups.values()]


def _merged(group: list[Hypothesis]) -> Hypothesis:
    best = max(group, key=lambda h: h.score)  # the first of equals
    bounds = [h.bound for h in group if h.bound is not None]
    joined = best.model_copy(
        update={
            "proposer": " + ".join(dict.fromkeys(h.proposer for h in group)),
            "why": "; also: ".join(dict.fromkeys([best.why, *(h.why for h in group)])),
            "evidence": tuple(dict.fromkeys(e for h in group for e in h.evidence)),
            "bound": min(bounds) if bounds else None,
            "risk": max((h.risk for h in group), key=_RISKS.index),
            "planted": any(h.planted for h in group),
        }
    )
    return scored(joined)


TIE = re.compile(r" \(same score as .*; listed by lever, key and value\)$", re.DOTALL)


def order(found: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Best score first; equal scores by lever, key and value, and the later one says so. What an order of before said
    is taken back: a night orders again, with what earlier nights found."""
    ranked = sorted(found, key=lambda h: (-round(h.score, 9), h.change.lever, h.change.key, _text(h)))
    out: list[Hypothesis] = []
    for h in ranked:
        if TIE.search(h.why):
            h = h.model_copy(update={"why": TIE.sub("", h.why)})
        if out and math.isclose(h.score, out[-1].score, abs_tol=1e-9):
            tie = f" (same score as {out[-1].change}; listed by lever, key and value)"
            h = h.model_copy(update={"why": h.why + tie})
        out.append(h)
    return tuple(out)


def _text(h: Hypothesis) -> str:
    return json.dumps(h.change.after, sort_keys=True)
