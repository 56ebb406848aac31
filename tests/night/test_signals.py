"""A signal at any moment of a measurement comes out of it: asyncio keeps none for itself, and prints nothing of it."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from agents.context import Interrupted, Night
from contracts import Limits, Workload
from engine.measure import measure
from engine.server import Engine
from tests.night.rehearsal import CHECKOUT
from tests.standin import standin_spec

LOAD = Workload(
    name="tiny", concurrency=8, requests=16, warmup_requests=4, input_tokens=(16, 32), output_tokens=(24, 32), seed=3
)


@pytest.mark.whole_night  # too slow for make quick
def test_every_signal_under_load_is_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def handler(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    limits, moments, heard = Limits(), random.Random(7), 0
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with Engine.start(standin_spec({"STANDIN_STEP_MS": "4"}, max_num_seqs=4), "L000", tmp_path, limits) as engine:
            engine.wait_ready()
            measure(engine, LOAD, 0, "A", 0, 0, tmp_path / "artifacts", limits)  # the corpus is tokenised once
            for number in range(1, 21):
                name = signal.SIGTERM if number % 2 else signal.SIGHUP
                bell = threading.Timer(moments.uniform(0.02, 0.6), os.kill, (os.getpid(), name))
                bell.start()
                with pytest.raises(Interrupted, match=name.name), caplog.at_level(logging.DEBUG, "asyncio"):
                    for run in range(20):  # until it rings
                        measure(engine, LOAD, 100 * number + run, "A", 0, run, tmp_path / "artifacts", limits)
                bell.join()
                assert signal.getsignal(name) is handler
                heard += 1
    finally:
        for old, kept in before.items():
            signal.signal(old, kept)
    assert heard == 20
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


NIGHT = """
import os, signal
from agents.runner import _signals
class Night:
    def interrupt(self, name): print(name, flush=True)
with _signals(Night()):
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGHUP)
print("the end")
"""


@pytest.mark.parametrize(
    ("at_start", "said", "code"),
    [
        (signal.SIG_DFL, "SIGHUP\n", -signal.SIGHUP),  # the last one, when the night is over, has its old effect
        (signal.SIG_IGN, "SIGTERM\nthe end\n", 0),  # as nohup starts it
    ],
)
def test_a_terminal_that_closes_ends_a_night_unless_nohup_keeps_it(
    at_start: signal.Handlers, said: str, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NIGHT], cwd=CHECKOUT, capture_output=True, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, at_start),
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (said, code), done.stderr


DROPPED = """
import os, signal
from agents.context import Interrupted
from agents.runner import _signals
class Night:
    def interrupt(self, name):
        print("heard", name, flush=True)
        raise Interrupted(name)
class Rings:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
class Fails:
    def __del__(self):
        raise ValueError("a fault of its own")
with _signals(Night()):
    Rings()
    Fails()
print("went on")
"""


def test_what_python_drops_of_a_signal_is_not_printed_and_other_faults_are() -> None:
    """SIGTERM came inside a weak reference's callback, and a traceback stood before the night's report."""
    done = subprocess.run([sys.executable, "-c", DROPPED], cwd=CHECKOUT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("heard SIGTERM\nwent on\n", 0)
    assert "Interrupted" not in done.stderr and done.stderr.count("Traceback") == 1
    assert "a fault of its own" in done.stderr


def test_an_exception_that_python_dropped_is_raised_at_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler raises inside a finaliser goes nowhere; the night must not run on to its end for that."""
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    night = Night.__new__(Night)  # its signals' part alone
    night._writing, night._pending, night._heard, night._ended = False, "", "", False

    class Finaliser:
        def __del__(self) -> None:
            night.interrupt("SIGINT")

    night.check_interrupted()
    Finaliser()  # gone at once, and its finaliser called
    assert len(dropped) == 1
    with pytest.raises(Interrupted, match="SIGINT"):
        night.check_interrupted()
    night.end()
    night.check_interrupted()
