"""A rehearsal: a whole night against the stand-in engine, in seconds. Nothing here measures anything; it shows that
the loop keeps the good, refuses the rest for the right reason, and loses nothing when it is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.standin import PYTHON

CHECKOUT = Path(__file__).resolve().parents[2]

# The stand-in's list of flags has other lines than these.
PATCH = """\
--- a/vllm/engine/arg_utils.py
+++ b/vllm/engine/arg_utils.py
@@ -1,2 +1,2 @@
-MAX_NUM_SEQS = 256
+MAX_NUM_SEQS = 512
 BLOCK_SIZE = 16
"""
# The stand-in's steps cost the same whatever runs, so twice the sequences is nearly twice the speed.
NIGHT = {
    "name": "rehearsal",
    "minutes": 10,
    "engine": {
        "python": PYTHON,
        "model": "model",
        "flags": {"max-num-seqs": 4},
        "env": {"STANDIN_STEP_MS": "4", "VLLM_CPU_KVCACHE_SPACE": "1"},
    },
    "workload": {
        "name": "tiny",
        "concurrency": 8,
        "requests": 16,
        "warmup_requests": 4,
        "input_tokens": [16, 32],
        "output_tokens": [48, 64],
        "seed": 3,
        "objective": {"metric": "output_tokens_per_s", "limits": []},
    },
    "judge": {
        "false_keep_chance": 0.2,  # few runs, a busy test machine: the rehearsal shows the path, not the power
        "min_launch_pairs": 2,
        "max_launch_pairs": 3,
        "runs_per_launch": 2,
        "aa_launch_pairs": 2,
        "confirm_launch_pairs": 2,
        "foreign_cpu_share": 1.0,
    },
    "gate": {"prompts": 6, "tokens": 12, "concurrency": 3, "more_widths": 1, "drift_texts": 0},  # it reads no texts
    "limits": {"engine_start_s": 20, "engine_stop_s": 5, "request_s": 10, "run_s": 60, "report_reserve_s": 5},
    "readers": [],
    "try_first": [
        {
            "lever": "engine_flag",
            "key": "max-num-seqs",
            "after": 8,
            "why": "eight are waiting, four may run",
            "predicted_gain": 1.8,
            "cost_s": 5,
            "probe": {"kind": "peak_running"},
        },
        {
            "lever": "environment",
            "key": "STANDIN_WRONG_TOKENS",
            "after": "1",
            "why": "planted: another model's answers",
            "predicted_gain": 1.5,
            "cost_s": 5,
            "probe": {"kind": "log_line", "pattern": "PLANTED FAULT active"},
            "planted": True,
        },
        {
            "lever": "engine_flag",
            "key": "block-size",
            "after": 16,
            "why": "planted: refused at start",
            "predicted_gain": 1.2,
            "cost_s": 5,
            "planted": True,
        },
        {
            "lever": "source_patch",
            "key": "vllm/of-another-version",
            "after": PATCH,
            "why": "planted: written for another version",
            "predicted_gain": 1.1,
            "cost_s": 5,
            "planted": True,
        },
    ],
}


def write_night(folder: Path, **changes: object) -> Path:
    """The rehearsal's night file in `folder`, with top-level keys replaced by `changes`."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text('{"max_position_embeddings": 2048}')
    for name in ("tokenizer.json", "model.safetensors"):  # the stand-in reads no weights; preflight looks for them
        (model / name).write_text("{}")
    path = folder / "rehearsal.yaml"
    path.write_text(yaml.safe_dump({**NIGHT, **changes}, sort_keys=False))
    return path


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


def verdicts(night: Path) -> dict[str, tuple[str, str]]:
    told = json.loads(run("report", str(night), "--json").stdout)
    return {e["change"]["key"]: (e["verdict"], e["reason"]) for e in told["experiments"]}
