"""Asks a running engine the questions, greedily, and keeps what it said. Nothing is judged here.

In waves of `concurrency` requests, each when the last is done: then a batch fills the same way every time, so that an
unchanged engine answers most alike, and there is a point for a decision after each wave. A queue refilled as requests
finish would be faster where lengths differ much, and would mix questions by timing.

A request that failed is an answer with an `error`, never a wrong one.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from accuracy_gate.collect import ErrorKind
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


class Answers(Frozen):
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

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(exclude_defaults=True))

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Raises OSError, or ValueError when the file is no Answers."""
        return cls.model_validate_json(path.read_text())


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
    engine.check()
    salt = uuid.uuid4().hex  # no prefix is taken from a cache that an earlier run filled
    started = time.monotonic()
    answers: list[Answer] = []
    broken = stopped = False
    pool = ThreadPoolExecutor(max_workers=width)
    try:
        limits = httpx.Limits(max_connections=width)
        with httpx.Client(
            base_url=engine.base_url, timeout=timeout_s, limits=limits, trust_env=False, verify=False
        ) as client:  # plain HTTP: reading certificates would cost 0.1 s
            for wave in (asked[i : i + width] for i in range(0, len(asked), width)):
                if broken or stopped:
                    answers += [Answer(question_id=question.id, error="not_asked") for question, _ in wave]
                    continue
                got = list(pool.map(lambda pair: _one(client, engine.served_name, style, salt, *pair), wave))
                answers += got
                errors = [answer.error for answer in got if answer.error]
                broken = len(errors) == len(got) or bool({"timeout", "connection"} & set(errors))
                stopped = not broken and after_wave is not None and after_wave(tuple(answers))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl+C does not wait for an engine that hangs
    seconds = time.monotonic() - started
    if not any(answer.error in ("timeout", "connection") for answer in answers):
        engine.check()
    return Answers(
        launch_id=engine.record.launch_id,
        spec_id=engine.record.spec_id,
        style=style.name,
        max_tokens=style.max_tokens,
        questions_digest=questions.digest,
        concurrency=width,
        answers=tuple(answers),
        seconds=seconds,
        stopped=any(answer.error == "not_asked" for answer in answers) and not broken,
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


def _one(client: httpx.Client, model: str, style: Style, salt: str, question: Question, prompt: str) -> Answer:
    try:
        response = client.post(style.endpoint, json=request(style, model, prompt, salt))
    except httpx.TimeoutException as error:
        return _failed(question, "timeout", error)
    except httpx.HTTPError as error:
        return _failed(question, "connection", error)
    if response.status_code != 200:
        return _failed(question, "http", f"HTTP {response.status_code}: {response.text}")
    try:
        return read_answer(style, question, response.json())
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        return _failed(question, "malformed", error)


def _failed(question: Question, kind: ErrorKind, why: Exception | str) -> Answer:
    words = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
    return Answer(question_id=question.id, error=kind, detail=" ".join(words.split())[:300])
