"""Ask a running engine how likely it finds the tokens of fixed texts: vLLM's `prompt_logprobs`.

A request with prompt_logprobs takes nothing from the prefix cache (vLLM 0.32.0 sampling_params.py,
skip_reading_prefix_cache), so every position is computed. `alone` sends one text at a time, `concurrent` waves of
`concurrency` (asking.py). A request that failed is a sequence with an `error`, never one with wrong numbers.

With `decode`, the first texts are also continued by so many greedy tokens, one text at a time, and the continuations
are then read back as text: the same tokens after the same tokens, once in batches of one row and once all together.
Their sums are the same in another order and by other kernels, so the difference is rounding, on an engine that may show
none between two ways of reading: vLLM 0.32.0 on a CPU reads bit-equally at every width, and decodes so from 4 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from accuracy_gate import collect
from accuracy_gate.asking import NEUTRAL, Asker, Saved, asking
from accuracy_gate.collect import Mode, Position, TokenSequence
from accuracy_gate.prompts import Prompt, prompts_hash
from contracts import content_hash
from engine.running import RunningEngine

# Best tokens listed at each position, beside the text's own. Every one is a logit that can be seen to move.
ALTERNATIVES = 10
DECODED_TEXTS = 8  # continued and read back, where `decode` asks for it
NEVER = -9999.0  # what vLLM writes for a log-probability of minus infinity

Sequences = tuple[TokenSequence, ...]


class DriftRun(Saved):
    """What one launch found likely, in one mode. `sequences[i].positions[j]` is the (j+2)nd token of text i, the first
    token has nothing before it: `token` and `logprob` (nats) are the text's own, `top` the best, best first.

    `decoded` and `read_back` are the continuations of the first texts, made and read; the same tokens, where neither
    has an error."""

    launch_id: str
    spec_id: str
    mode: Mode
    concurrency: int  # 1 for alone
    texts_hash: str
    sequences: tuple[TokenSequence, ...]
    decoded: tuple[TokenSequence, ...] = ()
    read_back: tuple[TokenSequence, ...] = ()
    seconds: float

    @property
    def errors(self) -> tuple[TokenSequence, ...]:
        return tuple(one for one in (*self.sequences, *self.decoded, *self.read_back) if one.error)


@dataclass(frozen=True)
class _Text:
    """What is sent: words, or token IDs. `read_from`: the first position that is kept."""

    id: str
    prompt: str | list[int]
    read_from: int = 1


def collect_drift(
    engine: RunningEngine,
    texts: Sequence[Prompt],
    mode: Mode = "alone",
    concurrency: int = 8,
    timeout: float = 120.0,
    decode: int = 0,
) -> DriftRun:
    """Reads each text once; `decode` tokens are generated for the first DECODED_TEXTS and read back (a reference needs
    them, about 32; a candidate does not). `timeout` seconds hold for each request; after a wave with a time-out or a
    broken connection the rest is not asked. The engine's identity is checked before and after.
    Raises EngineFailure when the engine is not (or no longer) ours.
    """
    width = 1 if mode == "alone" else max(1, concurrency)
    asked = [_Text(text.id, text.text) for text in texts]
    decoded: Sequences = ()
    back: Sequences = ()
    with asking(engine, width, timeout) as asker:

        def waves(texts: Sequence[_Text], one: Callable[[_Text], TokenSequence], at_once: int) -> Sequences:
            done = asker.waves(texts, one, lambda text: TokenSequence(prompt_id=text.id, error="not_asked"), at_once)
            return tuple(sequence for wave in done for sequence in wave)

        read = waves(asked, lambda text: _read(asker, text), width)
        if decode and not asker.lost:
            made: dict[str, list[int]] = {}
            decoded = waves(asked[:DECODED_TEXTS], lambda text: _continue(asker, text, decode, made), at_once=1)
            whole = [
                _Text(one.prompt_id, [*made[one.prompt_id], *one.ids], len(made[one.prompt_id]))
                for one in decoded
                if not one.error
            ]
            back = waves(whole, lambda text: _read(asker, text), width)
    return DriftRun(
        launch_id=engine.record.launch_id,
        spec_id=engine.record.spec_id,
        mode=mode,
        concurrency=width,
        texts_hash=prompts_hash(tuple(texts)),
        sequences=read,
        decoded=decoded,
        read_back=back,
        seconds=asker.seconds,
    )


def _read(asker: Asker, text: _Text) -> TokenSequence:
    body = {"max_tokens": 1, "prompt_logprobs": ALTERNATIVES}
    return _send(asker, text, body, lambda answer: parse(text.id, answer, text.read_from))


def _continue(asker: Asker, text: _Text, tokens: int, made: dict[str, list[int]]) -> TokenSequence:
    """`tokens` greedy tokens; the text's own token IDs are put into `made`, from where they are read back."""

    def parsed(answer: dict[str, Any]) -> TokenSequence:
        sequence = collect.parse(text.id, answer)
        made[text.id] = [int(token) for token in answer["choices"][0]["prompt_token_ids"]]
        whole = content_hash([*made[text.id], *sequence.ids])
        return sequence.model_copy(update={"prompt_tokens_hash": whole})

    body = {
        "max_tokens": tokens, "logprobs": collect.ALTERNATIVES, "return_tokens_as_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    return _send(asker, text, body, parsed)


def _send(
    asker: Asker, text: _Text, body: dict[str, Any], read: Callable[[dict[str, Any]], TokenSequence]
) -> TokenSequence:
    whole = {
        "model": asker.model, "prompt": text.prompt, **NEUTRAL, **body, "return_token_ids": True,
        "cache_salt": asker.salt,
    }  # fmt: skip
    return asker.post(
        "/v1/completions",
        whole,
        read,
        lambda kind, words: TokenSequence(prompt_id=text.id, error=kind, detail=words),
    )


def parse(text_id: str, answer: dict[str, Any], read_from: int = 1) -> TokenSequence:
    """A /v1/completions answer of vLLM (read for 0.32.0) with `prompt_logprobs` and `prompt_token_ids`, from the
    token with index `read_from` on.

    prompt_logprobs has one entry a token: null for the first, then {token ID as text: {logprob, rank, decoded_token}},
    the text's own token among them. Raises ValueError (or a lookup error) when a part is missing or no finite number.
    """
    choice = answer["choices"][0]
    ids, listed = choice["prompt_token_ids"], choice["prompt_logprobs"]
    if not ids or len(ids) != len(listed):
        raise ValueError("prompt token IDs and prompt log-probabilities differ in number")
    positions: list[Position] = []
    for token, entry in zip(ids[read_from:], listed[read_from:], strict=True):
        found = {int(name): float(one["logprob"]) for name, one in entry.items()}
        if not all(math.isfinite(value) and value > NEVER for value in found.values()):
            raise ValueError(f"log-probability of token {len(positions) + read_from} of the text is no finite number")
        best = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:ALTERNATIVES]
        positions.append(Position(token=token, logprob=found[token], top=tuple(best)))
    return TokenSequence(prompt_id=text_id, prompt_tokens_hash=content_hash(ids), positions=tuple(positions))
