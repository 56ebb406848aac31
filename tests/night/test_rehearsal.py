"""A whole night against the stand-in engine: the good is kept, the rest refused for the right reason, nothing lost."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.night import NODES
from tests.night.rehearsal import write_night

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(900)]
CHECKOUT = Path(__file__).resolve().parents[2]


def run(*arguments: str, killed_at: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """run_night.py as its user calls it; with `killed_at` it dies of SIGKILL at that ledger line."""
    script = [str(CHECKOUT / "run_night.py")]
    if killed_at:
        script = ["-m", "tests.night.killed", *killed_at]
    return subprocess.run(
        [sys.executable, *script, *arguments], cwd=CHECKOUT, capture_output=True, text=True, timeout=240
    )


def only_night(logs: Path) -> Path:
    (night,) = [p.parent for p in logs.glob("*/ledger.jsonl")]
    return night


def events(night: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (night / "ledger.jsonl").read_text().splitlines()]


def engines_of(night: Path) -> list[psutil.Process]:
    """Living processes that the night's ledger says it started."""
    alive = []
    for event in events(night):
        if event["kind"] == "launch_started":
            launch = event["data"]["launch"]
            try:
                process = psutil.Process(launch["pid"])
                if abs(process.create_time() - launch["pid_started"]) < 1 and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
            except psutil.NoSuchProcess:
                pass
    return alive


def wait_for_no_engine(night: Path) -> None:
    deadline = time.monotonic() + 20
    while engines_of(night) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert engines_of(night) == [], "an engine outlived its night"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rehearsal")
    done = run(str(write_night(folder)), "--logs", str(folder / "logs"))
    assert done.returncode == 0, done.stderr
    return only_night(folder / "logs")


def verdicts(night: Path) -> dict[str, tuple[str, str]]:
    told = json.loads(run("report", str(night), "--json").stdout)
    return {e["change"]["key"]: (e["verdict"], e["reason"]) for e in told["experiments"]}


def test_keeps_the_good_and_refuses_the_rest_for_the_right_reason(rehearsed: Path) -> None:
    found = verdicts(rehearsed)
    assert found["max-num-seqs"][0] == "keep"
    assert found["STANDIN_WRONG_TOKENS"][0] == "revert" and "token" in found["STANDIN_WRONG_TOKENS"][1]
    assert found["block-size"][0] == "failed" and "refused_configuration" in found["block-size"][1]


def test_the_headline_is_confirmed_on_launches_that_no_decision_has_seen(rehearsed: Path) -> None:
    told = json.loads(run("report", str(rehearsed), "--json").stdout)
    assert told["confirmed_gain"]["interval"][0] > 1
    judged = {
        e["data"]["measurement"]["launch_id"]
        for e in events(rehearsed)
        if e["kind"] == "measured" and e["data"]["purpose"] == "experiment"
    }
    confirming = {
        e["data"]["measurement"]["launch_id"]
        for e in events(rehearsed)
        if e["kind"] == "measured" and e["data"]["purpose"] == "confirm"
    }
    assert confirming and not confirming & judged


def test_a_rehearsal_never_looks_measured(rehearsed: Path) -> None:
    assert "stand-in" in (rehearsed / "report.md").read_text().lower()
    assert "stand-in" in (rehearsed / "report.html").read_text().lower()


def test_the_ledger_verifies_and_the_overlay_holds_the_kept_change(rehearsed: Path) -> None:
    assert run("verify", str(rehearsed)).returncode == 0
    assert json.loads((rehearsed / "overlay" / "engine.json").read_text())["flags"]["max-num-seqs"] == 8


def test_what_the_gate_asked_was_sealed_at_the_start_and_told_at_the_end(rehearsed: Path) -> None:
    told = {e["kind"]: e for e in events(rehearsed)}
    sealed, secret = told["gate_sealed"], told["gate_unsealed"]["data"]["secret"]
    assert sealed["data"]["secret_sha256"] == hashlib.sha256(secret.encode()).hexdigest()
    first = next(e["seq"] for e in events(rehearsed) if e["kind"] == "launch_started")
    last = max(e["seq"] for e in events(rehearsed) if e["kind"] == "gated")
    assert sealed["seq"] < first < last < told["gate_unsealed"]["seq"]
    before = [e for e in events(rehearsed) if e["seq"] < told["gate_unsealed"]["seq"]]
    assert secret not in json.dumps(before)  # nobody who reads the ledger could know it
    reference = told["gate_referenced"]["data"]
    assert hashlib.sha256((rehearsed / reference["path"]).read_bytes()).hexdigest() == reference["sha256"]


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
