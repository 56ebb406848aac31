"""Asking over HTTP: a small calculator as the server, and the stand-in engine where a process is what matters."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from accuracy_gate.gsm8k.ask import Answer, Answers, ask, read_answer
from accuracy_gate.gsm8k.check import check
from accuracy_gate.gsm8k.paired import stop_on_harm
from accuracy_gate.gsm8k.questions import Question, QuestionSet
from accuracy_gate.gsm8k.styles import style
from contracts import Failure, FailureKind, LaunchRecord, Limits
from engine.running import EngineFailure
from engine.server import Engine
from tests.standin import standin_spec

NIGHT = style("mi355x_night")
Reply = Callable[[int], tuple[int, str]]  # number -> status, text


def sums(n: int) -> QuestionSet:
    made = (Question(id=f"q{i}", question=f"What is {i} + 1?", answer=f"#### {i + 1}") for i in range(n))
    return QuestionSet(source="made up", questions=tuple(made))


@dataclass
class Calculator:
    """Answers `What is N + 1?` by `reply(N)`; ours until `ours` is False."""

    base_url: str
    reply: Reply
    served_name: str = "calculator-nonce"
    ours: bool = True
    checks: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    record: LaunchRecord = LaunchRecord(
        launch_id="L7", spec_id="s", pid=1, pid_started=0.0, port=1, nonce="nonce", log_path="engine.log"
    )

    def check(self) -> None:
        self.checks += 1
        if not self.ours:
            raise EngineFailure(Failure(kind=FailureKind.NOT_OURS, reason="another process answers"))

    def log_offset(self) -> int:
        return 0

    def log_since(self, offset: int) -> str:
        return ""


def right(number: int) -> tuple[int, str]:
    return 200, f"{number} and one more.\n#### {number + 1}"


@pytest.fixture
def calculator() -> Iterator[Calculator]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer: two small ones wait 40 ms for each other

        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            engine.bodies.append(body | {"path": self.path})
            asked = body.get("prompt") or body["messages"][0]["content"]
            status, text = engine.reply(int(re.findall(r"What is (\d+) \+ 1\?", asked)[-1]))
            choice = {"text": text} if "prompt" in body else {"message": {"content": text}}
            answer = {"choices": [choice | {"finish_reason": "stop"}], "usage": {"completion_tokens": 9}}
            sent = (json.dumps(answer) if status == 200 else text).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # 5 by default: a wave that knocks all at once would lose some

    server = Server(("127.0.0.1", 0), Handler)
    engine = Calculator(f"http://127.0.0.1:{server.server_address[1]}", right)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield engine
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_answer_is_kept_and_survives_a_file(calculator: Calculator, tmp_path: Path) -> None:
    calculator.reply = lambda n: (200, "no idea") if n == 3 else right(n)
    found = ask(calculator, sums(10), NIGHT, concurrency=4)
    assert [answer.right for answer in found.answers] == [True] * 3 + [False] + [True] * 6
    assert found.answers[2] == Answer(
        question_id="q2",
        text="2 and one more.\n#### 3",
        extracted="3",
        right=True,
        finish_reason="stop",
        output_tokens=9,
    )
    assert (found.launch_id, found.style, found.max_tokens, found.concurrency) == ("L7", "mi355x_night", 2048, 4)
    assert found.questions_digest == sums(10).digest and not found.stopped and calculator.checks == 2
    assert (found.correct, found.no_number, found.score) == (9, 1, "9 of 10 right (90.0%)")
    found.save(tmp_path / "deep" / "answers.json")
    assert Answers.load(tmp_path / "deep" / "answers.json") == found
    assert {body["model"] for body in calculator.bodies} == {"calculator-nonce"}
    assert len({body["cache_salt"] for body in calculator.bodies}) == 1


def test_a_completions_style_asks_there_with_its_examples(calculator: Calculator) -> None:
    train = QuestionSet(source="train", questions=sums(30).questions[20:])
    found = ask(calculator, sums(5), style("vllm_eval", train), concurrency=5)
    assert found.correct == 5 and {body["path"] for body in calculator.bodies} == {"/v1/completions"}
    assert calculator.bodies[0]["prompt"].startswith("Question: What is 20 + 1?\nAnswer: #### 21\n\n")


def test_a_decision_after_each_wave_stops_the_asking(calculator: Calculator) -> None:
    seen: list[int] = []

    def stop(answers: Sequence[Answer]) -> bool:
        seen.append(len(answers))
        return len(answers) >= 8

    found = ask(calculator, sums(19), NIGHT, concurrency=4, after_wave=stop)
    assert seen == [4, 8] and len(calculator.bodies) == 8
    assert found.stopped and found.not_asked == 11 and not found.errors and len(found.answers) == 19


def test_a_broken_change_costs_a_few_questions(calculator: Calculator) -> None:
    questions = sums(40)
    known = ask(calculator, questions, NIGHT, concurrency=8)
    assert known.correct == 40
    calculator.reply = lambda n: (200, "#### 0")
    calculator.bodies.clear()
    found = ask(calculator, questions, NIGHT, concurrency=8, after_wave=stop_on_harm(known.answers))
    assert len(calculator.bodies) == 16
    result = check(questions, known, found)
    assert result.outcome == "fail" and result.reason.startswith("16 right answers lost and 0 gained in 16 questions")


def test_failed_requests_are_errors_of_their_kind(calculator: Calculator) -> None:
    calculator.reply = lambda n: {1: (500, "broken\nhere"), 2: (200, None)}.get(n, right(n))  # type: ignore[arg-type,return-value]
    found = ask(calculator, sums(4), NIGHT, concurrency=2)
    assert [answer.error for answer in found.answers] == [None, "http", None, None]
    assert found.answers[1].detail == "HTTP 500: broken here" and found.answers[1].right is None
    assert found.answers[2].text == "" and found.answers[2].right is False  # a chat answer without content is an answer
    assert found.score == "2 of 3 right (66.7%), 1 http"


def test_after_a_wave_of_nothing_but_errors_the_rest_is_not_asked(calculator: Calculator) -> None:
    calculator.reply = lambda n: (404, "no chat template")
    found = ask(calculator, sums(9), NIGHT, concurrency=3)
    assert [answer.error for answer in found.answers] == ["http"] * 3 + ["not_asked"] * 6
    assert not found.stopped and len(calculator.bodies) == 3 and found.score == "none of 9 questions answered"


def test_a_time_out_costs_one_wave(calculator: Calculator) -> None:
    def slow(number: int) -> tuple[int, str]:
        if number == 1:
            time.sleep(0.3)
        return right(number)

    calculator.reply = slow
    found = ask(calculator, sums(6), NIGHT, concurrency=2, timeout_s=0.1)
    assert [answer.error for answer in found.answers] == [None, "timeout"] + ["not_asked"] * 4


def test_an_engine_that_is_not_ours_raises(calculator: Calculator) -> None:
    def lose(answers: Sequence[Answer]) -> bool:
        calculator.ours = False
        return False

    with pytest.raises(EngineFailure, match="another process answers"):
        ask(calculator, sums(4), NIGHT, after_wave=lose)
    with pytest.raises(EngineFailure):
        ask(calculator, sums(4), NIGHT)
    assert len(calculator.bodies) == 4


@pytest.mark.parametrize(
    "reply", [{}, {"choices": []}, {"choices": [{"text": "5"}]}, {"choices": [{"message": {"content": 5}}]}]
)
def test_a_reply_without_its_parts_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises((ValueError, LookupError)):
        read_answer(NIGHT, sums(1).questions[0], reply)


def test_an_engine_without_chat_is_inconclusive_and_says_what_it_said(tmp_path: Path) -> None:
    """The stand-in has no chat: every request is refused with 404."""
    questions = sums(3)
    with Engine.start(standin_spec(), "L1", tmp_path, Limits(engine_start_s=20, engine_stop_s=5)) as engine:
        engine.wait_ready()
        found = ask(engine, questions, NIGHT)
    result = check(questions, None, found)
    assert result.outcome == "inconclusive" and result.statistic["errors"] == 3
    assert "HTTP 404" in result.reason
