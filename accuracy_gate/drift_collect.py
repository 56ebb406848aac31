"""Ask a running engine how likely it finds the tokens of fixed texts: vLLM's `prompt_logprobs`.

A request with prompt_logprobs takes nothing from the prefix cache (vLLM 0.32.0 sampling_params.py,
skip_reading_prefix_cache), so every position is computed. `alone` sends one text at a time, `concurrent` waves of
`concurrency`, as accuracy_gate/collect.py does. The rules for errors are the same: a request that failed is a sequence
with an `error`, never one with wrong numbers.

With `decode`, the first texts are also continued by so many greedy tokens, one text at a time, and the continuations
are then read back as text: the same tokens after the same tokens, once in batches of one row and once all together.
Their sums are the same in another order and by other kernels, so the difference is rounding, on an engine that may show
none between two ways of reading: vLLM 0.32.0 on a CPU reads bit-equally at every width, and decodes so from 4 on.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from accuracy_gate import collect
from accuracy_gate.collect import ErrorKind, Mode, Position, TokenSequence
from accuracy_gate.prompts import Prompt, prompts_hash
from contracts import Frozen, content_hash
from engine.running import RunningEngine

# Best tokens listed at each position, beside the text's own. Every one is a logit that can be seen to move.
ALTERNATIVES = 10
DECODED_TEXTS = 8  # continued and read back, where `decode` asks for it
NEVER = -9999.0  # what vLLM writes for a log-probability of minus infinity

Answers = list[TokenSequence]


class DriftRun(Frozen):
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

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(exclude_defaults=True))

    @classmethod
    def load(cls, path: Path) -> DriftRun:
        """Raises OSError or ValueError when the file is missing or is no DriftRun."""
        return cls.model_validate_json(path.read_text())


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
    engine.check()
    salt = uuid.uuid4().hex
    started = time.monotonic()
    pool = ThreadPoolExecutor(max_workers=width)
    asked = [_Text(text.id, text.text) for text in texts]
    try:
        limits = httpx.Limits(max_connections=width)
        with httpx.Client(base_url=engine.base_url, timeout=timeout, limits=limits, trust_env=False) as client:

            def waves(items: Sequence[_Text], one: Callable[[_Text], TokenSequence], at_once: int) -> Answers:
                done: Answers = []
                for wave in (items[i : i + at_once] for i in range(0, len(items), at_once)):
                    if _lost(done):
                        done += [TokenSequence(prompt_id=text.id, error="not_asked") for text in wave]
                    else:
                        done += pool.map(one, wave)
                return done

            read = waves(asked, lambda text: _read(client, engine.served_name, text, salt), width)
            decoded: Answers = []
            back: Answers = []
            if decode and not _lost(read):
                made: dict[str, list[int]] = {}
                decoded = waves(
                    asked[:DECODED_TEXTS],
                    lambda text: _continue(client, engine.served_name, text, decode, salt, made),
                    at_once=1,
                )
                whole = [
                    _Text(one.prompt_id, [*made[one.prompt_id], *one.ids], len(made[one.prompt_id]))
                    for one in decoded
                    if not one.error
                ]
                back = waves(whole, lambda text: _read(client, engine.served_name, text, salt), width)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl+C does not wait for an engine that hangs
    seconds = time.monotonic() - started
    if not _lost([*read, *decoded, *back]):
        engine.check()
    return DriftRun(
        launch_id=engine.record.launch_id,
        spec_id=engine.record.spec_id,
        mode=mode,
        concurrency=width,
        texts_hash=prompts_hash(tuple(texts)),
        sequences=tuple(read),
        decoded=tuple(decoded),
        read_back=tuple(back),
        seconds=seconds,
    )


def _lost(answered: Sequence[TokenSequence]) -> bool:
    return any(sequence.error in ("timeout", "connection") for sequence in answered)


def _read(client: httpx.Client, model: str, text: _Text, salt: str) -> TokenSequence:
    body = {"max_tokens": 1, "prompt_logprobs": ALTERNATIVES}
    return _send(client, model, text, body, salt, lambda answer: parse(text.id, answer, text.read_from))


def _continue(
    client: httpx.Client, model: str, text: _Text, tokens: int, salt: str, made: dict[str, list[int]]
) -> TokenSequence:
    """`tokens` greedy tokens; the text's own token IDs are put into `made`, from where they are read back."""

    def parsed(answer: dict[str, Any]) -> TokenSequence:
        sequence = collect.parse(text.id, answer)
        made[text.id] = [int(token) for token in answer["choices"][0]["prompt_token_ids"]]
        whole = content_hash([*made[text.id], *sequence.ids])
        return sequence.model_copy(update={"prompt_tokens_hash": whole})

    body = {
        "max_tokens": tokens, "logprobs": collect.ALTERNATIVES, "return_tokens_as_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    return _send(client, model, text, body, salt, parsed)


def _send(
    client: httpx.Client,
    model: str,
    text: _Text,
    body: dict[str, Any],
    salt: str,
    read: Callable[[dict[str, Any]], TokenSequence],
) -> TokenSequence:
    def failed(kind: ErrorKind, why: object) -> TokenSequence:
        return TokenSequence(prompt_id=text.id, error=kind, detail=f"{type(why).__name__}: {why}"[:300])

    whole = {"model": model, "prompt": text.prompt, **NEUTRAL, **body, "return_token_ids": True, "cache_salt": salt}
    try:
        response = client.post("/v1/completions", json=whole)
    except httpx.TimeoutException as error:
        return failed("timeout", error)
    except httpx.HTTPError as error:
        return failed("connection", error)
    if response.status_code != 200:
        return failed("http", f"HTTP {response.status_code}: {response.text[:300]}")
    try:
        return read(response.json())
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ValidationError) as error:
        return failed("malformed", error)


# Greedy, and every default that a model's own generation_config.json may set put back to neutral.
NEUTRAL = {
    "temperature": 0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip


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
