"""An engine's life in a container: started, proven ours, ended, and never left behind. Real processes throughout; the
recording stand-in (tests/docker_stand_in) is in docker's place and the stand-in engine in vLLM's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cards.installed import installed
from contracts import EngineSpec, FailureKind, Limits
from engine.orphans import alive, end_orphans, wait_gone
from engine.ports import listeners
from engine.running import EngineFailure
from engine.server import Engine
from tests.containers import CONTAINER, DIGEST, IMAGE_ID, Docker, docker
from tests.engine.dying_loop import Loop, dying_loop, loop_program
from tests.standin import PYTHON

LIMITS = Limits(engine_start_s=20, engine_stop_s=5)
IMPATIENT = Limits(engine_start_s=20, engine_stop_s=1)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    with docker(tmp_path / "docker") as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


def boxed(env: dict[str, str] | None = None) -> EngineSpec:
    return EngineSpec(python=PYTHON, model="stand-in", env=env or {}, container=CONTAINER)


Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path, runtime: Docker) -> Iterator[Start]:
    up: list[Engine] = []

    def begin(env: dict[str, str] | None = None, limits: Limits = LIMITS) -> Engine:
        up.append(Engine.start(boxed(env), f"L{len(up)}", tmp_path / "night", limits))
        return up[-1]

    yield begin
    for engine in up:
        engine.stop()


def fails(action: Callable[[], object]) -> tuple[FailureKind, str]:
    with pytest.raises(EngineFailure) as caught:
        action()
    return caught.value.failure.kind, caught.value.failure.reason


def test_a_whole_life(start: Start, runtime: Docker, tmp_path: Path) -> None:
    engine = start({"OF_THE_NIGHT": "two\nlines"})
    record = engine.wait_ready()
    (container,) = runtime.engines()
    assert record.container_id == f"docker://{container['id']}"
    assert record.pid == container["pid"]  # its first process, as the host counts
    below = [p.pid for p in psutil.Process(engine._link.keeper_pid).children(recursive=True)]
    assert below and record.pid not in below  # the daemon's child, not the keeper's
    assert record.realised["container_image_id"] == IMAGE_ID
    assert record.realised["container_image_digests"] == [DIGEST]
    assert set(listeners(record.port)) <= set(engine.pids())
    assert container["env"]["OF_THE_NIGHT"] == "two\nlines" and container["env"]["OF_THE_IMAGE"] == "1"
    assert "DOCKER_HOST" not in container["env"] and "VIRTUAL_ENV" not in container["env"]
    assert container["cwd"] == str(tmp_path / "night/artifacts/launches/L0/cwd")
    engine.check()
    assert "Application startup complete" in engine.log_since(0)
    assert not engine.stop().forced
    assert not psutil.pid_exists(record.pid)
    assert "Shutting down" in engine.log_since(0)  # it was asked, and said so
    assert runtime.calls("stop")[0]["argv"] == ["stop", "-t", "5", container["id"]]


def test_a_list_of_plugins_that_the_image_sets_does_not_switch_ours_off(start: Start, runtime: Docker) -> None:
    runtime.set_in_image({"VLLM_PLUGINS": "hcu,hcu_model,hcu_ops"})
    installed.cache_clear()  # the image's answer is kept for the life of this process
    start().wait_ready()
    start({"VLLM_PLUGINS": "mine"}).wait_ready()
    of_image, of_night = (one["env"]["VLLM_PLUGINS"] for one in runtime.engines())
    assert of_image == "hcu,hcu_model,hcu_ops,nightgate_evidence,nightgate_attention"
    assert of_night == "mine,nightgate_evidence,nightgate_attention"  # the night file's wins over the image's
    installed.cache_clear()


def test_only_containers_that_we_started_are_named(start: Start, runtime: Docker) -> None:
    start().wait_ready()
    start().stop()
    ours = {one["id"] for one in runtime.engines()}
    named = {call["argv"][-1] for verb in ("stop", "kill", "rm") for call in runtime.calls(verb)}
    assert named and named <= ours


def test_two_engines_at_once_and_one_does_not_end_the_other(start: Start) -> None:
    a, b = start(), start()
    a.wait_ready(), b.wait_ready()
    assert not set(a.pids()) & set(b.pids())
    a.stop()
    b.check()


def test_an_engine_that_crashes_at_start_says_why(start: Start) -> None:
    kind, reason = fails(start({"STANDIN_CRASH_AT_START": "1"}).wait_ready)
    assert kind is FailureKind.CRASH and "told to crash at start (exit code 1)" in reason


def test_a_kill_inside_is_told_as_one(start: Start) -> None:
    assert "SIGKILL from outside" in fails(start({"STANDIN_OOM": "killed"}).wait_ready)[1]


def test_an_engine_that_ignores_being_asked_is_killed_with_its_children(start: Start) -> None:
    engine = start({"STANDIN_IGNORE_TERM": "1", "STANDIN_CHILD": "1"}, IMPATIENT)
    engine.wait_ready()
    pids = engine.pids()
    assert engine.stop().forced
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_ended_inside_is_noticed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.server.ANSWER_S", 0.3)
    engine = start({"STANDIN_CHILD": "1"}, IMPATIENT)
    engine.wait_ready()
    first = psutil.Process(engine.record.pid)
    (worker,) = [p for p in first.children(recursive=True) if "time.sleep(3600)" in " ".join(p.cmdline())]
    worker.kill()
    wait_gone([worker], 5)
    assert "has ended" in fails(engine.check)[1]


def test_a_client_that_was_killed_takes_its_container_along(start: Start, runtime: Docker) -> None:
    engine = start()
    record = engine.wait_ready()
    (client,) = [p for p in psutil.Process(engine._link.keeper_pid).children() if "run" in p.cmdline()]
    client.kill()
    wait_gone([psutil.Process(record.pid)], 10)
    assert "SIGKILL" in fails(engine.check)[1]
    assert not psutil.pid_exists(record.pid)


def test_a_daemon_that_died_leaves_no_engine_behind(start: Start, runtime: Docker) -> None:
    """Nobody answers `docker stop` any more: the processes are ended by pid and start time, as on the host."""
    engine = start({"STANDIN_CHILD": "1"}, IMPATIENT)
    engine.wait_ready()
    inside = [psutil.Process(engine.record.pid), *psutil.Process(engine.record.pid).children(recursive=True)]
    assert runtime.daemon is not None and len(inside) == 3
    runtime.daemon.kill()
    fails(lambda: [engine.check() for _ in range(100)])
    engine.stop()
    assert not any(alive(process) for process in inside)


def test_an_image_that_is_not_here(tmp_path: Path, runtime: Docker) -> None:
    spec = boxed().model_copy(update={"container": CONTAINER.model_copy(update={"image": "absent:1"})})
    kind, reason = fails(lambda: Engine.start(spec, "L1", tmp_path, LIMITS))
    assert kind is FailureKind.NO_VLLM and "No such image: absent:1" in reason and "engine.container.image" in reason


def test_an_option_that_the_runtime_refuses(tmp_path: Path, runtime: Docker) -> None:
    spec = boxed().model_copy(update={"container": CONTAINER.model_copy(update={"extra": ("--no-such-option",)})})
    engine = Engine.start(spec, "L1", tmp_path, LIMITS)
    kind, reason = fails(engine.wait_ready)
    assert kind is FailureKind.CRASH and "exit code 125" in reason
    assert "unknown flag: --no-such-option" in engine.log_since(0)


def test_no_runtime_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    other = boxed().model_copy(update={"container": CONTAINER.model_copy(update={"runtime": "podman"})})
    assert "podman is not installed" in fails(lambda: Engine.start(other, "L1", tmp_path, LIMITS))[1]


# --- the loop dies ------------------------------------------------------------------------------------------------

LOOP = loop_program("from tests.engine.test_container_life import boxed", 'boxed({"STANDIN_CHILD": "1"})', 1)


@pytest.fixture
def loop(tmp_path: Path, runtime: Docker) -> Iterator[Loop]:
    """A container is up: (loop, record, [keeper, then the client and the engine])."""
    with dying_loop(LOOP, tmp_path / "night") as found:
        yield found


def test_kill_9_of_the_loop_leaves_nothing(loop: Loop, runtime: Docker) -> None:
    process, record, below = loop
    assert len(below) >= 4  # keeper, client, the container's first process, the engine and its child
    process.send_signal(signal.SIGKILL)
    wait_gone(below, 20)
    assert not any(alive(one) for one in below)
    assert end_orphans([record]) == ()
    assert runtime.calls("stop")


def test_kill_9_of_loop_and_keeper_leaves_a_container_which_the_next_loop_ends(loop: Loop, runtime: Docker) -> None:
    process, record, (keeper, *below) = loop
    process.send_signal(signal.SIGSTOP)  # so that it cannot see its keeper go
    keeper.kill()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert alive(psutil.Process(record.pid))
    stranger = record.model_copy(update={"nonce": "ffffffff", "pid": 2**22 - 1})  # our id, but not our label
    assert end_orphans([stranger], grace_s=1) == () and alive(psutil.Process(record.pid))
    assert end_orphans([record], grace_s=1) == (record.pid,)
    wait_gone(below, 10)
    assert not any(alive(one) for one in below)


def test_a_loop_that_dies_while_its_container_is_being_made(tmp_path: Path, runtime: Docker) -> None:
    """The client is held before it can say which container it made; the keeper waits for that and ends it."""
    root = Path(__file__).parents[2]
    code = LOOP.replace("engine.wait_ready()", "").replace('{"STANDIN_CHILD": "1"}', "{}")
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "night")], cwd=root, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not runtime.engines() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    (container,) = runtime.engines()
    gone = time.monotonic() + 20
    while os.path.exists(f"/proc/{container['pid']}") and time.monotonic() < gone:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{container['pid']}")
