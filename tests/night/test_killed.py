"""A night that dies of SIGKILL, wherever it is, goes on with nothing lost and leaves no engine behind."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.night import NODES
from tests.night.rehearsal import events, only_night, run, verdicts, wait_for_no_engine, write_night

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(900)]


def test_kill_9_in_every_node_then_resume_loses_nothing(tmp_path: Path) -> None:
    """One night, killed in each of its nodes when the node has begun, and in those that leave something behind also
    when their work is done but its checkpoint is not yet written. Each resume goes on until the next kill."""
    config, logs = str(write_night(tmp_path)), tmp_path / "logs"
    leaving = ("baseline", "measure", "keep", "revert", "confirm")
    kills = [
        (kind, s) for s in NODES for kind in ("stage_entered", "stage_left") if kind == "stage_entered" or s in leaving
    ]
    kills.insert(3, ("launch_started", "-"))  # an engine that nobody has been told of yet
    kills.insert(4, ("measured", "-"))
    arguments = [config, "--logs", str(logs)]
    before: list[dict[str, Any]] = []
    for number, at in enumerate(kills):
        died = run(*arguments, *(["--resume"] if number else []), killed_at=at)
        assert died.returncode == -signal.SIGKILL, f"{at}: {died.stdout}{died.stderr}"
        night = only_night(logs)
        now = events(night)
        assert now[: len(before)] == before, f"{at}: a line that was written is gone"
        before = now
        wait_for_no_engine(night)  # without any resume
    night = only_night(logs)
    done = run(*arguments, "--resume")
    assert done.returncode == 0, done.stderr

    after = events(night)
    assert after[: len(before)] == before
    resumed = [e["data"] for e in after if e["kind"] == "night_resumed"]
    assert len(resumed) == len(kills)
    for (kind, stage), line in zip(kills, resumed, strict=True):
        if kind == "stage_entered":
            assert any(stage in words for words in line["lost"]), (stage, line)
    assert run("verify", str(night)).returncode == 0
    assert verdicts(night)["max-num-seqs"][0] == "keep"
    commits = subprocess.run(["git", "log", "--oneline"], cwd=night / "overlay", capture_output=True, text=True).stdout
    assert len(commits.splitlines()) == 2, f"the base and one kept change, not one for each time it was kept: {commits}"
    wait_for_no_engine(night)
