"""Engines started, proven ours, broken and stopped, with the stand-in in vLLM's place. Real processes throughout."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import psutil
import pytest

from contracts import EngineSpec, FailureKind, Limits
from engine import server
from engine.orphans import alive, end_orphans, same_process, wait_gone
from engine.ports import free_port
from engine.running import EngineFailure, RunningEngine
from engine.server import Engine
from tests.engine.dying_loop import Loop, dying_loop, loop_program
from tests.standin import standin_spec

LIMITS = Limits(engine_start_s=20, engine_stop_s=5)
IMPATIENT = Limits(engine_start_s=1, engine_stop_s=0.5)

Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the stand-in with these knobs; whatever is still up is stopped after the test."""
    up: list[Engine] = []

    def begin(env: dict[str, str] | None = None, limits: Limits = LIMITS, port: int | None = None) -> Engine:
        up.append(Engine.start(standin_spec(env), f"L{len(up)}", tmp_path, limits, port))
        return up[-1]

    yield begin
    for engine in up:
        engine.stop()


def complete(engine: RunningEngine, tokens: int = 3) -> httpx.Response:
    body = {"model": engine.served_name, "prompt": "one two three", "max_tokens": tokens}
    return httpx.post(f"{engine.base_url}/v1/completions", json=body, trust_env=False, timeout=5)


def fails(action: Callable[[], object]) -> tuple[FailureKind, str]:
    with pytest.raises(EngineFailure) as caught:
        action()
    return caught.value.failure.kind, caught.value.failure.reason


def test_an_engine_is_given_its_card_and_the_record_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")  # of the shell that starts the night
    card = {"ROCR_VISIBLE_DEVICES": "GPU-21501edcba987654", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}
    engine = Engine.start(standin_spec(), "L0", tmp_path, LIMITS, card_env=card)
    try:
        record = engine.wait_ready()
        assert psutil.Process(record.pid).environ().items() >= card.items()
        assert record.realised["card_environment"] == card
    finally:
        engine.stop()


def test_a_whole_life(start: Start, tmp_path: Path) -> None:
    engine: RunningEngine = (running := start())
    assert running.record.ready_s is None and psutil.pid_exists(running.record.pid)
    record = running.wait_ready()
    assert record == engine.record and record.ready_s and record.rss_bytes
    assert record.realised["stand_in"] == "0.0.0+standin"  # a report can never call this vLLM
    assert record.nonce in engine.served_name
    assert os.listdir(tmp_path / "artifacts/launches/L0/cwd") == []
    assert os.readlink(f"/proc/{record.pid}/cwd") == str(tmp_path / "artifacts/launches/L0/cwd")
    engine.check()
    offset = engine.log_offset()
    assert complete(engine).status_code == 200
    engine.check()
    assert "Application startup complete" in engine.log_since(0)
    assert "Application startup complete" not in engine.log_since(offset)
    report = running.stop()
    assert not report.forced and not psutil.pid_exists(record.pid)
    assert running.stop() == report
    kind, reason = fails(engine.check)
    assert kind is FailureKind.CRASH and "stopped by us" in reason


def test_stopped_by_another_thread_while_it_is_waited_for(start: Start) -> None:
    engine = start({"STANDIN_START_S": "30"})
    threading.Timer(0.3, engine.stop).start()
    assert "stopped by us" in fails(engine.wait_ready)[1]
    assert not psutil.pid_exists(engine.record.pid)


def test_two_engines_at_once(start: Start) -> None:
    a, b = start(), start()
    assert a.record.port != b.record.port
    for engine in (a, b):
        engine.wait_ready()
    for engine in (a, b):
        engine.check()
        assert complete(engine).status_code == 200
    assert a.stop().forced is False
    b.check()


