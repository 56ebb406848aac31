"""Grade-school sums, asked and scored as the MI355X night did: chat, temperature 0, zero-shot, the first 250 questions.

Prompt: the question, a newline, and INSTRUCTION. Answer: what follows the first `####`, else the whole text; in it the
last number, commas and dollar signs taken out; equal to the gold answer within 1e-6. That night's verdict was a bare
cut of 96.5 %, which its own unchanged engine once failed (96.4, 97.6 and 97.2 % on three runs): the score of 250
questions has a standard error of about 1 point there. So this check fails only when the whole interval lies below the
floor, and says `inconclusive` where chance could have done it; the bare cut is in the statistic. A question whose
request failed is an error, never a wrong answer: with errors the check passes nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from scipy.stats import beta, binom, binomtest

from contracts import Frozen, GateResult, JsonValue
from engine.running import RunningEngine

INSTRUCTION = (
    "Solve step by step, then give the final answer as a plain number on the last line in the form: #### <number>"
)
FLOOR = 0.965  # the MI355X night's
LIMIT = 250
CONFIDENCE = 0.95
MODE = "zero-shot chat, temperature 0, scored as the MI355X night"

_MARKED = re.compile(r"####\s*([-\d.,$]+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Question(Frozen):
    question: str
    gold: float


class Lost(Frozen):
    """A question that got no answer: an error of the request, not of the arithmetic."""

    why: str


def number(text: str) -> float | None:
    """The last number of a text; `1,234` is one number, so is `$18.00`."""
    found = _NUMBER.findall(text.replace(",", "").replace("$", ""))
    return float(found[-1]) if found else None


def extract(text: str) -> float | None:
    """The answer in a model's text, or None. After a first `####` without digits there is none."""
    marked = _MARKED.search(text)
    return number(marked.group(1)) if marked else number(text)


def read(path: Path, limit: int = LIMIT) -> tuple[Question, ...]:
    """The first `limit` rows {"question", "answer"} of a JSONL, `answer` ending in `#### N`.

    Raises OSError, or ValueError that names the line.
    """
    questions: list[Question] = []
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if len(questions) == limit:
            break
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            question, answer = row["question"], row["answer"]
            gold = number(answer.split("####")[-1])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'{path}:{line_number}: need {{"question": ..., "answer": "... #### 18"}}') from error
        if gold is None or not isinstance(question, str):
            raise ValueError(f"{path}:{line_number}: no number after #### in the answer")
        questions.append(Question(question=question, gold=gold))
    if not questions:
        raise ValueError(f"{path}: no questions in it")
    return tuple(questions)


def run(
    engine: RunningEngine,
    path: str | None,
    limit: int = LIMIT,
    concurrency: int = 32,
    max_tokens: int = 2048,
    timeout: float = 120.0,
    floor: float = FLOOR,
) -> GateResult:
    """Raises EngineFailure when the engine is not ours. A missing or bad file is `not_run`, with what to do."""
    if path is None:
        reason = "no questions given; set gate.gsm8k_path in the night file to a JSONL of question and answer rows"
        return GateResult(check="gsm8k", outcome="not_run", mode=MODE, reason=reason)
    try:
        questions = read(Path(path), limit)
    except (OSError, ValueError) as error:
        reason = f"gate.gsm8k_path cannot be used: {error}"
        return GateResult(check="gsm8k", outcome="not_run", mode=MODE, reason=reason)
    engine.check()
    started = time.monotonic()
    pool = ThreadPoolExecutor(max_workers=concurrency)
    try:
        with httpx.Client(base_url=engine.base_url, timeout=timeout, trust_env=False) as client:
            answers = list(pool.map(lambda question: _ask(client, engine.served_name, question, max_tokens), questions))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    engine.check()
    return score(questions, answers, floor, time.monotonic() - started)


def _ask(client: httpx.Client, model: str, question: Question, max_tokens: int) -> str | Lost:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": f"{question.question}\n{INSTRUCTION}"}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    try:
        response = client.post("/v1/chat/completions", json=body)
        if response.status_code != 200:
            return Lost(why=f"HTTP {response.status_code}: {response.text[:200]}")
        return str(response.json()["choices"][0]["message"]["content"] or "")
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
        return Lost(why=f"{type(error).__name__}: {error}"[:200])


def score(
    questions: tuple[Question, ...], answers: Sequence[str | Lost], floor: float = FLOOR, seconds: float = 0.0
) -> GateResult:
    """Pure. `answers` in the order of `questions`."""
    lost = [answer for answer in answers if isinstance(answer, Lost)]
    found = [None if isinstance(answer, Lost) else extract(answer) for answer in answers]
    right = [value is not None and abs(value - q.gold) < 1e-6 for q, value in zip(questions, found, strict=True)]
    errors, answered, correct = len(lost), len(answers) - len(lost), sum(right)
    statistic: dict[str, JsonValue] = {
        "questions": len(questions),
        "correct": correct,
        "errors": errors,
        "no_number": sum(value is None for value in found) - errors,
        "floor": floor,
        "score_errors_as_wrong": correct / len(questions),  # what the MI355X night prints
        "bare_cut_passes": correct / len(questions) >= floor,
    }
    if errors:
        reason = f"{errors} of {len(questions)} questions got no answer; the first: {lost[0].why}"
        outcome = "inconclusive"
    else:
        interval = binomtest(correct, answered).proportion_ci(CONFIDENCE, "exact")
        statistic["interval"] = [float(interval.low), float(interval.high)]
        share, words = correct / answered, f"{correct} of {answered} right"
        if share >= floor:
            outcome, reason = "pass", f"{words}: {share:.1%}, floor {floor:.1%}"
        elif interval.high < floor:
            outcome, reason = "fail", f"{words}: {share:.1%}, and at most {interval.high:.1%}; floor {floor:.1%}"
        else:
            outcome = "inconclusive"
            reason = (
                f"{words}: {share:.1%} is under the floor {floor:.1%}, but chance could do that; ask more questions"
            )
    return GateResult(
        check="gsm8k", outcome=outcome, mode=MODE, statistic=statistic, power=_power(len(questions), floor),
        reason=reason, seconds=seconds,
    )  # fmt: skip


def _power(n: int, floor: float) -> str:
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
    return f"{n} questions; " + "; ".join(parts)
