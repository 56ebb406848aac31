"""The candidate's answers against the unchanged engine's, to the same questions. Pure functions of data.

Only questions that both answered without an error count. A *loss* is a question that the reference got right and the
candidate wrong, a *gain* the other way round; the two kinds together are the discordant pairs. Questions on which both
agree say nothing about harm, however hard they are: that is why pairs see what two shares cannot.

Harm is looked for twice, each time at ALPHA_HARM:

    while asking   an e-process on the discordant pairs in order, against P(loss | discordant) <= 1/2: the likelihood
                   ratio averaged over a uniform P in (1/2, 1]. By Ville's inequality it exceeds 1 / alpha with
                   probability alpha at most, however often one looks (Ramdas et al., Statistical Science 38, 2023).
    at the end     the exact one-sided McNemar test, P(X >= losses) for X ~ Binomial(discordant, 1/2).

No harm, or little, is shown by Tango's score interval for the difference of the two shares (Statistics in Medicine 17,
1998, 891): non-inferior when its lower limit lies above minus the margin.

An unchanged engine compared with itself has losses and gains alike, so the two tests blame it in 2 ALPHA_HARM = 0.4 %
of comparisons at most. That is over all references: one night's reference may have been lucky with its coin tosses,
and then every candidate of that night seems a little worse than it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaln
from scipy.stats import binom, norm

from accuracy_gate.gsm8k.ask import Answer
from contracts import Frozen

# Of each of the two tests for harm. Together at most 0.4 % of comparisons blame an unchanged engine: of a night of 20
# tries, 8 % have even one false blame. 12 straight losses reach it while asking, 9 at the end.
ALPHA_HARM = 0.002
CONFIDENCE = 0.95  # of the interval, two-sided: a change that loses the margin passes 1 time in 40
MARGIN = 0.02  # a loss of accuracy that must be ruled out
ALPHA_RISING = 0.01


class Pairs(Frozen):
    """Counts of questions, and the discordant ones in the order of the questions, True for a loss."""

    both_right: int
    losses: int
    gains: int
    both_wrong: int
    discordant: tuple[bool, ...] = ()

    @property
    def n(self) -> int:
        return self.both_right + self.losses + self.gains + self.both_wrong

    @property
    def difference(self) -> float:
        """Candidate's share of right answers minus the reference's."""
        return (self.gains - self.losses) / self.n


def pair(candidate: Sequence[Answer], reference: Sequence[Answer]) -> Pairs:
    """By question, in the candidate's order."""
    known = {answer.question_id: answer.right for answer in reference if answer.right is not None}
    both = [(known[a.question_id], a.right) for a in candidate if a.right is not None and a.question_id in known]
    return Pairs(
        both_right=sum(was and now for was, now in both),
        losses=sum(was and not now for was, now in both),
        gains=sum(now and not was for was, now in both),
        both_wrong=sum(not was and not now for was, now in both),
        discordant=tuple(was for was, now in both if was != now),
    )


# --- harm ---------------------------------------------------------------------------------------------------------


def log_e(losses: np.ndarray | int, gains: np.ndarray | int) -> np.ndarray:
    """Natural logarithm of the e-process after so many losses and gains, element by element, float64.

    2 * integral over p in (1/2, 1] of (2 p)^losses (2 (1 - p))^gains dp, an incomplete beta function. For every true
    P(loss) = q <= 1/2 each factor has the mean q 2p + (1-q) 2(1-p) <= 1, so the product is a supermartingale.
    """
    wins, total = np.asarray(gains) + 1.0, np.asarray(losses) + np.asarray(gains)
    with np.errstate(divide="ignore"):  # an underflow to 0 is no evidence: minus infinity is right
        upper = np.log(betainc(wins, np.asarray(losses) + 1.0, 0.5))  # P(Beta(losses + 1, gains + 1) > 1/2)
    result: np.ndarray = (total + 1) * math.log(2) + betaln(np.asarray(losses) + 1.0, wins) + upper
    return result


def highest_e(discordant: Sequence[bool]) -> float:
    """The largest value that the e-process took along these pairs; 1 before the first."""
    if not discordant:
        return 1.0
    losses = np.cumsum(np.asarray(discordant, dtype=np.int64))
    most = float(np.max(log_e(losses, np.arange(1, len(losses) + 1) - losses)))
    return math.exp(min(max(most, 0.0), 700.0))


