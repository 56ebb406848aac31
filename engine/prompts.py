"""Fresh prompts from a seed: the request list of one run, as token IDs of exact length.

Text, not uniform random tokens: on random tokens draft acceptance reads 97-98 % where natural text gives 79-90 % (one
MI355X night's record), so speculation would be flattered and the answer would say nothing about text. The text is built
from the word lists below, tokenised once by the engine itself, and prompts are cut from those IDs.

No two prompts share a first block. vLLM's prefix cache reuses whole blocks (16 tokens where it may choose), and a
cached prompt is not work: the same seed twice read 17.6 and then 32.8 requests/s on one H200 (vLLM 0.26.0). So the
first 16 tokens of a prompt spell its own number (seed, index) in eight digits, each digit a different pair of
neighbouring tokens of the corpus. That is injective: two prompts with different (seed, index) differ in the first
block, whatever the corpus.

| part          | tokens                        | comes from                                                      |
| ------------- | ----------------------------- | --------------------------------------------------------------- |
| shared prefix | workload.shared_prefix_tokens | numbered like a prompt: one for the run, fresh between runs     |
| number        | 16                            | (seed, index), see above                                        |
| body          | up to the planned length      | consecutive corpus tokens from a seeded place                   |
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contracts import Workload

BLOCK = 16  # tokens; vLLM's default cache block on GPUs. The CPU engine's is larger, which only makes reuse rarer
_PAIR = 2  # tokens a digit
_DIGITS = BLOCK // _PAIR
_BASE = 1024  # distinct pairs: 1024^8 = 2^80 numbers = 64 bits of seed and 16 bits of index
_INDEX_BITS = 16
_SEED_BITS = 64
_SPACE = 1 << (_INDEX_BITS + _SEED_BITS)
_STIR = 0x9E3779B97F4A7C15F39D  # odd, so multiplying by it modulo 2^80 is a bijection: near numbers look unlike
_PREFIX_INDEX = (1 << _INDEX_BITS) - 1
MAX_REQUESTS = _PREFIX_INDEX

Phase = Literal["warmup", "measured", "fill"]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request to send. `at_s` is the send time after the run's start (open loop), None in a closed loop."""

    index: int
    phase: Phase  # "fill" keeps the load up until the last measured request has ended; see engine/load.py
    at_s: float | None
    prompt: tuple[int, ...]
    output_tokens: int


def plan(workload: Workload, seed: int, corpus_tokens: Sequence[int]) -> tuple[PlannedRequest, ...]:
    """The request list of one run: warm-up, measured and fill requests in the order in which they are sent.

    Pure: the same workload, seed and corpus give the same list, so both arms of a pair send the same requests.
    `seed` is the run's prompt seed, 0 <= seed < 2^64; workload.seed is not used here. Lengths are spread evenly over
    the workload's inclusive ranges and shuffled, so every seed gives the same amount of work; gaps between arrivals
    are exponential with mean 1 / rate_per_s (a Poisson process).
    Raises ValueError, with what to do, for a seed out of range, too many requests, or a corpus with too little in it.
    """
    if not 0 <= seed < 1 << _SEED_BITS:
        raise ValueError(f"prompt seed {seed} is outside 0 .. 2^64-1; take it modulo 2^64")
    fill = fill_requests(workload)
    counts: dict[Phase, int] = {"warmup": workload.warmup_requests, "measured": workload.requests, "fill": fill}
    if (total := sum(counts.values())) > MAX_REQUESTS:
        raise ValueError(
            f"one run can hold {MAX_REQUESTS} requests (warm-up, measured and fill), this workload needs {total}"
            "; lower requests or warmup_requests"
        )
    pairs = _digit_pairs(corpus_tokens)
    places, lengths = random.Random(f"places {seed}"), random.Random(f"lengths {seed}")
    prefix = _text(pairs, corpus_tokens, seed, _PREFIX_INDEX, workload.shared_prefix_tokens, places)
    arrivals = random.Random(f"arrivals {seed}")
    work: list[tuple[Phase, int, int]] = []
    for phase, count in counts.items():
        sizes, answers = (spread(count, ends, lengths) for ends in (workload.input_tokens, workload.output_tokens))
        work += [(phase, size, answer) for size, answer in zip(sizes, answers, strict=True)]
    now, requests = 0.0, []
    for index, (phase, size, answer) in enumerate(work):
        if workload.rate_per_s is not None:
            now += arrivals.expovariate(workload.rate_per_s)
        prompt = prefix + _text(pairs, corpus_tokens, seed, index, size, places)
        requests.append(PlannedRequest(index, phase, None if workload.rate_per_s is None else now, prompt, answer))
    return tuple(requests)


def spread(count: int, ends: tuple[int, int], shuffle: random.Random) -> list[int]:
    """`count` lengths, evenly over the inclusive range (the middles of `count` equal parts of it), in random order.

    Drawn independently, the lengths of 24 requests moved the throughput by 10 % from seed to seed (143 and 128 output
    tokens/s; 2 cores, vLLM 0.32.0 on the CPU, SmolLM2-135M, 2026-11-29), ten times what one seed differs by.
    """
    low, width = ends[0], ends[1] - ends[0] + 1
    lengths = [low + (2 * i + 1) * width // (2 * count) for i in range(count)]
    shuffle.shuffle(lengths)
    return lengths


def fill_requests(workload: Workload) -> int:
    """How many requests stand ready to keep the load up while the last measured ones end.

    Closed loop: engines serve first come, first served, so when the last measured request is sent at most
    `concurrency - 1` are before it and each makes room for one fill request; twice that covers unequal lengths.
    Open loop: half as many again as the measured ones; unsent ones cost nothing.
    """
    return 2 * workload.concurrency if workload.concurrency is not None else workload.requests // 2 + BLOCK


def _digit_pairs(corpus: Sequence[int]) -> list[tuple[int, int]]:
    """The first 1024 distinct pairs of neighbouring tokens, in corpus order."""
    pairs: dict[tuple[int, int], None] = {}
    for pair in zip(corpus[::_PAIR], corpus[1::_PAIR], strict=False):
        pairs[pair] = None
        if len(pairs) == _BASE:
            return list(pairs)
    raise ValueError(
        f"the corpus has {len(pairs)} distinct token pairs and {_BASE} are needed to number the prompts; "
        "use a longer text (engine.corpus.corpus_text makes one)"
    )


def _text(
    pairs: list[tuple[int, int]], corpus: Sequence[int], seed: int, index: int, size: int, places: random.Random
) -> tuple[int, ...]:
    """`size` tokens: the number (seed, index) in 16, then the corpus from a random place, wrapping round."""
    number = ((seed << _INDEX_BITS | index) * _STIR) % _SPACE
    tokens: list[int] = []
    for _ in range(_DIGITS):
        number, digit = divmod(number, _BASE)
        tokens += pairs[digit]
    at = places.randrange(len(corpus))
    while len(tokens) < size:
        part = corpus[at : at + size - len(tokens)]
        tokens += part
        at = (at + len(part)) % len(corpus)
    return tuple(tokens[:size])
