"""Asks a running engine the questions, greedily, and keeps what it said. Nothing is judged here.

In waves (accuracy_gate/asking.py): so an unchanged engine answers most alike, and there is a point for a decision after
each wave. A queue refilled as requests finish would be faster where lengths differ much.

A request that failed is an answer with an `error`, never a wrong one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from accuracy_gate.asking import Asker, ErrorKind, Saved, asking
from accuracy_gate.gsm8k.questions import Question, QuestionSet
from accuracy_gate.gsm8k.styles import Style
from contracts import Frozen
from engine.running import RunningEngine


class Answer(Frozen):
    question_id: str
    text: str = ""
    extracted: str | None = None  # what the style found in the text; None: nothing
    right: bool | None = None  # None where there is an error
    finish_reason: str | None = None  # "length": cut at max_tokens
    output_tokens: int | None = None
    error: ErrorKind | None = None  # "not_asked": stopped before its turn
    detail: str = ""


class Answers(Saved):
    """What one launch answered to one set of questions in one style."""

    launch_id: str
    spec_id: str
    style: str
    max_tokens: int
    questions_digest: str
    concurrency: int
    answers: tuple[Answer, ...]  # in the order of the questions
    seconds: float
    stopped: bool = False  # by `after_wave`, so the last questions were not asked

    @property
    def answered(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if answer.error is None)

    @property
    def errors(self) -> tuple[Answer, ...]:
        """Requests that failed. A question that was not asked is none."""
        return tuple(answer for answer in self.answers if answer.error not in (None, "not_asked"))

    @property
    def not_asked(self) -> int:
        return sum(answer.error == "not_asked" for answer in self.answers)

    @property
    def correct(self) -> int:
        return sum(answer.right is True for answer in self.answers)

    @property
    def truncated(self) -> int:
        return sum(answer.finish_reason == "length" for answer in self.answers)

    @property
    def no_number(self) -> int:
        return sum(answer.extracted is None for answer in self.answered)

    @property
    def score(self) -> str:
        """In words: `242 of 250 right (96.8 %)`, with what went wrong."""
        answered = len(self.answered)
        if not answered:
            return f"none of {len(self.answers)} questions answered"
        words = f"{self.correct} of {answered} right ({self.correct / answered:.1%})"
        kinds = Counter(answer.error for answer in self.answers if answer.error)
        others = [f"{count} {str(kind).replace('_', ' ')}" for kind, count in kinds.items()]
        others += [f"{self.truncated} cut at {self.max_tokens} tokens"] if self.truncated else []
        return ", ".join([words, *others])


def ask(
    engine: RunningEngine,
    questions: QuestionSet,
    style: Style,
    concurrency: int = 32,
    timeout_s: float = 120.0,
    after_wave: Callable[[Sequence[Answer]], bool] | None = None,
) -> Answers:
    """`timeout_s` holds for each request. `after_wave` gets all answers so far after each wave; True stops the asking.

    After a wave with a time-out or a broken connection, or one in which every request failed, the rest is not asked.
    The engine's identity is checked before and after. Raises EngineFailure when the engine is not (or no longer) ours,
    ValueError when the style lacks worked examples.
    """
    asked = list(zip(questions.questions, style.prompts(questions.questions), strict=True))
    width = max(1, concurrency)
    answers: list[Answer] = []
    broken = stopped = False
    with asking(engine, width, timeout_s) as asker:
        waves = asker.waves(
            asked,
            lambda pair: _one(asker, style, *pair),
            lambda pair: Answer(question_id=pair[0].id, error="not_asked"),
            width,
        )
        for wave in waves:
            answers += wave
            if asker.ended:
                continue  # these were not asked any more
            broken = asker.lost or all(answer.error for answer in wave)
            stopped = not broken and after_wave is not None and after_wave(tuple(answers))
            asker.ended = broken or stopped
    return Answers(
        launch_id=engine.record.launch_id,
        spec_id=engine.record.spec_id,
        style=style.name,
        max_tokens=style.max_tokens,
        questions_digest=questions.digest,
        concurrency=width,
        answers=tuple(answers),
        seconds=asker.seconds,
        stopped=stopped and any(answer.error == "not_asked" for answer in answers),
    )


def request(style: Style, model: str, prompt: str, salt: str) -> dict[str, Any]:
    """The body: what the style's own tool sends, and a cache salt."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": style.max_tokens,
        "temperature": 0,
        "cache_salt": salt,
    }
    if style.endpoint == "/v1/completions":
        body["prompt"] = prompt
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    if style.stop:
        body["stop"] = list(style.stop)
    if style.seed is not None:
        body["seed"] = style.seed
    return body


def read_answer(style: Style, question: Question, reply: Any) -> Answer:
    """From the engine's JSON. Raises ValueError or a lookup error when a part is missing."""
    choice = reply["choices"][0]
    text = choice["text"] if style.endpoint == "/v1/completions" else choice["message"]["content"]
    if text is None:  # a chat answer of nothing, or of reasoning only
        text = ""
    if not isinstance(text, str):
        raise ValueError(f"the answer is no text but {type(text).__name__}")
    extracted = style.extract(text)
    return Answer(
        question_id=question.id,
        text=text,
        extracted=extracted,
        right=style.right(extracted, question),
        finish_reason=choice.get("finish_reason"),
        output_tokens=(reply.get("usage") or {}).get("completion_tokens"),
    )


def _one(asker: Asker, style: Style, question: Question, prompt: str) -> Answer:
    return asker.post(
        style.endpoint,
        request(style, asker.model, prompt, asker.salt),
        lambda reply: read_answer(style, question, reply),
        lambda kind, words: Answer(question_id=question.id, error=kind, detail=words),
    )
