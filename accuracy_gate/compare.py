"""Two token runs side by side: where they part, and how far the numbers moved while they still read the same text.

Position t of two sequences has *the same context* while all tokens before t are equal: up to and including the first
divergence. After it the two engines read different texts and nothing can be compared. Two numbers are taken:

    drift   the change of the log-probability of the same token (nats), at positions where both chose it;
    shift   the change of the lead of the reference's token over its rival (nats). The rival is the token that the
            candidate chose where they differ, else the reference's runner-up. A lead is a difference of two logits:
            the normaliser cancels, so it does not fade where the model is certain, as a log-probability does.
Both are candidate minus reference.

At a divergence the reference led by `reference_gap` and the candidate's token leads by `candidate_gap` in the
candidate: the size of the shift is their sum, and it is all that a wrong token says about an engine. A near-tie needs a
small one. Pure functions of data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from accuracy_gate.collect import Position, TokenRun, TokenSequence
from contracts import Frozen

Outcome = Literal["equal", "diverged", "short", "not_greedy", "other_prompt", "error"]


class Divergence(Frozen):
    """The first position at which two greedy runs chose different tokens."""

    prompt_id: str
    position: int
    reference_token: int
    candidate_token: int
    top2_gap: float | None  # between the reference's two best tokens, whatever the candidate chose
    reference_gap: float  # lead of the reference's token over the candidate's, in the reference
    candidate_gap: float  # lead of the candidate's token over the reference's, in the candidate
    candidate_rank: int | None  # of the candidate's token in the reference's list; 2 = second choice, None = not in it
    reference_rank: int | None  # the reverse

    @property
    def size(self) -> float:
        """How far the two tokens moved against each other."""
        return self.reference_gap + self.candidate_gap


class PromptComparison(Frozen):
    prompt_id: str
    outcome: Outcome
    detail: str = ""
    drifts: tuple[float, ...] = ()  # one for each position that both chose alike
    shifts: tuple[float, ...] = ()  # one for each position of the same context
    divergence: Divergence | None = None


class Comparison(Frozen):
    """`prompts` in the reference's order; only those that the candidate was asked too."""

    mode: str
    prompts: tuple[PromptComparison, ...]

    def named(self, outcome: str) -> tuple[PromptComparison, ...]:
        return tuple(prompt for prompt in self.prompts if prompt.outcome == outcome)

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        return tuple(prompt.divergence for prompt in self.prompts if prompt.divergence)

    @property
    def shifts(self) -> tuple[float, ...]:
        return tuple(shift for prompt in self.prompts for shift in prompt.shifts)

    @property
    def drifts(self) -> tuple[float, ...]:
        return tuple(drift for prompt in self.prompts for drift in prompt.drifts)

    @property
    def exact(self) -> bool:
        """Every token ID equal; the log-probabilities may still have moved."""
        return bool(self.prompts) and all(prompt.outcome == "equal" for prompt in self.prompts)


def rms(values: Iterable[float]) -> float:
    squares = [value * value for value in values]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def mean_abs(values: Iterable[float]) -> float:
    sizes = [abs(value) for value in values]
    return sum(sizes) / len(sizes) if sizes else 0.0


def max_abs(values: Iterable[float]) -> float:
    return max((abs(value) for value in values), default=0.0)


def compare(reference: TokenRun, candidate: TokenRun) -> Comparison:
    """Raises ValueError when the two runs were not asked alike: another mode, width, length, or unknown prompts.

    Comparing alone with concurrent is how benign rounding is measured (band.py), so that difference is allowed and
    named in `mode`.
    """
    if reference.tokens != candidate.tokens:
        raise ValueError(f"the runs asked for {reference.tokens} and {candidate.tokens} tokens; collect both alike")
    known = {sequence.prompt_id: sequence for sequence in reference.sequences}
    unknown = [sequence.prompt_id for sequence in candidate.sequences if sequence.prompt_id not in known]
    if unknown:
        raise ValueError(f"the reference has no answer to {', '.join(unknown[:3])}; collect both with the same prompts")
    mode = candidate.mode if reference.mode == candidate.mode else f"{reference.mode} against {candidate.mode}"
    pairs = ((known[sequence.prompt_id], sequence) for sequence in candidate.sequences)
    return Comparison(mode=mode, prompts=tuple(_compare_one(a, b, reference.tokens) for a, b in pairs))


