"""Ask a running engine for greedy continuations, and keep what it said token by token.

`alone` sends one request at a time; `concurrent` sends waves of `concurrency` requests (asking.py). Nothing is scored
here. A request that failed is a sequence with an `error`, never one with wrong tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from accuracy_gate.asking import NEUTRAL, Asker, ErrorKind, Saved, asking
from accuracy_gate.prompts import Prompt, prompts_hash
from contracts import Frozen, content_hash
from engine.running import RunningEngine

Mode = Literal["alone", "concurrent"]

# Alternatives kept at each position. Two show a near-tie; where three tokens are within one step of a bf16 logit, the
# candidate may rightly take the third, and only a longer list shows how close it was.
ALTERNATIVES = 5


class Position(Frozen):
    """One generated token. Log-probabilities are natural logarithms over the whole vocabulary, before sampling."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the best tokens and their log-probabilities, best first


class TokenSequence(Frozen):
    prompt_id: str
    prompt_tokens_hash: str | None = None  # of the prompt's token IDs as the engine read them
    positions: tuple[Position, ...] = ()
    finish_reason: str | None = None
    error: ErrorKind | None = None
    detail: str = ""

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(position.token for position in self.positions)


class TokenRun(Saved):
    """What one launch answered to one list of prompts, in one mode."""

    launch_id: str
    spec_id: str
    mode: Mode
    concurrency: int  # 1 for alone
    tokens: int  # asked of each prompt; end-of-sequence is ignored
    prompts_hash: str
    sequences: tuple[TokenSequence, ...]
    seconds: float

    @property
    def errors(self) -> tuple[TokenSequence, ...]:
        return tuple(sequence for sequence in self.sequences if sequence.error)


def collect(
    engine: RunningEngine,
    prompts: Sequence[Prompt],
    tokens: int = 60,
    mode: Mode = "alone",
    concurrency: int = 8,
    timeout: float = 120.0,
) -> TokenRun:
    """`tokens` greedy tokens for each prompt. `timeout` seconds hold for each request.

    After the first wave with a time-out or a broken connection the rest is not asked: an engine that hangs costs
    one time limit, not one for each prompt. The engine's identity is checked before and after.
    Raises EngineFailure when the engine is not (or no longer) ours.
    """
    items = tuple(prompts)
    width = 1 if mode == "alone" else max(1, concurrency)
    with asking(engine, width, timeout) as asker:
        waves = asker.waves(
            items,
            lambda prompt: _ask(asker, prompt, tokens),
            lambda prompt: TokenSequence(prompt_id=prompt.id, error="not_asked"),
            width,
        )
        answered = tuple(sequence for wave in waves for sequence in wave)
    return TokenRun(
        launch_id=engine.record.launch_id,
        spec_id=engine.record.spec_id,
        mode=mode,
        concurrency=width,
        tokens=tokens,
        prompts_hash=prompts_hash(items),
        sequences=answered,
        seconds=asker.seconds,
    )


def _ask(asker: Asker, prompt: Prompt, tokens: int) -> TokenSequence:
    body = {
        "model": asker.model, "prompt": prompt.text, "max_tokens": tokens, "ignore_eos": True, **NEUTRAL,
        "logprobs": ALTERNATIVES, "return_tokens_as_token_ids": True, "return_token_ids": True,
        "cache_salt": asker.salt,
    }  # fmt: skip
    return asker.post(
        "/v1/completions",
        body,
        lambda answer: parse(prompt.id, answer),
        lambda kind, words: TokenSequence(prompt_id=prompt.id, error=kind, detail=words),
    )


def parse(prompt_id: str, answer: dict[str, Any]) -> TokenSequence:
    """A /v1/completions answer of vLLM (read for 0.32.0) with `token_ids` and `logprobs` as `token_id:N`.

    Raises ValueError (or a lookup error) when a part is missing, when the lists disagree or when a number is not
    finite: a NaN must not look like a small difference later.
    """
    choice = answer["choices"][0]
    ids, logprobs = choice["token_ids"], choice["logprobs"]
    if not ids:
        raise ValueError("no token IDs in the answer")
    if not len(ids) == len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]):
        raise ValueError("token IDs and log-probabilities differ in number")
    positions: list[Position] = []
    for token, logprob, top in zip(ids, logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        best = [(int(name.removeprefix("token_id:")), float(value)) for name, value in top.items()]
        best.sort(key=lambda pair: (-pair[1], pair[0]))
        position = Position(token=token, logprob=logprob, top=tuple(best[:ALTERNATIVES]))
        if not all(math.isfinite(value) for value in (position.logprob, *(value for _, value in position.top))):
            raise ValueError(f"log-probability at position {len(positions)} is not a finite number")
        if not position.top:
            raise ValueError(f"no alternatives at position {len(positions)}")
        positions.append(position)
    asked = choice.get("prompt_token_ids")
    return TokenSequence(
        prompt_id=prompt_id,
        prompt_tokens_hash=content_hash(asked) if asked else None,
        positions=tuple(positions),
        finish_reason=choice.get("finish_reason"),
    )
