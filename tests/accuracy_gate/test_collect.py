"""Collecting from a server: the stand-in engine where it can misbehave, a scripted answer where vLLM would not."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accuracy_gate.collect import TokenRun, collect, parse
from accuracy_gate.compare import compare
from accuracy_gate.prompts import prompts
from contracts import Limits
from engine.server import Engine
from tests.standin import standin_spec

PROMPTS = prompts(6)
Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    up: list[Engine] = []

    def begin(**knobs: str) -> Engine:
        env = {f"STANDIN_{name.upper()}": value for name, value in knobs.items()}
        up.append(Engine.start(standin_spec(env), f"L{len(up)}", tmp_path, Limits(engine_start_s=20, engine_stop_s=5)))
        up[-1].wait_ready()
        return up[-1]

    yield begin
    for engine in up:
        engine.stop()


def test_two_processes_give_the_same_tokens_in_both_modes_and_the_run_survives_a_file(
    start: Start, tmp_path: Path
) -> None:
    one, two = start(step_ms="1"), start(step_ms="1")
    alone = collect(one, PROMPTS, tokens=12)
    assert not alone.errors and all(len(s.positions) == 12 for s in alone.sequences)
    assert alone.concurrency == 1 and alone.launch_id == "L0"
    crowd = collect(two, PROMPTS, tokens=12, mode="concurrent", concurrency=4)
    assert crowd.concurrency == 4 and compare(alone, crowd).exact
    path = tmp_path / "deep" / "run.json"
    crowd.save(path)
    assert TokenRun.load(path) == crowd


def test_http_errors_are_kept_as_errors_and_the_other_prompts_are_still_asked(start: Start) -> None:
    run = collect(start(step_ms="1", fail_every="3"), PROMPTS, tokens=8)
    assert [s.error for s in run.sequences] == [None, None, "http", None, None, "http"]
    assert "HTTP 500" in run.sequences[2].detail and not run.sequences[2].positions


def test_an_engine_that_hangs_costs_one_time_limit_and_no_wrong_token(start: Start) -> None:
    engine = start(step_ms="1", hang_after="3")
    began = time.monotonic()
    run = collect(engine, PROMPTS, tokens=8, timeout=1.0)
    assert time.monotonic() - began < 5  # not 4 more time limits, let alone the default of 120 s each
    assert [s.error for s in run.sequences] == [None, None, "timeout", "not_asked", "not_asked", "not_asked"]


def test_an_engine_that_dies_is_a_broken_connection(start: Start) -> None:
    run = collect(start(step_ms="1", crash_after="2"), PROMPTS, tokens=8)
    assert [s.error for s in run.sequences][:3] == [None, "connection", "not_asked"]


def test_ctrl_c_does_not_wait_for_an_engine_that_hangs(start: Start) -> None:
    engine = start(hang_after="1")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            collect(engine, PROMPTS, tokens=8, mode="concurrent", concurrency=4, timeout=20.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 10
    engine.stop()  # ends the requests in flight, as a night does


def answer(**changes: Any) -> dict[str, Any]:
    """One generated token in the shape of vLLM 0.32.0; `changes` replace parts of its choice."""
    logprobs = {"token_logprobs": [-0.1], "top_logprobs": [{"token_id:5": -0.1, "token_id:3": -2.0}]}
    choice = {"token_ids": [5], "prompt_token_ids": [1, 2], "finish_reason": "length", "logprobs": logprobs}
    return {"choices": [choice | changes]}


def test_an_answer_of_vllm_is_read() -> None:
    (position,) = parse("p0", answer()).positions
    assert position.token == 5 and position.top == ((5, -0.1), (3, -2.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": None},
        {"token_ids": [5, 6]},
        {"logprobs": None},
        {"logprobs": {"token_logprobs": [math.nan], "top_logprobs": [{"token_id:5": -0.1}]}},
        {"logprobs": {"token_logprobs": [-0.1], "top_logprobs": [{}]}},
        {"logprobs": {"token_logprobs": [-0.1], "top_logprobs": [{" the": -0.1}]}},
        {"logprobs": {"token_logprobs": [None], "top_logprobs": [{"token_id:5": -0.1}]}},
    ],
)
def test_half_an_answer_is_malformed_never_a_token(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        parse("p0", answer(**changes))
