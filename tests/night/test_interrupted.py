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


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_engine_writes_the_report_and_can_be_resumed(name: str, tmp_path: Path) -> None:
    config, logs = str(write_night(tmp_path)), tmp_path / "logs"
    loop = subprocess.Popen(
        [sys.executable, str(CHECKOUT / "run_night.py"), config, "--logs", str(logs)],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(logs.glob("*/ledger.jsonl")):
        time.sleep(0.05)
    night = only_night(logs)
    while time.monotonic() < deadline and not any(e["kind"] == "measured" for e in events(night)):
        time.sleep(0.05)
    os.kill(loop.pid, getattr(signal, name))
    out, err = loop.communicate(timeout=60)
    assert loop.returncode == 1 and "Traceback" not in err
    assert events(night)[-1]["data"]["outcome"] == "interrupted"
    assert "interrupted" in (night / "report.md").read_text().lower()
    wait_for_no_engine(night)
    assert run(config, "--logs", str(logs), "--resume").returncode == 0
