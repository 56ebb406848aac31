"""The stand-in's pretended model and scheduler. See engine.py."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

VOCABULARY = 49152
BLOCK = 16  # tokens of one prefix-cache block
CACHE_TOKENS = 65536  # pretended size of the KV cache
PREFILL_MS = 0.02  # one prompt token
TIE = 0.05  # a gap below this is "rounding decides"


def knob(name: str, default: float = 0.0) -> float:
    return float(os.environ.get(f"STANDIN_{name}") or default)


def tokenize(text: str) -> list[int]:
    """A run of non-space characters with the space before it is one token; its hash is the ID."""
    words = re.findall(r"\s*\S+", text)
    return [int(w) if (w := word.strip()[1:]).isdigit() and word.strip()[0] == "w" and int(w) < VOCABULARY
            else 256 + zlib.crc32(word.encode()) % (VOCABULARY - 256) for word in words]  # fmt: skip


def detokenize(tokens: list[int]) -> str:
    return "".join(f" w{token}" for token in tokens)


@dataclass
class Sequence:
    """One request on its way: `state` stands for the whole text so far."""

    prompt: list[int]
    max_tokens: int
    state: int = 0
    prefill_left: int = 0
    made: int = 0
    out: asyncio.Queue[tuple[int, float, int, float]] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        seed = 0x5EED if knob("WRONG_TOKENS") else 0
        self.state = zlib.crc32(",".join(map(str, self.prompt)).encode(), seed)

    def next_token(self) -> tuple[int, float, int, float]:
        """(token, its log-probability, runner-up, its log-probability)."""
        first = 256 + self.state % (VOCABULARY - 256)
        second = 256 + (self.state // 7 + 1) % (VOCABULARY - 256)
        gap = (self.state >> 8) % 1000 / 250  # 0 to 4, below TIE about once in 80 tokens
        logprob = -math.log1p(math.exp(-gap)) - 0.01
        best, other = (first, second) if not (knob("ROUNDING") and gap < TIE) else (second, first)
        self.state = zlib.crc32(str(best).encode(), self.state)
        self.made += 1
        return best, logprob, other, logprob - gap


class Scheduler:
    """Continuous batching with a prefix cache; the counters are what /metrics shows."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.cached: set[int] = set()
        self.counters: Counter[str] = Counter()
        self.wake = asyncio.Event()
        self.hung = False
        self.on_token: Callable[[], None] = lambda: None

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)
        self.wake.set()

    def drop(self, sequence: Sequence) -> None:
        """The client went away."""
        for queue in (self.waiting, self.running):
            if sequence in queue:
                queue.remove(sequence)

    def admit(self, sequence: Sequence) -> None:
        total, hits = len(sequence.prompt), 0
        if self.args.enable_prefix_caching:
            chain = 0
            for end in range(BLOCK, total, BLOCK):  # the last block is always computed, as in vLLM
                chain = hash((chain, *sequence.prompt[end - BLOCK : end]))
                if chain in self.cached and hits == end - BLOCK:
                    hits = end
                self.cached.add(chain)
            self.counters["prefix_cache_queries"] += total
            self.counters["prefix_cache_hits"] += hits
        self.counters["prompt_tokens"] += total
        sequence.prefill_left = total - hits
        self.running.append(sequence)

    async def run(self) -> None:
        base = knob("STEP_MS", 2) / 1000 * knob("SLOW", 1) * (1.25 if self.args.enforce_eager else 1)
        while True:
            if self.hung or not (self.waiting or self.running):
                self.wake.clear()
                await self.wake.wait()
                continue
            while self.waiting and len(self.running) < self.args.max_num_seqs:
                self.admit(self.waiting.pop(0))
            decoding = [s for s in self.running if not s.prefill_left]
            budget = max(1, self.args.max_num_batched_tokens - len(decoding))
            prefilled = 0
            for sequence in self.running:
                chunk = min(sequence.prefill_left, budget - prefilled)
                sequence.prefill_left -= chunk
                prefilled += chunk
            await asyncio.sleep(base * (1 + len(decoding) / 32) + prefilled * PREFILL_MS / 1000 * knob("SLOW", 1))
            for sequence in [s for s in self.running if not s.prefill_left]:
                sequence.out.put_nowait(sequence.next_token())
                self.counters["generation_tokens"] += 1
                self.on_token()
                if sequence.made >= sequence.max_tokens:
                    self.running.remove(sequence)
                    self.counters["request_success"] += 1

    def used(self) -> float:
        return min(1.0, sum(len(s.prompt) + s.made for s in self.running) / CACHE_TOKENS)