@pytest.mark.parametrize(
    ("env", "kind", "words"),
    [
        ({"STANDIN_CRASH_AT_START": "1"}, FailureKind.CRASH, "told to crash"),
        ({"STANDIN_OOM": "torch"}, FailureKind.OUT_OF_MEMORY, "can't allocate memory"),
        ({"STANDIN_OOM": "killed"}, FailureKind.CRASH, "SIGKILL from outside"),  # the kernel counted none
        ({"STANDIN_REFUSE_FLAG": "port"}, FailureKind.REFUSED_CONFIGURATION, "refuses port"),
        ({"STANDIN_STALE": "nightgate-L0-00000000"}, FailureKind.NOT_OURS, "serves nightgate-L0-00000000"),
        ({"STANDIN_HANG_AT_START": "1"}, FailureKind.HANG, "not ready after 1 s"),
    ],
)
def test_an_engine_that_never_serves(start: Start, env: dict[str, str], kind: FailureKind, words: str) -> None:
    engine = start(env, IMPATIENT if "STANDIN_HANG_AT_START" in env else LIMITS)
    found, reason = fails(engine.wait_ready)
    assert (found, words in reason) == (kind, True), reason
    assert not psutil.pid_exists(engine.record.pid)  # wait_ready has stopped it


def test_a_crash_in_mid_run(start: Start) -> None:
    engine = start({"STANDIN_CRASH_AFTER": "2"})
    engine.wait_ready()
    assert complete(engine).status_code == 200
    with pytest.raises(httpx.HTTPError):
        complete(engine)
    kind, reason = fails(engine.check)
    assert kind is FailureKind.CRASH and "told to crash in mid-run" in reason


