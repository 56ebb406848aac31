"""A row of a table as a change that a night can try: built, and held to all that its lever checks without a card.

Where the right tile is not known, several rows for one place are several hypotheses, the best first. How many, and how
likely each is, is judged: nobody measured what a borrowed or copied row is worth on these cards.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from agents.research.dossier import Dossier
from agents.tuning.apply import same
from agents.tuning.levers import LEVERS
from agents.tuning.levers.in_overlay import container_fault
from contracts import Change, Frozen, Lever

# Of one place. Judged: a night has room for some ten tries, and the fourth guess of one place is worth less than the
# first of another.
MOST = 3
# A row of tonight (or of the night file) serves this place already; what is left to win there is less. Judged.
LAID = 0.5


class Candidate(Frozen):
    """A row that could be laid. `factor`: of the probability, next to the first candidate of its kind. Judged."""

    lever: Lever
    key: str
    row: JsonValue
    words: str  # where its numbers are from
    source: str  # file or file#row of that
    factor: float = 1.0


class Tried(NamedTuple):
    candidate: Candidate
    change: Change | None
    probability: float


def change(dossier: Dossier, found: Candidate) -> Change | None:
    """None where the lever would refuse it, or the engine has it already."""
    lever = LEVERS[found.lever]
    key = lever.normalise(found.key)
    if lever.validate(key, found.row, dossier.knobs):
        return None
    before = lever.read(dossier.spec, key)
    if same(before, found.row):
        return None
    return Change(lever=found.lever, key=key, before=before, after=found.row)


def changes(dossier: Dossier, found: list[Candidate], probability: float, most: int = MOST) -> list[Tried]:
    """The first `most` candidates that can be applied, each with its change and its probability. One row is not told
    twice. Of an engine in a container, the first candidate without a change: nothing can be laid over an image."""
    if found and container_fault(found[0].lever, dossier.spec.container):
        return [Tried(found[0], None, probability * found[0].factor)]
    out: list[Tried] = []
    for one in found:
        made = change(dossier, one)
        if made is None or any(t.change and made.key == t.change.key and same(made.after, t.change.after) for t in out):
            continue
        likely = probability * one.factor * (1.0 if made.before is None else LAID)
        out.append(Tried(one, made, likely))
        if len(out) == most:
            break
    return out
