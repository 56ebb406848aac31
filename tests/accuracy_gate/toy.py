"""A toy language model for tests of the gate's rule: five candidate tokens at each position, logits from a hash of the
text so far, and rounding as noise on top. Not an engine; it only makes token runs whose truth is known."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable

from accuracy_gate.collect import Mode, Position, TokenRun, TokenSequence

Fault = Callable[[int, int, list[float]], None]  # (prompt, position, logits): change the logits in place
STEP = 0.125


def toy_run(
    noise_seed: int = 0,
    noise: float = 0.07,
    fault: Fault | None = None,
    prompts: int = 24,
    tokens: int = 60,
    mode: Mode = "concurrent",
    launch: str = "L1",
) -> TokenRun:
    """`noise` is the standard deviation on each logit, in nats; equal seeds give equal noise."""
    rounding = random.Random(noise_seed)
    sequences = []
    for prompt in range(prompts):
        text = zlib.crc32(f"prompt {prompt}".encode())
        positions = []
        for index in range(tokens):
            model = random.Random(text)
            logits, level = [], 20.0
            for _ in range(5):
                logits.append(level)
                level -= model.expovariate(0.6)
            logits = [value + rounding.gauss(0, noise) for value in logits]
            if fault:
                fault(prompt, index, logits)
            logits = [round(value / STEP) * STEP for value in logits]
            total = math.log(sum(math.exp(value) for value in logits))
            top = sorted(((token, value - total) for token, value in enumerate(logits)), key=lambda pair: -pair[1])
            positions.append(Position(token=top[0][0], logprob=top[0][1], top=tuple(top)))
            text = zlib.crc32(str(top[0][0]).encode(), text)
        sequences.append(TokenSequence(prompt_id=f"p{prompt}", positions=tuple(positions)))
    return TokenRun(
        launch_id=launch, spec_id="toy", mode=mode, concurrency=1 if mode == "alone" else 8, tokens=tokens,
        prompts_hash="toy", sequences=tuple(sequences), seconds=1.0,
    )  # fmt: skip
