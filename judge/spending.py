"""The night's budget for false keeps, over a number of tries that nobody knows in advance.

Try j may spend alpha_j = alpha / (j (j + 1)). Proof that the chance of even one false keep in the night is at most
alpha:
  1. A false keep at try j means that its t statistic about the true gain, whatever that is, passed the bar of one of
     its looks; the looks share alpha_j equally, so the chance of that is at most alpha_j (Bonferroni; speed.py has
     the statistic).
  2. Any false keep is the union of these events over j: its chance is at most the sum of alpha_j, however the tries
     depend on each other, whoever chose them and whenever the night stops (the bar at try j depends on j alone, not
     on what was seen).
  3. 1/(j (j + 1)) = 1/j - 1/(j + 1), so the first n tries spend alpha (1 - 1/(n + 1)) < alpha.

Why this sequence: the hypotheses come best first, so early tries deserve more; and the noise estimate gains a degree
of freedom with every try (noise.learn), so the t quantile needed stays near 5 standard errors from try 1 to 20
(docs/judge.md), where alpha/20 each would ask 11 at first and 3.6 at last. 6/(pi^2 j^2) starts a fifth higher and
has two thirds of this share from try 10 on.

Only a try that reaches a speed decision is counted: one that crashed or failed its gate had no chance to be kept.
"""

from __future__ import annotations


def alpha_for_try(false_keep_chance: float, try_number: int) -> float:
    """What the `try_number`-th speed decision of the night (from 1) may spend. Raises ValueError out of range."""
    if not 0 < false_keep_chance < 1:
        raise ValueError(f"false_keep_chance must be between 0 and 1, not {false_keep_chance}")
    if try_number < 1:
        raise ValueError(f"tries are counted from 1, not {try_number}")
    return false_keep_chance / (try_number * (try_number + 1))


def left_after(false_keep_chance: float, tries: int) -> float:
    """What is left of the budget once `tries` speed decisions have spent theirs; never 0."""
    return false_keep_chance / (tries + 1)
