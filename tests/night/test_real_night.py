"""One short night on the real vLLM: the baseline is measured, a refused and a wrong change are told apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


def short_night(folder: Path) -> Path:
    """The embedded night, with little to measure and only two of its traps to try."""
    night = yaml.safe_load((CHECKOUT / "configs/nights/first_night.yaml").read_text())
    traps = [t for t in night["try_first"] if t["key"] in ("block-size", "NIGHTGATE_PLANTED_FAULT")]
    assert len(traps) == 2
    workload = yaml.safe_load((CHECKOUT / night["workload"]).read_text()) | {"concurrency": 8, "warmup_requests": 8}
    night |= {
        "name": "short_night",
        "engine": night["engine"]
        | {"model": str(CHECKOUT / night["engine"]["model"]), "plugin_paths": [str(CHECKOUT / "tests/planted")]},
        "workload": workload,
        "gate": {"prompts": 8, "alone_prompts": 4, "tokens": 40, "concurrency": 8, "more_widths": 0, "drift_texts": 4},
        "judge": {
            "runs_per_launch": 1,
            "foreign_cpu_share": 1.0,
        },  # what else a test machine does is not the point here
        "readers": [],
        "priors": [],
        "try_first": traps,
    }
    path = folder / "short_night.yaml"
    path.write_text(yaml.safe_dump(night))
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECKOUT / "run_night.py"), *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=800)


def test_a_short_night_on_the_real_engine(tmp_path: Path) -> None:
    done = run(str(short_night(tmp_path)), "--logs", str(tmp_path / "logs"), "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    found = {e["change"]["key"]: e for e in told["experiments"]}

    refused = found["block-size"]
    assert refused["verdict"] == "failed" and "refused_configuration" in refused["reason"]
    wrong = found["NIGHTGATE_PLANTED_FAULT"]
    assert wrong["path_evidence"]["outcome"] == "proven"  # it really was switched on
    assert wrong["verdict"] == "revert" and "token_ids" in wrong["reason"]

    assert told["baseline"]["metrics"]["output_tokens_per_s"] > 0
    assert told["noise_floor"]["launch_sd"] > 0
    assert told["confirmed_gain"] is None  # nothing was kept, so nothing is claimed
    (night,) = [p.parent for p in (tmp_path / "logs").glob("*/ledger.jsonl")]
    assert run("verify", str(night)).returncode == 0
    assert (night / "report.html").is_file() and (night / "report.md").is_file()