def straight_losses(alpha: float = ALPHA_HARM) -> int:
    """How many losses without a gain stop the asking."""
    return next(k for k in range(1, 1000) if log_e(k, 0) >= -math.log(alpha))


def exact_harm(losses: int, gains: int) -> float:
    """One-sided exact McNemar: how likely chance alone gives so many losses or more of these discordant pairs."""
    return float(binom.sf(losses - 1, losses + gains, 0.5))


def harm_shown(pairs: Pairs, alpha: float = ALPHA_HARM) -> bool:
    return highest_e(pairs.discordant) >= 1 / alpha or exact_harm(pairs.losses, pairs.gains) <= alpha


def stop_on_harm(reference: Sequence[Answer], alpha: float = ALPHA_HARM) -> Callable[[Sequence[Answer]], bool]:
    """For `after_wave` of ask(): True once the e-process shows harm."""

    def stop(answers: Sequence[Answer]) -> bool:
        return highest_e(pair(answers, reference).discordant) >= 1 / alpha

    return stop


# --- two-sided, and gains -----------------------------------------------------------------------------------------


def mcnemar_exact(losses: int, gains: int) -> float:
    """Two-sided."""
    return min(1.0, 2 * float(binom.cdf(min(losses, gains), losses + gains, 0.5)))


def mcnemar_midp(losses: int, gains: int) -> float:
    """Two-sided mid-p (Fagerland, Lydersen, Laake, BMC Medical Research Methodology 13:91, 2013)."""
    least, total = min(losses, gains), losses + gains
    return min(1.0, 2 * float(binom.cdf(least, total, 0.5)) - float(binom.pmf(least, total, 0.5)))


def rising(losses: int, gains: int) -> float:
    """One-sided mid-p of so many gains or more. Under ALPHA_RISING the accuracy rose beyond chance, which a change that
    should only be faster has no business to do: a suspicion, not a verdict."""
    total = losses + gains
    return float(binom.sf(gains, total, 0.5)) + 0.5 * float(binom.pmf(gains, total, 0.5))


# --- how large can the loss be ------------------------------------------------------------------------------------


def score_z(losses: np.ndarray | int, gains: np.ndarray | int, n: int, difference: float) -> np.ndarray:
    """Tango's score statistic for `difference` = P(gain) - P(loss), element by element; falls as it rises."""
    b, c, d = np.asarray(gains, dtype=np.float64), np.asarray(losses, dtype=np.float64), difference
    # P(loss) as likely as possible when the difference is d: the root of a quadratic.
    middle, last = (2 * n - b + c) * d - b - c, -c * d * (1 - d)
    losing = (np.sqrt(np.maximum(middle * middle - 8 * n * last, 0.0)) - middle) / (4 * n)
    spread = np.sqrt(np.maximum(n * (2 * losing + d * (1 - d)), 1e-300))
    result: np.ndarray = (b - c - n * d) / spread
    return result


def score_interval(losses: int, gains: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Tango's two-sided interval for the candidate's share minus the reference's. `n` pairs, at least 1."""
    quantile, seen = float(norm.isf((1 - confidence) / 2)), (gains - losses) / n

    def away(difference: float, limit: float) -> float:
        return float(score_z(losses, gains, n, difference)) - limit

    low = -1.0 if seen == -1 else brentq(away, -1.0, seen, args=(quantile,))
    high = 1.0 if seen == 1 else brentq(away, seen, 1.0, args=(-quantile,))
    return float(low), float(high)


def non_inferior(
    losses: np.ndarray | int, gains: np.ndarray | int, n: int, margin: float, confidence: float = CONFIDENCE
) -> np.ndarray:
    """Is the interval's lower limit above minus the margin? Element by element."""
    result: np.ndarray = score_z(losses, gains, n, -margin) > norm.isf((1 - confidence) / 2)
    return result


def fewest_to_pass(margin: float, confidence: float = CONFIDENCE) -> int:
    """Pairs with which equal answers to every question are enough: 189 for a margin of 2 points. With fewer no
    candidate can pass."""
    quantile = float(norm.isf((1 - confidence) / 2))
    return math.floor(quantile**2 * (1 - margin) / margin) + 1
