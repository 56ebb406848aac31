"""The load generator against a scripted server: what it sends, what it counts, and that no request is dropped."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from engine.load import LATE_MAX_S, LATE_P95_S, Hooks, LoadResult, Sample, run_load
from engine.prompts import PlannedRequest
from tests.engine.scripted import FINE, Behaviour, Scripted, scripted


def requests(
    warmup: int = 0, measured: int = 1, fill: int = 0, at: Sequence[float] | None = None
) -> list[PlannedRequest]:
    phases = ["warmup"] * warmup + ["measured"] * measured + ["fill"] * fill
    return [
        PlannedRequest(i, phase, at[i] if at else None, tuple(range(i, i + 5)), 4)  # type: ignore[arg-type]
        for i, phase in enumerate(phases)
    ]


def drive(
    server: Scripted, plan: list[PlannedRequest], concurrency: int | None = 2, request_s: float = 5.0,
    run_s: float = 20.0, hooks: Hooks | None = None,
) -> LoadResult:  # fmt: skip
    return run_load(
        server.url, "the-name", plan, concurrency=concurrency, request_s=request_s, run_s=run_s, hooks=hooks
    )


def of(result: LoadResult, phase: str) -> list[Sample]:
    return [s for s in result.samples if s.phase == phase]


def test_what_is_asked_for() -> None:
    with scripted() as server:
        drive(server, requests())
    body = server.bodies[0]
    assert body["prompt"] == [0, 1, 2, 3, 4] and body["model"] == "the-name"
    assert body["max_tokens"] == body["min_tokens"] == 4
    assert body["temperature"] == 0 and body["ignore_eos"] is True and body["stream"] is True


def test_several_tokens_in_a_chunk_are_counted_once() -> None:
    with scripted([["+1", 0.02, "+3", "end"]]) as server:
        sample = drive(server, requests()).samples[0]
    assert [tokens for _, tokens in sample.chunks] == [1, 4]
    assert sample.ok and sample.output_tokens == 4 and sample.prompt_tokens == 5


def test_events_of_one_read_are_one_chunk() -> None:
    """A front end that stalls sends what it has at once: times of 0 between those tokens would be an artefact."""
    with scripted([["+1", 0.05, "+1", "+1", "+1", "end"]]) as server:
        sample = drive(server, requests()).samples[0]
    assert [tokens for _, tokens in sample.chunks] == [1, 4]
    assert sample.chunks[1][0] > sample.chunks[0][0]


def test_an_event_cut_anywhere_is_put_together_and_comments_are_skipped() -> None:
    event = 'data: {"choices": [{"text": "a"}]}\n\n'
    pieces: Behaviour = [": ping\n\n", event[:9], 0.01, event[9:], event * 2, event[:-1], 0.01, "\n"]
    usage = 'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}\n\n'
    with scripted([[*pieces, usage, "done"]]) as server:
        sample = drive(server, requests()).samples[0]
    assert sample.ok
    assert [tokens for _, tokens in sample.chunks] == [3, 4]  # a server that does not count: one token an event


@pytest.mark.parametrize(
    ("behaviour", "error", "detail"),
    [
        (["HTTP/1.1 500 Oh\r\ncontent-length: 5\r\n\r\nwrong"], "http_status", "500: wrong"),
        (["+1", 0.01, "cut"], "stream_broken", ""),
        (["+1", 0.01, "+1"], "stream_broken", "without [DONE]"),
        (["+1", "+1", "end"], "short_output", "2 output tokens, asked for 4"),
        (["+1", "+4", "end"], "stream_broken", "5 output tokens, asked for 4"),
        (["done"], "short_output", "None output tokens"),
        (["+1", "data: {not json\n\n"], "stream_broken", "not a completion chunk"),
        (["+1", "data: [1]\n\n"], "stream_broken", "not a completion chunk"),
        (["+1", 'data: {"error": {"message": "engine dead"}}\n\n', "done"], "stream_broken", "engine dead"),
        (["+1", 9.0], "timeout", "no end after 1 s"),
    ],
)
def test_a_request_that_fails_is_a_sample_with_its_reason(behaviour: Behaviour, error: str, detail: str) -> None:
    with scripted([behaviour]) as server:
        result = drive(server, requests(measured=3), concurrency=1, request_s=1 if error == "timeout" else 20)
    assert [s.error for s in result.samples] == [error, None, None]
    assert detail in result.samples[0].detail
    assert result.window is not None


def test_a_dead_server_fails_every_request_and_drops_none() -> None:
    with scripted() as server:
        pass
    result = drive(server, requests(warmup=2, measured=5, fill=3))
    assert [s.error for s in of(result, "warmup")] == ["connect"] * 2
    assert [s.error for s in of(result, "measured")] == ["connect"] * 5


def test_a_run_that_takes_too_long_is_cut_and_every_request_still_has_a_sample() -> None:
    with scripted(otherwise=["+1", 9.0]) as server:
        result = drive(server, requests(measured=5, fill=2), run_s=0.3)
    assert [s.error for s in of(result, "measured")] == ["timeout"] * 2 + ["not_sent"] * 3
    assert of(result, "fill") == []


def test_the_closed_loop_keeps_its_concurrency_until_the_last_measured_request_has_ended() -> None:
    """The last measured request is slow; fill requests stand in for the ended ones, then what is left is stopped."""
    slow: Behaviour = [0.3, "+1", "+1", "+1", "+1", "end"]
    with scripted([FINE] * 7 + [slow]) as server:
        result = drive(server, requests(warmup=3, measured=5, fill=40), concurrency=3)
    assert server.peak == 3
    assert all(s.ok for s in of(result, "measured"))
    assert {s.error for s in of(result, "fill")} <= {None, "stopped"}
    assert result.load_kept and result.window is not None
    start, end = result.window
    for moment in (start + 0.001, (start + end) / 2, end - 0.001):
        flying = [
            s
            for s in result.samples
            if s.start_s is not None and s.end_s is not None and s.start_s <= moment <= s.end_s
        ]
        assert len(flying) >= 2  # between two requests of one worker there is a moment with one fewer


def test_running_out_of_fill_requests_is_told() -> None:
    with scripted([FINE, [0.3, *FINE]]) as server:
        result = drive(server, requests(measured=2, fill=1), concurrency=2)
    assert not result.load_kept


def test_the_window_leaves_out_warm_up_and_fill() -> None:
    with scripted() as server:
        result = drive(server, requests(warmup=4, measured=6, fill=8), concurrency=2)
    starts = [s.start_s for s in of(result, "measured") if s.start_s is not None]
    lasts = [s.chunks[-1][0] for s in of(result, "measured")]
    assert result.window == (min(starts), max(lasts))
    assert min(s.chunks[0][0] for s in of(result, "warmup")) < result.window[0]


def test_hooks_run_once_each_in_order() -> None:
    seen: list[str] = []
    hooks = Hooks(lambda: seen.append("start"), lambda: seen.append("end"))
    with scripted() as server:
        drive(server, requests(warmup=2, measured=3, fill=2), hooks=hooks)
    assert seen == ["start", "end"]


def test_the_open_loop_sends_on_time_though_the_server_is_slow() -> None:
    at = [0.05 * i for i in range(8)]
    with scripted(otherwise=[0.5, *FINE]) as server:
        result = drive(server, requests(measured=8, at=at), concurrency=None)
    assert server.peak > 4  # it did not wait for answers
    assert all(s.ok for s in result.samples)
    assert min(result.lateness_s) >= 0


def test_a_generator_that_was_late_says_so() -> None:
    """Our own process is held up while requests are due: the engine was not measured, we were."""
    at = [0.02 * i for i in range(8)]
    held = Hooks(window_start=lambda: time.sleep(LATE_P95_S * 5))
    with scripted() as server:
        result = drive(server, requests(measured=8, at=at), concurrency=None, hooks=held)
    assert result.generator_late and max(result.lateness_s) > LATE_P95_S


def test_the_closed_loop_has_no_plan_to_be_late_for_but_can_be_held_up() -> None:
    held = Hooks(window_start=lambda: time.sleep(LATE_MAX_S * 1.1))
    with scripted(otherwise=[0.2, *FINE]) as server:
        result = drive(server, requests(measured=3), hooks=held)
    assert result.lateness_s == () and result.generator_late


def test_on_time() -> None:
    on_time = LoadResult((), None, 0.0, 1.0, lag_s=(0.001,) * 99 + (LATE_MAX_S * 0.9,), load_kept=True)
    assert not on_time.generator_late


def test_a_fault_of_our_own_is_not_hidden() -> None:
    def broken() -> None:
        raise RuntimeError("our own fault")

    with scripted() as server, pytest.raises(RuntimeError, match="our own fault"):
        drive(server, requests(measured=3), hooks=Hooks(window_start=broken))


@pytest.mark.parametrize("moment", ["as the event loop is made", "as it is closed"])
def test_a_signal_at_asyncios_edges_is_handled_when_it_has_been_left(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that raised in there left half an event loop, whose finaliser printed a traceback."""
    inside, handled = [False], list[bool]()
    make = asyncio.events.new_event_loop

    def handler(number: int, frame: object) -> None:
        handled.append(inside[0])
        raise KeyboardInterrupt

    def sent_inside(work: Callable[[], Any]) -> Any:
        inside[0] = True
        os.kill(os.getpid(), signal.SIGTERM)
        done = work()
        inside[0] = False
        return done

    def made() -> asyncio.AbstractEventLoop:
        if moment == "as the event loop is made":
            return cast(asyncio.AbstractEventLoop, sent_inside(make))
        loop = make()
        close = loop.close
        monkeypatch.setattr(loop, "close", lambda: sent_inside(close))
        return loop

    monkeypatch.setattr(asyncio.events, "new_event_loop", made)
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_load("http://127.0.0.1:9", "m", [], concurrency=1, request_s=1, run_s=1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert handled == [False]
