"""The check `gsm8k`: do the sums still come out right? This page is the whole rule.

Without a reference the floor alone speaks:

    a request failed, or questions were left out     `inconclusive`
    share right >= floor                             `pass`
    its whole exact 95 % interval lies under         `fail`
    else                                             `inconclusive`: chance could do that

With the unchanged engine's answers to the same questions (the rule of a night), in this order:

    harm is shown (paired.py, two tests at 0.2 %)    `fail`, however few questions it took
    a request failed, or questions were left out     `inconclusive`: an error is no wrong answer, and nothing passes
    the reference has less than half of them right   `inconclusive`: who cannot do the sums cannot show a loss
    the loss may be as large as the margin           `inconclusive`
    the reference holds the floor, the candidate not `inconclusive`
    else                                             `pass`

The floor of an experiment is a floor under the engine, not under the change. Where the unchanged engine lies under it
itself, it cannot be held against a change: a flag says so, and the pairs alone decide. Where the unchanged engine holds
it, a candidate below is never passed; but the floor by itself blames nobody. An unchanged engine near the floor falls
from above it to an interval wholly below by luck alone: 2.6 % of the time where its true share is 96 %, 1319 questions
are asked and its answers are independent coin tosses (200,000 simulated pairs). A real fall from one side to the other
is a loss that the pairs see. So an unchanged engine is failed in at most 0.4 % of checks, whatever its accuracy. A loss
within the margin that is beyond chance is harm all the same: `fail` comes before `pass`.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import numpy as np
from pydantic import JsonValue
from scipy.stats import beta, binom, binomtest

from accuracy_gate.gsm8k import paired, power
from accuracy_gate.gsm8k.ask import Answers
from accuracy_gate.gsm8k.paired import ALPHA_HARM, CONFIDENCE, MARGIN, Pairs
from accuracy_gate.gsm8k.questions import QuestionSet
from contracts import GateResult

Outcome = Literal["pass", "fail", "inconclusive"]

CHECK = "gsm8k"
FLOOR = 0.965  # the MI355X night's
SEEING = 0.5  # share of right answers under which a reference has too little to lose
SHOWN = 5  # lost questions in a result


def no_reference(answers: Answers) -> str | None:
    """Why these answers of the unchanged engine are no reference: with them every candidate would be inconclusive."""
    if answers.errors or answers.not_asked:
        first = next((f"; the first: {a.error}: {a.detail}" for a in answers.errors), "")
        return f"the unchanged engine did not answer every question ({answers.score}{first})"
    if answers.correct < SEEING * len(answers.answers):
        return f"the unchanged engine cannot do these sums ({answers.score}); name a model that can (gate.gsm8k.model)"
    return None


def check(
    questions: QuestionSet,
    reference: Answers | None,
    candidate: Answers,
    floor: float = FLOOR,
    margin: float = MARGIN,
) -> GateResult:
    """Pure. Raises ValueError when the two were not asked alike: a mistake of the caller, not of the engine."""
    digest = questions.digest
    for name, answers in (("the candidate", candidate), ("the unchanged engine", reference)):
        if answers is not None and answers.questions_digest != digest:
            raise ValueError(f"{name} answered other questions ({answers.questions_digest}, not {digest})")
    if reference is not None:
        how, other = ((a.style, a.max_tokens) for a in (candidate, reference))
        if how != other:
            raise ValueError(f"asked in unlike ways: candidate {how}, unchanged engine {other}; ask both alike")
    interval = _interval(candidate)
    statistic: dict[str, JsonValue] = {
        "source": questions.source,
        "questions_digest": digest,
        "style": candidate.style,
        "max_tokens": candidate.max_tokens,
        "concurrency": candidate.concurrency,
        "questions": len(questions.questions),
        "answered": len(candidate.answered),
        "not_asked": candidate.not_asked,
        "errors": len(candidate.errors),
        "error_kinds": dict(Counter(str(answer.error) for answer in candidate.errors)),
        "correct": candidate.correct,
        "no_number": candidate.no_number,
        "truncated": candidate.truncated,
        "floor": floor,
        "floor_interval": list(interval) if interval else None,  # exact, of the candidate's share
        "bare_cut_passes": None if candidate.not_asked else _share_of_all(candidate) >= floor,
        "seconds": candidate.seconds,
    }
    if reference is None:
        outcome, reason = _floor_alone(candidate, interval, floor)
        said = floor_power(len(questions.questions), floor)
        mode = f"{candidate.style}; against the floor alone"
    else:
        pairs = paired.pair(candidate.answers, reference.answers)
        outcome, reason = judge(pairs, reference, candidate, floor, margin)
        planned = len(questions.questions) - len(reference.errors)
        background = 2 * pairs.gains / pairs.n if pairs.n else 0.0
        rows = power.table(planned, background, margin)
        said = power.in_words(planned, background, "twice the gains seen", rows)
        mode = f"{candidate.style}; paired with {reference.launch_id}, {candidate.concurrency} at a time"
        statistic |= _paired(pairs, reference, candidate, margin)
        statistic["power"] = [row.model_dump() for row in rows]
        statistic["flags"] = list(flags(pairs, reference, candidate, floor))
    return GateResult(
        check=CHECK, outcome=outcome, mode=mode, statistic=statistic, power=said, reason=reason,
        seconds=candidate.seconds,
    )  # fmt: skip


def judge(pairs: Pairs, reference: Answers, candidate: Answers, floor: float, margin: float) -> tuple[Outcome, str]:
    """The table above: outcome and reason."""
    asked = f"{pairs.losses} right answers lost and {pairs.gains} gained in {pairs.n} questions"
    stopped = ", where the asking stopped" if candidate.stopped else ""
    highest = paired.highest_e(pairs.discordant)
    if highest >= 1 / ALPHA_HARM:
        return "fail", f"{asked}{stopped}: harm beyond chance (e-value {highest:.3g}, limit {1 / ALPHA_HARM:.0f})"
    chance = paired.exact_harm(pairs.losses, pairs.gains)
    if chance <= ALPHA_HARM:
        return "fail", f"{asked}: harm beyond chance (exact McNemar, one-sided p {chance:.2g}, limit {ALPHA_HARM})"
    if missing := _missing(candidate):
        return "inconclusive", missing
    if not pairs.n:
        return "inconclusive", f"no question was answered by both engines: {reference.score} by the unchanged one"
    before, after = _share(reference), _share(candidate)
    scores = f"{candidate.score}, unchanged engine {reference.correct} of {len(reference.answered)}"
    if before < SEEING:
        return "inconclusive", f"{scores}: an engine with less than half right has too little to lose; ask easier sums"
    low, high = paired.score_interval(pairs.losses, pairs.gains, pairs.n)
    lost = f"{pairs.losses} lost and {pairs.gains} gained"
    span = f"{lost}, {CONFIDENCE:.0%} interval {low * 100:+.1f} to {high * 100:+.1f} points"
    if low <= -margin:
        fewest = paired.fewest_to_pass(margin)
        advice = "ask more questions" if pairs.n >= fewest else f"ask at least {fewest} questions"
        return "inconclusive", f"{scores}; {span}: a loss of {margin * 100:g} points is not ruled out; {advice}"
    if after < floor <= before:
        return "inconclusive", f"{scores}; {span}: under the floor {floor:.1%}, which the unchanged engine holds"
    held = f"floor {floor:.1%}" if before >= floor else f"the unchanged engine itself is under the floor {floor:.1%}"
    return "pass", f"{scores}; {span}, margin {margin * 100:g} points; {held}"


def flags(pairs: Pairs, reference: Answers, candidate: Answers, floor: float) -> tuple[str, ...]:
    """What a reader should look at, in words. None of it decides."""
    found: list[str] = []
    if reference.answered and _share(reference) < floor:
        found.append(f"the unchanged engine itself is under the floor {floor:.1%}: {reference.score}")
    chance = paired.rising(pairs.losses, pairs.gains)
    if chance < paired.ALPHA_RISING:
        found.append(
            f"accuracy rose beyond chance ({pairs.gains} gained, {pairs.losses} lost, one-sided mid-p {chance:.2g}): "
            "find out why a change that should only be faster answers better"
        )
    if candidate.truncated > reference.truncated:
        found.append(
            f"{candidate.truncated} answers cut at {candidate.max_tokens} tokens, "
            f"{reference.truncated} of the unchanged engine's"
        )
    if reference.errors:
        found.append(f"the unchanged engine did not answer {len(reference.errors)} questions; they are left out")
    return tuple(found)


def _paired(pairs: Pairs, reference: Answers, candidate: Answers, margin: float) -> dict[str, JsonValue]:
    known = {answer.question_id: answer for answer in reference.answers}
    lost: list[JsonValue] = [
        {"question": a.question_id, "was": known[a.question_id].extracted, "is": a.extracted}
        for a in candidate.answers
        if a.right is False and a.question_id in known and known[a.question_id].right
    ]
    return {
        "reference": reference.launch_id,
        "reference_correct": reference.correct,
        "reference_answered": len(reference.answered),
        "reference_truncated": reference.truncated,
        "pairs": pairs.n,
        "both_right": pairs.both_right,
        "losses": pairs.losses,
        "gains": pairs.gains,
        "both_wrong": pairs.both_wrong,
        "difference": pairs.difference if pairs.n else None,
        "interval": list(paired.score_interval(pairs.losses, pairs.gains, pairs.n)) if pairs.n else None,
        "confidence": CONFIDENCE,
        "margin": margin,
        "p_mcnemar_exact": paired.mcnemar_exact(pairs.losses, pairs.gains),
        "p_mcnemar_mid": paired.mcnemar_midp(pairs.losses, pairs.gains),
        "p_harm": paired.exact_harm(pairs.losses, pairs.gains),
        "p_rising": paired.rising(pairs.losses, pairs.gains),
        "e_value": paired.highest_e(pairs.discordant),
        "e_limit": 1 / ALPHA_HARM,
        "alpha_harm": ALPHA_HARM,
        "first_lost": lost[:SHOWN],
    }


# --- the floor ----------------------------------------------------------------------------------------------------


def _share(answers: Answers) -> float:
    """Of the answered ones, of which there must be some."""
    return answers.correct / len(answers.answered)


def _share_of_all(answers: Answers) -> float:
    """An error counts as wrong here, as in the MI355X night's own number."""
    return answers.correct / max(1, len(answers.answers))


