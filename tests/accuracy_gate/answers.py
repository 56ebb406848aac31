"""Made-up answers to questions whose gold answer is 5."""

from __future__ import annotations

from accuracy_gate.gsm8k.ask import Answer, Answers
from accuracy_gate.gsm8k.questions import Question, QuestionSet


def questions(n: int) -> QuestionSet:
    asked = tuple(Question(id=f"q{i}", question=f"What is {i} minus {i - 5}?", answer="#### 5") for i in range(n))
    return QuestionSet(source="made up", questions=asked)


def answers(marks: str, launch_id: str = "L001", **fields: object) -> Answers:
    """One mark a question: `+` right, `-` wrong, `c` wrong because it was cut, `!` HTTP error, `.` not asked."""
    kinds: dict[str, dict[str, object]] = {
        "+": {"text": "#### 5", "extracted": "5", "right": True, "finish_reason": "stop"},
        "-": {"text": "#### 4", "extracted": "4", "right": False, "finish_reason": "stop"},
        "c": {"text": "so we", "right": False, "finish_reason": "length"},
        "!": {"error": "http", "detail": "HTTP 400: too long"},
        ".": {"error": "not_asked"},
    }
    given = {
        "launch_id": launch_id, "spec_id": "s", "style": "mi355x_night", "max_tokens": 2048, "concurrency": 8,
        "questions_digest": questions(len(marks)).digest, "seconds": 1.0,
        "answers": [{"question_id": f"q{i}", **kinds[mark]} for i, mark in enumerate(marks)],
    }  # fmt: skip
    return Answers.model_validate(given | fields)


def answer(question_id: str, right: bool) -> Answer:
    return Answer(question_id=question_id, right=right)
