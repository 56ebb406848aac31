"""Small made-up token runs: what a test needs, and nothing recorded."""

from __future__ import annotations

from collections.abc import Sequence

from accuracy_gate.collect import Mode, Position, TokenRun, TokenSequence


def position(token: int, rival: int, lead: float = 1.0, logprob: float = -0.5) -> Position:
    """`token` is chosen and leads `rival` by `lead` nats."""
    return Position(token=token, logprob=logprob, top=((token, logprob), (rival, logprob - lead), (9, logprob - 8)))


def sequence(prompt_id: str, positions: Sequence[Position], **other: object) -> TokenSequence:
    return TokenSequence(prompt_id=prompt_id, positions=tuple(positions), **other)


def run(*sequences: TokenSequence, mode: Mode = "alone", tokens: int | None = None, width: int = 1) -> TokenRun:
    asked = tokens or max((len(s.positions) for s in sequences), default=0)
    return TokenRun(
        launch_id="L001", spec_id="made up", mode=mode, concurrency=width, tokens=asked, prompts_hash="made up",
        sequences=sequences, seconds=1.0,
    )  # fmt: skip