def test_a_frozen_engine_is_a_hang(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(limits=IMPATIENT.model_copy(update={"engine_start_s": 20}))
    engine.wait_ready()
    engine._http.timeout = httpx.Timeout(0.3)  # not the 10 s of a real night
    os.kill(engine.record.pid, signal.SIGSTOP)
    assert fails(engine.check)[0] is FailureKind.HANG
    assert engine.stop().forced  # a stopped process hears no SIGTERM
    assert not psutil.pid_exists(engine.record.pid)


def test_ignoring_sigterm_does_not_help_nor_does_leaving_the_session(start: Start) -> None:
    engine = start({"STANDIN_IGNORE_TERM": "1", "STANDIN_CHILD": "1"}, IMPATIENT.model_copy(
        update={"engine_start_s": 20}))  # fmt: skip
    engine.wait_ready()
    pids = engine.pids()
    assert len(pids) == 2
    assert engine.stop().forced
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_children_of_a_dead_engine_are_ended_too(start: Start) -> None:
    engine = start({"STANDIN_CHILD": "1"}, IMPATIENT.model_copy(update={"engine_start_s": 20}))
    engine.wait_ready()
    pids = engine.pids()
    os.kill(engine.record.pid, signal.SIGKILL)
    kind, reason = fails(engine.check)
    assert kind is FailureKind.CRASH and "SIGKILL from outside" in reason
    engine.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_dead_worker_is_noticed_while_health_still_answers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start({"STANDIN_CHILD": "1"}, IMPATIENT.model_copy(update={"engine_start_s": 20}))
    engine.wait_ready()
    monkeypatch.setattr(server, "ANSWER_S", 0.3)
    (worker,) = set(engine.pids()) - {engine.record.pid}
    one = psutil.Process(worker)
    one.kill()
    wait_gone([one], 5)
    kind, reason = fails(engine.check)
    assert kind is FailureKind.CRASH and f"(pid {worker}) has ended" in reason
    assert complete(engine).status_code == 200


def test_a_port_in_use_is_refused_before_anything_starts(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        kind, reason = fails(lambda: start(port=foreign.getsockname()[1]))
    assert kind is FailureKind.PORT_TAKEN
    assert f"pid {os.getpid()}" in reason and "engine.port" in reason


class Foreign(BaseHTTPRequestHandler):
    """Says that all is well on every path, as a stale server would."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_foreign_server_that_takes_the_port_while_ours_starts(start: Start) -> None:
    port = free_port()
    engine = start({"STANDIN_START_S": "30"}, port=port)
    foreign = HTTPServer(("127.0.0.1", port), Foreign)
    threading.Thread(target=foreign.serve_forever, daemon=True).start()
    try:
        kind, reason = fails(engine.wait_ready)
    finally:
        foreign.shutdown()
        foreign.server_close()
    assert kind is FailureKind.PORT_TAKEN and f"pid {os.getpid()}" in reason


def test_a_foreign_server_beside_ours(start: Start) -> None:
    """Ours listens on 127.0.0.1, the other on 127.0.0.2: two addresses, one port, and trust in neither."""
    engine = start()
    engine.wait_ready()
    with socket.create_server(("127.0.0.2", engine.record.port)):
        assert fails(engine.check)[0] is FailureKind.NOT_OURS
    engine.check()


def test_no_proxy_stands_between_us_and_the_engine(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    engine = start()
    engine.wait_ready()
    engine.check()


def test_an_interpreter_without_vllm(tmp_path: Path) -> None:
    spec = EngineSpec(python=str(tmp_path / "python"), model="m")
    kind, reason = fails(lambda: Engine.start(spec, "L1", tmp_path, LIMITS))
    assert kind is FailureKind.NO_VLLM and "engine.python" in reason


def test_a_value_that_no_command_line_holds_is_not_the_interpreters_fault(tmp_path: Path) -> None:
    for spec in (standin_spec({"X": "x" * 200_000}), standin_spec(kernel_config="x" * 200_000)):
        with pytest.raises(EngineFailure, match="too long for a command line: shorten it") as caught:
            Engine.start(spec, "L000", tmp_path, Limits())
        assert caught.value.failure.kind is FailureKind.REFUSED_CONFIGURATION


def test_a_launch_id_cannot_leave_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="launch_id"):
        Engine.start(standin_spec(), "../../etc", tmp_path, LIMITS)


def test_a_lost_launch_with_the_same_id_leaves_no_words_in_the_new_ones_reason(tmp_path: Path) -> None:
    broken = Engine.start(standin_spec({"STANDIN_OOM": "torch"}), "L1", tmp_path, LIMITS)
    assert fails(broken.wait_ready)[0] is FailureKind.OUT_OF_MEMORY
    again = Engine.start(standin_spec({"STANDIN_CRASH_AT_START": "1"}), "L1", tmp_path, LIMITS)
    assert fails(again.wait_ready)[0] is FailureKind.CRASH


# --- the loop dies ------------------------------------------------------------------------------------------------

LOOP = loop_program("from tests.standin import standin_spec", 'standin_spec({"STANDIN_CHILD": "1"})', 0.5)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """(loop, record, [keeper, engine, its child])."""
    with dying_loop(LOOP, tmp_path) as found:
        yield found


def test_kill_9_of_the_loop_leaves_nothing(
    loop: Loop,
) -> None:
    process, record, below = loop
    assert len(below) == 3
    process.send_signal(signal.SIGKILL)
    wait_gone(below, 20)
    assert not any(alive(one) for one in below)
    assert end_orphans([record]) == ()


def test_kill_9_of_loop_and_keeper_leaves_orphans_which_the_next_loop_ends(
    loop: Loop,
) -> None:
    process, record, (keeper, *engine) = loop
    process.send_signal(signal.SIGSTOP)  # so that it cannot see its keeper go
    keeper.kill()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(one.is_running() for one in engine)
    assert end_orphans([record], grace_s=1) == (record.pid,)
    assert not any(alive(one) for one in engine)


def test_a_keeper_that_was_killed_is_noticed_and_the_engine_still_ended(start: Start) -> None:
    engine = start()
    engine.wait_ready()
    os.kill(engine._link.keeper_pid, signal.SIGKILL)
    time.sleep(0.2)
    assert "keeper" in fails(engine.check)[1]
    assert engine.stop().forced
    assert same_process(engine.record.pid, engine.record.pid_started) is None
