"""Ctrl+C or SIGTERM in the middle of a whole night."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.night.rehearsal import CHECKOUT, events, only_night, run, wait_for_no_engine, write_night

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(900)]


def interrupted(by: signal.Signals, night_file: str, logs: Path, *more: str) -> Path:
    """A night under nohup that gets the signal once it has measured something new; its terminal closes just before."""
    before = sum(len(events(found.parent)) for found in logs.glob("*/ledger.jsonl"))
    loop = subprocess.Popen(
        [sys.executable, str(CHECKOUT / "run_night.py"), night_file, "--logs", str(logs), *more],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    deadline = time.monotonic() + 120

    def measured() -> bool:
        found = list(logs.glob("*/ledger.jsonl"))
        return bool(found) and any(e["kind"] == "measured" for e in events(found[0].parent)[before:])

    while time.monotonic() < deadline and not measured():
        time.sleep(0.05)
    os.kill(loop.pid, signal.SIGHUP)
    os.kill(loop.pid, by)
    _, err = loop.communicate(timeout=60)
    assert loop.returncode == 1 and "Traceback" not in err
    return only_night(logs)


def test_a_signal_ends_the_engine_writes_the_report_and_can_be_resumed(tmp_path: Path) -> None:
    night_file, logs = str(write_night(tmp_path)), tmp_path / "logs"
    for by, more in ((signal.SIGINT, []), (signal.SIGTERM, ["--resume"])):
        night = interrupted(by, night_file, logs, *more)
        assert events(night)[-1]["data"]["outcome"] == "interrupted"
        assert f"{by.name} arrived" in (night / "report.md").read_text()
        wait_for_no_engine(night)
    assert run(night_file, "--logs", str(logs), "--resume").returncode == 0
    assert events(night)[-1]["data"]["outcome"] == "done"
