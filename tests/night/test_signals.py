"""A signal at any moment of a measurement comes out of it: asyncio keeps none for itself."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from types import FrameType

import pytest

from agents.context import Interrupted
from contracts import Limits, Workload
from engine.measure import measure
from engine.server import Engine
from tests.standin import standin_spec

LOAD = Workload(
    name="tiny", concurrency=8, requests=16, warmup_requests=4, input_tokens=(16, 32), output_tokens=(24, 32), seed=3
)


def test_every_signal_under_load_is_raised(tmp_path: Path) -> None:
    def handler(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted("SIGALRM")

    limits, moments, heard = Limits(), random.Random(7), 0
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with Engine.start(standin_spec({"STANDIN_STEP_MS": "4"}, max_num_seqs=4), "L000", tmp_path, limits) as engine:
            engine.wait_ready()
            measure(engine, LOAD, 0, "A", 0, 0, tmp_path / "artifacts", limits)  # the corpus is tokenised once
            for number in range(1, 21):
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.02, 0.6))
                with pytest.raises(Interrupted):
                    for run in range(20):  # until it rings
                        measure(engine, LOAD, 100 * number + run, "A", 0, run, tmp_path / "artifacts", limits)
                heard += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard == 20
