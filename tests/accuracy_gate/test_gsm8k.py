"""Questions, extraction and verdict, without an engine."""

import json
from pathlib import Path

import pytest

from accuracy_gate import gsm8k
from contracts import Limits
from engine.server import Engine
from tests.standin import standin_spec

DATA = Path(__file__).parents[3] / "shared" / "data" / "gsm8k" / "test.jsonl"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is $18.00.", 18.0),  # vLLM's own rule reads 0 here
        ("#### 18\n\nQuestion: foo 7", 18.0),  # the first mark counts, not the last number
        ("#### 1,234.", 1234.0),
        ("#### -10", -10.0),
        ("####$18.50", 18.5),
        ("so 3 + 4 = 7", 7.0),
        ("#### $. That is 5", None),  # marked, but no digits: no answer
        ("I do not know", None),
        ("", None),
    ],
)
def test_extraction(text: str, answer: float | None) -> None:
    assert gsm8k.extract(text) == answer


def ask(n: int, wrong: int, errors: int = 0) -> tuple[tuple[gsm8k.Question, ...], list[str | gsm8k.Lost]]:
    questions = tuple(gsm8k.Question(question="q", gold=5.0) for _ in range(n))
    lost: list[str | gsm8k.Lost] = [gsm8k.Lost(why="HTTP 400: too long")] * errors
    return questions, lost + ["#### 4"] * wrong + ["#### 5"] * (n - wrong - errors)


def test_a_score_just_under_the_floor_is_inconclusive_where_the_bare_cut_fails_it() -> None:
    """241 of 250 is what an unchanged engine once scored against its own floor of 96.5 %."""
    result = gsm8k.score(*ask(250, wrong=9))
    assert result.outcome == "inconclusive" and result.statistic["bare_cut_passes"] is False
    assert gsm8k.score(*ask(250, wrong=8)).outcome == "pass"
    assert gsm8k.score(*ask(250, wrong=30)).outcome == "fail"


def test_an_error_is_no_wrong_answer_and_passes_nothing() -> None:
    result = gsm8k.score(*ask(250, wrong=0, errors=1))
    assert result.outcome == "inconclusive" and result.statistic["errors"] == 1
    assert result.reason == "1 of 250 questions got no answer; the first: HTTP 400: too long"


def test_power_is_said_in_numbers() -> None:
    power = gsm8k.score(*ask(250, wrong=0)).power
    assert power is not None and "5 points under the floor: 91% failed, 0% passed" in power


def test_without_questions_the_check_did_not_run_and_says_how_it_would(tmp_path: Path) -> None:
    engine = None  # never touched
    result = gsm8k.run(engine, None)  # type: ignore[arg-type]
    assert result.outcome == "not_run" and "gate.gsm8k_path" in result.reason
    result = gsm8k.run(engine, str(tmp_path / "missing.jsonl"))  # type: ignore[arg-type]
    assert result.outcome == "not_run" and "missing.jsonl" in result.reason


@pytest.mark.parametrize("line", ["not json", "[1]", '{"question": "q"}', '{"question": "q", "answer": "#### none"}'])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "q", "answer": "#### 1"}) + f"\n\n{line}\n")
    with pytest.raises(ValueError, match=r"q\.jsonl:3"):
        gsm8k.read(path)


@pytest.mark.skipif(not DATA.exists(), reason="the GSM8K test set is not beside this checkout")
def test_every_gold_answer_of_the_test_set_is_read() -> None:
    questions = gsm8k.read(DATA, limit=10_000)
    rows = [json.loads(line)["answer"].split("####")[-1].strip() for line in DATA.read_text().splitlines()]
    assert len(questions) == len(rows) == 1319
    assert [q.gold for q in questions] == [float(row.replace(",", "")) for row in rows]
    assert sum("," in row for row in rows) == 14 and sorted(q.gold for q in questions)[:2] == [-10.0, -3.0]


def test_an_engine_that_cannot_answer_is_inconclusive_and_says_what_it_said(tmp_path: Path) -> None:
    """The stand-in has no chat: every request is refused with 404."""
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n' * 3)
    with Engine.start(standin_spec(), "L1", tmp_path, Limits(engine_start_s=20, engine_stop_s=5)) as engine:
        engine.wait_ready()
        result = gsm8k.run(engine, str(path))
    assert result.outcome == "inconclusive" and result.statistic["errors"] == 3
    assert "HTTP 404" in result.reason
