"""The fixed texts of the drift check: up to several hundred tokens each, made from a seed.

Two kinds, alternating. `sums`: worked problems one after the other, as lm-eval's few-shot prompts put them; to the
arithmetic model most of an answer is nearly certain, and every step takes numbers from further up. `mixed`: the
registers of the token gate's prompts, which a general model predicts and the arithmetic model does not. Nothing is
generated from them: the engine is only asked how likely it finds each token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from accuracy_gate.arithmetic.generate import problems
from accuracy_gate.prompts import Prompt, prompts

# Fewer than the tokenizers here read on average, so that a text hardly ever has more tokens than asked for: the
# arithmetic model's 1536-token BPE reads 2.5 characters a token in sums and 2.2 in the other registers, SmolLM2's
# 49152-token one 2.5 and 3.7 (2026-11-29). At 400 asked, the longest of 24 texts has 421 and 317.
CHARACTERS_PER_TOKEN = 2.0


def fixed_texts(count: int = 16, seed: int = 7, tokens: int = 400) -> tuple[Prompt, ...]:
    """`count` texts of at most about `tokens` tokens, the same for the same arguments; the first k are fixed_texts(k).

    Lengths differ: the texts have 1, 0.7 and 0.4 of `tokens` in turn, so that waves mix them.
    """
    rng = random.Random(f"nightgate fixed texts {seed}")
    made = []
    for index in range(count):
        kind = "sums" if index % 2 == 0 else "mixed"
        words = _sums(rng) if kind == "sums" else _mixed(rng)
        room = int(tokens * (1.0, 0.7, 0.4)[index % 3] * CHARACTERS_PER_TOKEN)
        made.append(Prompt(id=f"t{index:02d}-{kind}", kind=kind, text=_fill(words, room)))
    return tuple(made)


def _fill(pieces: Iterator[str], room: int) -> str:
    """Pieces until `room` characters are full, cut at the last space."""
    text = ""
    while len(text) <= room:
        text += next(pieces)
    return text[: text.rindex(" ", 0, room)]


def _sums(rng: random.Random) -> Iterator[str]:
    while True:
        for problem in problems("held_out_numbers", 4, rng.getrandbits(32)):
            yield f"Question: {problem.question}\nAnswer: {problem.answer}\n\n"


def _mixed(rng: random.Random) -> Iterator[str]:
    while True:
        for prompt in prompts(5, rng.getrandbits(32)):
            yield f"{prompt.text}\n\n"
