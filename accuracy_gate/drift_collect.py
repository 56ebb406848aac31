"""Ask a running engine how likely it finds the tokens of fixed texts: vLLM's `prompt_logprobs`.

Each text is read once and one token is generated, which nobody looks at. A request with prompt_logprobs takes nothing
from the prefix cache (vLLM 0.32.0 sampling_params.py, skip_reading_prefix_cache), so every position is computed.
`alone` sends one text at a time, `concurrent` waves of `concurrency`, as accuracy_gate/collect.py does. The rules for
errors are the same: a request that failed is a sequence with an `error`, never one with wrong numbers.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from accuracy_gate.collect import ErrorKind, Mode, Position, TokenSequence
from accuracy_gate.prompts import Prompt, prompts_hash
from contracts import Frozen, content_hash
from engine.running import RunningEngine

# Best tokens listed at each position, beside the text's own. Every one is a logit that can be seen to move.
# vLLM answers at most 20 (its --max-logprobs).
ALTERNATIVES = 20
NEVER = -9999.0  # what vLLM writes for a log-probability of minus infinity


class DriftRun(Frozen):
    """What one launch found likely, in one mode. `sequences[i].positions[j]` is the (j+2)nd token of text i, the first
    token has nothing before it: `token` and `logprob` (nats) are the text's own, `top` the best, best first."""

    launch_id: str
    spec_id: str
    mode: Mode
    concurrency: int  # 1 for alone
    texts_hash: str
    sequences: tuple[TokenSequence, ...]
    seconds: float

    @property
    def errors(self) -> tuple[TokenSequence, ...]:
        return tuple(sequence for sequence in self.sequences if sequence.error)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(exclude_defaults=True))

    @classmethod
    def load(cls, path: Path) -> DriftRun:
        """Raises OSError or ValueError when the file is missing or is no DriftRun."""
        return cls.model_validate_json(path.read_text())


def collect_drift(
    engine: RunningEngine,
    texts: Sequence[Prompt],
    mode: Mode = "alone",
    concurrency: int = 8,
    timeout: float = 120.0,
) -> DriftRun:
    """Reads each text once. `timeout` seconds hold for each request; after a wave with a time-out or a broken
    connection the rest is not asked. The engine's identity is checked before and after.
    Raises EngineFailure when the engine is not (or no longer) ours.
    """
    items = tuple(texts)
    width = 1 if mode == "alone" else max(1, concurrency)
    engine.check()
    salt = uuid.uuid4().hex
    started = time.monotonic()
    answered: list[TokenSequence] = []
    pool = ThreadPoolExecutor(max_workers=width)
    try:
        limits = httpx.Limits(max_connections=width)
        with httpx.Client(base_url=engine.base_url, timeout=timeout, limits=limits, trust_env=False) as client:
            for wave in (items[i : i + width] for i in range(0, len(items), width)):
                if _lost(answered):
                    answered += [TokenSequence(prompt_id=text.id, error="not_asked") for text in wave]
                    continue
                answered += pool.map(lambda text: _ask(client, engine.served_name, text, salt), wave)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl+C does not wait for an engine that hangs
    seconds = time.monotonic() - started
    if not _lost(answered):
        engine.check()
    return DriftRun(
        launch_id=engine.record.launch_id,
        spec_id=engine.record.spec_id,
        mode=mode,
        concurrency=width,
        texts_hash=prompts_hash(items),
        sequences=tuple(answered),
        seconds=seconds,
    )


def _lost(answered: Sequence[TokenSequence]) -> bool:
    return any(sequence.error in ("timeout", "connection") for sequence in answered)


def _ask(client: httpx.Client, model: str, text: Prompt, salt: str) -> TokenSequence:
    body = {
        "model": model,
        "prompt": text.text,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": ALTERNATIVES,
        "return_token_ids": True,
        "cache_salt": salt,
    }
    try:
        response = client.post("/v1/completions", json=body)
    except httpx.TimeoutException as error:
        return _failed(text, "timeout", error)
    except httpx.HTTPError as error:
        return _failed(text, "connection", error)
    if response.status_code != 200:
        return _failed(text, "http", f"HTTP {response.status_code}: {response.text[:300]}")
    try:
        return parse(text.id, response.json())
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ValidationError) as error:
        return _failed(text, "malformed", error)


def _failed(text: Prompt, kind: ErrorKind, why: object) -> TokenSequence:
    return TokenSequence(prompt_id=text.id, error=kind, detail=f"{type(why).__name__}: {why}"[:300])


def parse(text_id: str, answer: dict[str, Any]) -> TokenSequence:
    """A /v1/completions answer of vLLM (read for 0.32.0) with `prompt_logprobs` and `prompt_token_ids`.

    prompt_logprobs has one entry a token: null for the first, then {token ID as text: {logprob, rank, decoded_token}},
    the text's own token among them. Raises ValueError (or a lookup error) when a part is missing or no finite number.
    """
    choice = answer["choices"][0]
    ids, listed = choice["prompt_token_ids"], choice["prompt_logprobs"]
    if not ids or len(ids) != len(listed):
        raise ValueError("prompt token IDs and prompt log-probabilities differ in number")
    positions: list[Position] = []
    for token, entry in zip(ids[1:], listed[1:], strict=True):
        found = {int(name): float(one["logprob"]) for name, one in entry.items()}
        if not all(math.isfinite(value) and value > NEVER for value in found.values()):
            raise ValueError(f"log-probability of token {len(positions) + 1} of the text is not a finite number")
        best = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:ALTERNATIVES]
        positions.append(Position(token=token, logprob=found[token], top=tuple(best)))
    return TokenSequence(prompt_id=text_id, prompt_tokens_hash=content_hash(ids), positions=tuple(positions))
