"""A whole night against the stand-in engine: the good is kept, the rest refused for the right reason, nothing lost."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.night.rehearsal import NIGHT, events, only_night, run, verdicts, write_night

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rehearsal")
    done = run(str(write_night(folder)), "--logs", str(folder / "logs"))
    assert done.returncode == 0, done.stderr
    return only_night(folder / "logs")


def test_keeps_the_good_and_refuses_the_rest_for_the_right_reason(rehearsed: Path) -> None:
    found = verdicts(rehearsed)
    assert found["max-num-seqs"][0] == "keep"
    assert found["STANDIN_WRONG_TOKENS"][0] == "revert" and "token" in found["STANDIN_WRONG_TOKENS"][1]
    assert found["block-size"][0] == "failed" and "refused_configuration" in found["block-size"][1]
    patch = found["vllm/of-another-version"]
    assert (
        patch[0] == "failed"
        and "refused_configuration: patch vllm/of-another-version, vllm/engine/arg_utils.py: hunk 1 of 1" in patch[1]
    )


def test_the_installed_files_are_what_they_were(rehearsed: Path) -> None:
    """Nothing is imported from the stand-in's folder called vllm, but it is hashed as an engine's would be."""
    before, after = [e for e in events(rehearsed) if e["kind"] == "installed_trees"]
    assert (before["data"]["when"], after["data"]["when"]) == ("before", "after")
    assert before["data"]["trees"]["vllm"]["files"] >= 2 and after["data"]["identical"] is True
    first = next(e["seq"] for e in events(rehearsed) if e["kind"] == "measured")
    assert before["seq"] < first < after["seq"]
    assert "identical before and after the night" in (rehearsed / "report.md").read_text()


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


def test_a_change_that_only_its_kernels_show(tmp_path: Path) -> None:
    """Both arms are started once more under the profiler, B first, and what each launched is data in the ledger."""
    probe = {"kind": "kernel", "pattern": "compiled"}
    tried = {"lever": "engine_flag", "key": "enforce-eager", "why": "compiled is faster", "cost_s": 5, "probe": probe}
    engine = {**NIGHT["engine"], "flags": {"max-num-seqs": 8, "enforce-eager": True}}
    night = write_night(tmp_path, engine=engine, try_first=[tried])
    done = run(str(night), "--logs", str(tmp_path / "logs"))
    assert done.returncode == 0, done.stderr
    found = events(only_night(tmp_path / "logs"))
    (proof,) = (e["data"]["evidence"] for e in found if e["kind"] == "path_evidence")
    assert proof["outcome"] == "proven" and "only arm B launches standin_compiled_step" in proof["reason"]
    assert proof["a"]["kernels"] == [] and proof["b"]["kernels"][0]["launches"] > 0
    profiled = [e["data"] for e in found if e["kind"] == "launch_started" and e["data"]["experiment_id"]][:3]
    assert [launch["arm"] for launch in profiled] == ["B", "B", "A"]  # the candidate, then the two profiles
    assert len({launch["launch"]["spec_id"] for launch in profiled}) == 3
    assert any(e["kind"] == "measured" and e["data"]["experiment_id"] for e in found)  # and then it was measured


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
