"""What a reader of the audit says: one thing that a person can check, and, where something can be tried, what it is
worth and why. A change that a lever of nightgate can apply makes it a hypothesis for a night; anything else (a table
entry, a patch) is told in `fix`, ready to be applied by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from contracts import Change, Evidence, Frozen, Hypothesis

Phase = Literal["prefill", "decode", "all"]

# Of the time that a ceiling says can be saved at most, what is expected. Judged: a kernel reaches a part of the peaks
# before and after, and what it does besides (converting, scales) no peak counts. No measurement stands behind it.
EXPECTED = 0.5


def expected(ceiling: float) -> float:
    """A speed-up where only the best possible one is known."""
    return 1 / (1 - EXPECTED * (1 - 1 / ceiling))


def amdahl(share: float, speedup: float) -> float:
    """The whole's gain where a share of its time gets so many times as fast: 1 / (1 - share + share / speedup)."""
    return 1 / (1 - share + share / speedup)


class Terms(Frozen):
    """What the rank rests on. gain = Amdahl(share, speedup); score = log(gain) * probability / cost, per hour of card
    time. Every number says where it comes from: "measured in trace x", "estimated: roofline of gfx950", "judged"."""

    phase: Phase
    share: float = Field(ge=0, le=1)  # of the objective's time: phase weight * share of that phase
    share_from: str
    share_measured: bool = False  # a profile says it: then no gain beyond `bound` is believed
    speedup: float = Field(gt=0)  # of that share alone
    speedup_from: str
    probability: float = Field(ge=0, le=1)
    probability_from: str = "judged"
    cost_s: float = Field(gt=0)  # card time to find out

    @property
    def gain(self) -> float:
        """Ratio on the whole."""
        return amdahl(self.share, self.speedup)

    @property
    def bound(self) -> float:
        """If the share took no time at all."""
        return math.inf if self.share >= 1 else 1 / (1 - self.share)

    @property
    def evidence(self) -> tuple[Evidence, Evidence]:
        """What the gain was computed from, for who reads in the morning how a prediction came about."""
        share = Evidence(source="share of the time", detail=f"{self.share:.0%}: {self.share_from}")
        return share, Evidence(source="speed-up of that share", detail=f"{self.speedup:.3g}x: {self.speedup_from}")

    @property
    def score(self) -> float:
        return math.log(self.gain) * self.probability / (self.cost_s / 3600)


def together(parts: Sequence[Terms], known: Sequence[Terms] = ()) -> Terms:
    """Of parts that are tried at once: their shares add up, and each is sped up by its own number. `known`: what others
    saw of the whole of it; the lower speed-up and the lower probability count, each with its own words."""
    share = sum(part.share for part in parts)
    left = sum(part.share / part.speedup for part in parts)
    whole = parts[0].model_copy(
        update={
            "share": min(1.0, share),
            "share_from": _one_beginning([part.share_from for part in parts]),
            "share_measured": all(part.share_measured for part in parts),
            "speedup": share / left if left else parts[0].speedup,
            "speedup_from": "; ".join(dict.fromkeys(part.speedup_from for part in parts)),
        }
    )
    slow = min((whole, *known), key=lambda t: t.speedup)  # the first of equals
    doubt = min((*parts, *known), key=lambda t: t.probability)
    return whole.model_copy(
        update={
            "speedup": slow.speedup,
            "speedup_from": slow.speedup_from,
            "probability": doubt.probability,
            "probability_from": doubt.probability_from,
        }
    )


def _one_beginning(words: Sequence[str]) -> str:
    """ "a; x", "a; y" -> "a; x and y": parts of one share say the same of the whole."""
    begin = {w.rpartition("; ")[0] for w in words}
    ends = dict.fromkeys(w.rpartition("; ")[2] for w in words)
    return f"{begin.pop()}; {' and '.join(ends)}" if len(begin) == 1 and len(words) > 1 else "; ".join(words)


class Finding(Frozen):
    """opportunity: something to try, with `terms`. trap: what would waste a night or serve something wrong.
    fact: what a person who reads the rest should know."""

    reader: str
    kind: Literal["opportunity", "trap", "fact"]
    title: str  # one sentence, with its numbers
    evidence: tuple[Evidence, ...]  # file:line or file#row, and what stands there; never empty
    unnamed: int = 0  # places like these that the evidence leaves out
    fix: str = ""  # what to do: the table entry as JSON, a unified diff, a command
    change: Change | None = None  # where a lever can apply it
    terms: Terms | None = None
    risk: Literal["low", "medium", "high"] = "low"
    # What is to be done, where no change says it: opportunities of one name are one (audit.merge). A prior's own id.
    same_as: str = ""

    def hypothesis(self) -> Hypothesis | None:
        """For a night's queue, or None where nothing can be applied or won. A share that was judged or estimated bounds
        nothing: it may be several times too small, and the night would call a real gain mismeasured."""
        if self.change is None or self.terms is None or self.terms.gain <= 1:
            return None
        bound = self.terms.bound if self.terms.share_measured else math.inf
        return Hypothesis(
            change=self.change,
            proposer=self.reader,
            why=self.title,
            evidence=(*self.evidence, *self.terms.evidence),
            predicted_gain=self.terms.gain,
            bound=None if math.isinf(bound) else bound,
            probability=self.terms.probability,
            cost_s=self.terms.cost_s,
            risk=self.risk,
        )


def plural(count: int, noun: str) -> str:
    """1 finding, 2 findings."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
