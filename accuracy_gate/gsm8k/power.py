"""How likely is the paired comparison to fail, and to pass, a change whose true loss is known? Exact, not simulated.

The model: each of n questions is, independently of the others, a loss with probability `loss` + `background` / 2, a
gain with probability `background` / 2, and else equal. `background` is what an unchanged engine flips either way,
batches being what they are; `loss` is what the change breaks on top of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtrc
from scipy.stats import binom

from accuracy_gate.gsm8k.paired import ALPHA_HARM, CONFIDENCE, log_e, non_inferior
from contracts import Frozen

LOSSES = (0.0, 0.01, 0.02, 0.05)  # true losses of accuracy that a result speaks of
_NEGLIGIBLE = 1e-9  # of the distribution of discordant pairs, left out


class Chances(Frozen):
    loss: float  # true loss of accuracy, a share: 0.01 is one point
    fail: float
    passed: float  # else inconclusive


def chances(
    n: int,
    loss: float,
    background: float,
    margin: float,
    alpha: float = ALPHA_HARM,
    confidence: float = CONFIDENCE,
) -> Chances:
    """Of paired.py's rule with a look after every discordant pair, which blames no less often than a look after every
    wave. Without errors, and without the absolute floor."""
    losing, gaining = loss + background / 2, background / 2
    parting = min(losing + gaining, 1.0)
    if n == 0:
        return Chances(loss=loss, fail=0.0, passed=0.0)
    most = int(binom.ppf(1 - _NEGLIGIBLE, n, parting)) if parting else 0
    weights = binom.pmf(np.arange(most + 1), n, parting)
    toss = losing / (losing + gaining) if parting else 0.0
    stop, harm, inferior = _regions(n, most + -most % 64, margin, alpha, confidence)
    alive = np.array([1.0])  # by number of losses: how likely this many, without a stop so far
    kept = passed = 0.0
    for discordant, weight in enumerate(weights):
        if discordant:
            alive = np.append(alive, 0.0) * (1 - toss) + np.insert(alive, 0, 0.0) * toss
            alive[stop[discordant] :] = 0.0
        kept += weight * float(alive[: harm[discordant]].sum())
        passed += weight * float(alive[: min(harm[discordant], inferior[discordant])].sum())
    total = float(weights.sum())
    return Chances(loss=loss, fail=max(0.0, 1 - kept / total), passed=passed / total)


@functools.lru_cache(maxsize=16)
def _regions(
    n: int, most: int, margin: float, alpha: float, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For 0 to `most` discordant pairs the fewest losses that stop the asking, that are harm at the end, and that are
    not non-inferior: each rule holds for more losses too. int64 [most + 1]; one more than the pairs where none is."""
    pairs = np.arange(most + 1)[:, None]
    losses = np.minimum(np.arange(most + 1)[None, :], pairs)
    real = np.arange(most + 1)[None, :] <= pairs
    going = log_e(losses, pairs - losses) < -math.log(alpha)
    harmless = bdtrc(losses - 1, pairs, 0.5) > alpha
    fine = non_inferior(losses, pairs - losses, n, margin, confidence)
    stop, harm, inferior = (np.sum(region & real, axis=1) for region in (going, harmless, fine))
    return stop, harm, inferior


def table(n: int, background: float, margin: float) -> tuple[Chances, ...]:
    return tuple(chances(n, loss, background, margin) for loss in LOSSES)


def in_words(n: int, background: float, known: str, rows: Sequence[Chances]) -> str:
    """One sentence. `known` says where the background comes from."""
    first, *others = (f"of {row.loss * 100:g} in {row.fail:.1%} and {row.passed:.0%}" for row in rows)
    head = first.replace(" in ", " points is failed in ", 1).replace(" and ", " and passed in ", 1)
    return f"{n} paired questions, {background:.1%} flip either way ({known}): a true loss {'; '.join([head, *others])}"
