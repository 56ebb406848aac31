"""Two drift runs side by side, in numbers. The text is fixed, so every position can be compared.

At each position the tokens that both runs list are taken. Their log-probabilities are logits less a normaliser that
they share; taking the position's mean off cancels it. What is left of token j is

    level_j = mean of both runs' centred log-probabilities,  move_j = candidate's less reference's            (nats)

Taking the mean of both as the level, and only tokens that both list, treats the two alike: with the reference's level
alone, a token that rounding had put up in the reference would seem to fall in the candidate (regression to the mean),
and an unchanged engine would seem less sure of itself.

Pure functions of data; numpy only to add up some 100,000 moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accuracy_gate.collect import TokenSequence
from accuracy_gate.drift_collect import DriftRun

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextMoves:
    """One text. `level`, `move` (nats) and `where` (index of the position) have one entry for each position and token
    that both list; `change` has one for each position: the log-probability of the text's own token, candidate less
    reference (nats)."""

    text_id: str
    where: Whole
    level: Floats
    move: Floats
    change: Floats

    @property
    def sizes(self) -> Floats:
        """rms of the moves at each position (nats)."""
        count = np.bincount(self.where, minlength=len(self.change))
        squares = np.bincount(self.where, self.move**2, minlength=len(self.change))
        return np.sqrt(squares / np.maximum(count, 1))


@dataclass(frozen=True)
class DriftComparison:
    """`problems`: texts without numbers, and why; `other_text`: texts that the engines read as other tokens."""

    mode: str
    texts: tuple[TextMoves, ...]
    problems: tuple[str, ...] = ()
    other_text: tuple[str, ...] = ()

    @property
    def positions(self) -> int:
        return sum(len(text.change) for text in self.texts)

    @property
    def apart(self) -> int:
        """Positions at which the two lists of best tokens share fewer than two."""
        return sum(int(np.sum(np.bincount(text.where, minlength=len(text.change)) < 2)) for text in self.texts)


def compare(reference: DriftRun, candidate: DriftRun) -> DriftComparison:
    """The candidate's texts, in its order; it may have read fewer. Raises ValueError when one is unknown to the
    reference: that is a mistake of the caller. Modes may differ (that is how rounding is measured), and are named."""
    known = {sequence.prompt_id: sequence for sequence in reference.sequences}
    unknown = [sequence.prompt_id for sequence in candidate.sequences if sequence.prompt_id not in known]
    if unknown:
        raise ValueError(f"the reference did not read {', '.join(unknown[:3])}; collect both with the same texts")
    names = [f"{run.mode} {run.concurrency}" if run.concurrency > 1 else run.mode for run in (reference, candidate)]
    texts: list[TextMoves] = []
    problems: list[str] = []
    other: list[str] = []
    for sequence in candidate.sequences:
        pair = (known[sequence.prompt_id], sequence)
        lost = [
            f"{sequence.prompt_id}: {who}: {one.error}: {one.detail}"
            for who, one in zip(("reference", "candidate"), pair, strict=True)
            if one.error
        ]
        if lost:
            problems.append(lost[0])
        elif pair[0].ids != pair[1].ids or pair[0].prompt_tokens_hash != pair[1].prompt_tokens_hash:
            other.append(sequence.prompt_id)
        else:
            texts.append(_moves(*pair))
    mode = names[0] if names[0] == names[1] else " against ".join(names)
    return DriftComparison(mode=mode, texts=tuple(texts), problems=tuple(problems), other_text=tuple(other))


def _moves(reference: TokenSequence, candidate: TokenSequence) -> TextMoves:
    (tokens, first), (others, second) = _table(reference), _table(candidate)
    # pairs[p, i, j]: the reference's i-th and the candidate's j-th entry at position p are the same token.
    pairs = (tokens[:, :, None] == others[:, None, :]) & (tokens[:, :, None] >= 0)
    where, mine, theirs = np.nonzero(pairs)
    before, after = first[where, mine], second[where, theirs]
    count = np.maximum(np.bincount(where, minlength=len(tokens)), 1)
    before = before - (np.bincount(where, before, minlength=len(tokens)) / count)[where]
    after = after - (np.bincount(where, after, minlength=len(tokens)) / count)[where]
    change = [b.logprob - a.logprob for a, b in zip(reference.positions, candidate.positions, strict=True)]
    return TextMoves(
        text_id=reference.prompt_id,
        where=where,
        level=(before + after) / 2,
        move=after - before,
        change=np.array(change, dtype=np.float64),
    )


def _table(sequence: TokenSequence) -> tuple[Whole, Floats]:
    """Token IDs and log-probabilities, each [positions, listed]; -1 fills up where fewer are listed."""
    lists = [dict(position.top) | {position.token: position.logprob} for position in sequence.positions]
    shape = (len(lists), max((len(one) for one in lists), default=0))
    tokens, logprobs = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
    for row, one in enumerate(lists):
        tokens[row, : len(one)] = list(one)
        logprobs[row, : len(one)] = list(one.values())
    return tokens, logprobs
