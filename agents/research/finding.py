"""What a reader of the audit says: one thing that a person can check, and, where something can be tried, what it is
worth and why. A change that a lever of nightgate can apply makes it a hypothesis for a night; anything else (a table
entry, a patch) is told in `fix`, ready to be applied by hand.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from contracts import Change, Evidence, Frozen, Hypothesis

Phase = Literal["prefill", "decode", "all"]


class Terms(Frozen):
    """What the rank rests on. gain = Amdahl(share, speedup); score = log(gain) * probability / cost, per hour of card
    time. Every number says where it comes from: "measured in trace x", "estimated: roofline of gfx950", "judged"."""

    phase: Phase
    share: float = Field(ge=0, le=1)  # of the objective's time: phase weight * share of that phase
    share_from: str
    speedup: float = Field(gt=0)  # of that share alone
    speedup_from: str
    probability: float = Field(ge=0, le=1)
    probability_from: str = "judged"
    cost_s: float = Field(gt=0)  # card time to find out

    @property
    def gain(self) -> float:
        """Ratio on the whole: 1 / (1 - share + share / speedup)."""
        return 1 / (1 - self.share + self.share / self.speedup)

    @property
    def bound(self) -> float:
        """If the share took no time at all."""
        return math.inf if self.share >= 1 else 1 / (1 - self.share)

    @property
    def score(self) -> float:
        return math.log(self.gain) * self.probability / (self.cost_s / 3600)


class Finding(Frozen):
    """opportunity: something to try, with `terms`. trap: what would waste a night or serve something wrong.
    fact: what a person who reads the rest should know."""

    reader: str
    kind: Literal["opportunity", "trap", "fact"]
    title: str  # one sentence, with its numbers
    evidence: tuple[Evidence, ...]  # file:line or file#row, and what stands there; never empty
    fix: str = ""  # what to do: the table entry as JSON, a unified diff, a command
    change: Change | None = None  # where a lever can apply it
    terms: Terms | None = None
    risk: Literal["low", "medium", "high"] = "low"

    def hypothesis(self) -> Hypothesis | None:
        """For a night's queue, or None where nothing can be applied or won."""
        if self.change is None or self.terms is None or self.terms.gain <= 1:
            return None
        bound = self.terms.bound
        return Hypothesis(
            change=self.change,
            proposer=self.reader,
            why=self.title,
            evidence=self.evidence,
            predicted_gain=self.terms.gain,
            bound=None if math.isinf(bound) else bound,
            probability=self.terms.probability,
            cost_s=self.terms.cost_s,
            risk=self.risk,
        )
