"""A loop in a process of its own with an engine up, for tests that kill it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from contracts import LaunchRecord

ROOT = Path(__file__).parents[2]
Loop = tuple[subprocess.Popen[str], LaunchRecord, list[psutil.Process]]


def loop_program(imports: str, spec: str, stop_s: float, until: str = "engine.wait_ready()") -> str:
    """A program that starts an engine of `spec` (an expression, by way of `imports`) in the folder that is its
    argument, and says who it is `until` when: the launch's record, then the pids of the keeper and of all below it."""
    return f"""
import sys, time
from pathlib import Path
from contracts import Limits
from engine.server import Engine
{imports}
limits = Limits(engine_start_s=20, engine_stop_s={stop_s})
engine = Engine.start({spec}, "L1", Path(sys.argv[1]), limits)
{until}
print(engine.record.model_dump_json(), flush=True)
print(engine._link.keeper_pid, *engine.pids(), flush=True)
time.sleep(600)
"""


@contextmanager
def dying_loop(program: str, folder: Path) -> Iterator[Loop]:
    """(loop, record, [keeper, then the processes of the engine])."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    below: list[psutil.Process] = []
    try:
        record = LaunchRecord.model_validate_json(process.stdout.readline())
        below = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        yield process, record, below
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for one in below:
            if one.is_running():
                one.kill()