def _compare_one(reference: TokenSequence, candidate: TokenSequence, tokens: int) -> PromptComparison:
    drifts: list[float] = []
    shifts: list[float] = []

    def found(outcome: Outcome, detail: str = "", divergence: Divergence | None = None) -> PromptComparison:
        return PromptComparison(
            prompt_id=reference.prompt_id, outcome=outcome, detail=detail, drifts=tuple(drifts), shifts=tuple(shifts),
            divergence=divergence,
        )  # fmt: skip

    for who, sequence in (("reference", reference), ("candidate", candidate)):
        if sequence.error:
            return found("error", f"{who}: {sequence.error}: {sequence.detail}")
    read = (reference.prompt_tokens_hash, candidate.prompt_tokens_hash)
    if None not in read and read[0] != read[1]:
        return found("other_prompt", "the engines turned the same prompt into different token IDs")

    # Promised for the whole answer, also after the two part: that it is as long as asked, and greedy.
    made = (len(reference.positions), len(candidate.positions))
    short = f"{made[1]} tokens, reference {made[0]}, asked {tokens}" if set(made) != {tokens} else ""
    worse = next((index for index, position in enumerate(candidate.positions) if _behind(position) > 0), None)
    for index, (a, b) in enumerate(zip(reference.positions, candidate.positions, strict=False)):
        if worse is not None and (index == worse or a.token != b.token):
            one = candidate.positions[worse]
            words = f"took token {one.token} though {one.top[0][0]} led by {_behind(one):.3f} nats"
            return found("not_greedy", f"position {worse}: {words}")
        if a.token != b.token:
            divergence = _divergence(reference.prompt_id, index, a, b)
            shifts.append(-divergence.size)
            return found("short", short) if short else found("diverged", divergence=divergence)
        drifts.append(b.logprob - a.logprob)
        rival = next((token for token, _ in a.top if token != a.token), None)
        if rival is not None:
            moved = _lead(b, a.token, rival) - _lead(a, a.token, rival)
            shifts.append(moved if _rank(b, rival) else max(0.0, moved))
    return found("short" if short else "equal", short)


def _behind(position: Position) -> float:
    """How far the chosen token lies behind the best one. 0 for a greedy choice, ties included.

    Token and log-probabilities come from the same logits of the same step, so no rounding can part them; 1e-4 nats
    is only for the float32 log-softmax (values up to about 30, spacing 2e-6).
    """
    behind = position.top[0][1] - position.logprob
    return behind if behind > 1e-4 else 0.0


def _logprob(position: Position, token: int) -> float:
    """Of a token not in the list: that of the last one listed, which is the most that it can be."""
    return next((value for listed, value in position.top if listed == token), position.top[-1][1])


def _lead(position: Position, token: int, rival: int) -> float:
    """Of token over rival; a bound from below on the size where one of them is not listed."""
    own = position.logprob if token == position.token else _logprob(position, token)
    other = position.logprob if rival == position.token else _logprob(position, rival)
    return own - other


def _rank(position: Position, token: int) -> int | None:
    return next((rank for rank, (listed, _) in enumerate(position.top, 1) if listed == token), None)


def _divergence(name: str, index: int, a: Position, b: Position) -> Divergence:
    return Divergence(
        prompt_id=name,
        position=index,
        reference_token=a.token,
        candidate_token=b.token,
        top2_gap=a.top[0][1] - a.top[1][1] if len(a.top) > 1 else None,
        reference_gap=max(0.0, _lead(a, a.token, b.token)),
        candidate_gap=max(0.0, _lead(b, b.token, a.token)),
        candidate_rank=_rank(a, b.token),
        reference_rank=_rank(b, a.token),
    )