def _interval(answers: Answers) -> tuple[float, float] | None:
    if not answers.answered:
        return None
    found = binomtest(answers.correct, len(answers.answered)).proportion_ci(CONFIDENCE, "exact")
    return float(found.low), float(found.high)


def _missing(answers: Answers) -> str | None:
    """Why the answers are incomplete, if they are."""
    if answers.errors:
        first = answers.errors[0]
        count, total = len(answers.errors) + answers.not_asked, len(answers.answers)
        return f"{count} of {total} questions got no answer; the first: {first.error}: {first.detail}"
    if answers.not_asked or not answers.answers:
        return f"{answers.not_asked} of {len(answers.answers)} questions were not asked, and no harm is shown so far"
    return None


def _floor_alone(answers: Answers, interval: tuple[float, float] | None, floor: float) -> tuple[Outcome, str]:
    if (missing := _missing(answers)) or interval is None:
        return "inconclusive", missing or "no questions were asked"
    if _share(answers) >= floor:
        return "pass", f"{answers.score}, floor {floor:.1%}"
    if interval[1] < floor:
        return "fail", f"{answers.score}, and at most {interval[1]:.1%}; floor {floor:.1%}"
    return "inconclusive", f"{answers.score}: under the floor {floor:.1%}, but chance could do that; ask more questions"


def floor_power(n: int, floor: float) -> str:
    """How often an engine whose true score lies under the floor by 1, 2 or 5 points is failed, or passed (binomial)."""
    counts = np.arange(n)
    highest = beta.ppf(1 - (1 - CONFIDENCE) / 2, counts + 1, n - counts)  # upper Clopper-Pearson limit, as above
    most_to_fail = int(np.sum(highest < floor)) - 1
    least_to_pass = int(np.sum(np.arange(n + 1) / n < floor))
    parts = [
        f"{points} points under the floor: {binom.cdf(most_to_fail, n, floor - points / 100):.0%} failed, "
        f"{binom.sf(least_to_pass - 1, n, floor - points / 100):.0%} passed"
        for points in (1, 2, 5)
    ]
    return f"{n} questions, no reference; " + "; ".join(parts)
