"""Two drift runs side by side, in numbers. The text is fixed, so every position can be compared.

At each position the tokens that both runs list are taken. Their log-probabilities are logits less a normaliser that
they share; taking the position's mean off cancels it. What is left of token j is

    level_j = mean of both runs' centred log-probabilities,  move_j = candidate's less reference's            (nats)

Taking the mean of both as the level, and only tokens that both list, treats the two alike: with the reference's level
alone, a token that rounding had put up in the reference would seem to fall in the candidate (regression to the mean),
and an unchanged engine would seem less sure of itself.

Of these three kinds of numbers are made, all by text, because a text is the unit that repeats:
    size        rms of the moves;
    likelihood  how the log-probability of the text's own token changed;
    sharpness   slope b of move on level: the candidate's logits are (1 + b) times the reference's;
Pure functions of data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accuracy_gate.collect import Position, TokenSequence
from accuracy_gate.drift_collect import DriftRun

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TextMoves:
    """One text. `level`, `move` (nats) and `where` (index of the position) have one entry for each position and token
    that both list; `change` has one for each position: the log-probability of the text's own token, candidate less
    reference (nats)."""

    text_id: str
    where: npt.NDArray[np.int64]
    level: Floats
    move: Floats
    change: Floats


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
    def moves(self) -> Floats:
        return np.concatenate([text.move for text in self.texts]) if self.texts else np.empty(0)

    @property
    def changes(self) -> Floats:
        return np.concatenate([text.change for text in self.texts]) if self.texts else np.empty(0)


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
    where: list[int] = []
    level: list[float] = []
    move: list[float] = []
    for index, (a, b) in enumerate(zip(reference.positions, candidate.positions, strict=True)):
        mine, theirs = _listed(a), _listed(b)
        both = [token for token in mine if token in theirs]
        if len(both) < 2:
            continue
        first = np.array([mine[token] for token in both])
        second = np.array([theirs[token] for token in both])
        first, second = first - first.mean(), second - second.mean()
        where += [index] * len(both)
        level += ((first + second) / 2).tolist()
        move += (second - first).tolist()
    change = [b.logprob - a.logprob for a, b in zip(reference.positions, candidate.positions, strict=True)]
    return TextMoves(
        text_id=reference.prompt_id, where=np.array(where, dtype=np.int64), level=np.array(level),
        move=np.array(move), change=np.array(change),
    )  # fmt: skip


def _listed(position: Position) -> dict[int, float]:
    return dict(position.top) | {position.token: position.logprob}


# --- statistics ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """`value` with its standard error, from the differences between texts; `error` is None with fewer than two."""

    value: float
    error: float | None


def size(comparison: DriftComparison) -> float:
    """rms of the moves (nats); 0 without any."""
    moves = comparison.moves
    return float(np.sqrt(np.mean(moves**2))) if len(moves) else 0.0


def largest(comparison: DriftComparison) -> tuple[float, str]:
    """The largest move (nats, unsigned) and where it was."""
    found = (0.0, "")
    for text in comparison.texts:
        if len(text.move):
            at = int(np.argmax(np.abs(text.move)))
            found = max(found, (abs(float(text.move[at])), f"{text.text_id}, token {int(text.where[at]) + 1}"))
    return found


def likelihood(comparison: DriftComparison) -> Estimate:
    """Mean change of the log-probability of the text's own token (nats a token); below 0: the model became worse."""
    pairs = [(float(text.change.sum()), float(len(text.change))) for text in comparison.texts]
    return ratio(pairs)


def sharpness(comparison: DriftComparison) -> Estimate:
    """Slope of move on level, no unit: 0.01 means that logits lie 1 % farther apart than the reference's."""
    return ratio([(float(text.move @ text.level), float(text.level @ text.level)) for text in comparison.texts])


def ratio(pairs: list[tuple[float, float]]) -> Estimate:
    """sum(above) / sum(below) over texts, with the usual linearised standard error of a ratio of sums:
    sqrt(n / (n - 1) * sum((above - value * below)^2)) / sum(below)."""
    above, below = (np.array(column) for column in zip(*pairs, strict=True)) if pairs else (np.empty(0), np.empty(0))
    if not below.sum():
        return Estimate(0.0, None)
    value = float(above.sum() / below.sum())
    if len(pairs) < 2:
        return Estimate(value, None)
    residual = above - value * below
    return Estimate(value, float(np.sqrt(len(pairs) / (len(pairs) - 1) * (residual @ residual)) / below.sum()))
