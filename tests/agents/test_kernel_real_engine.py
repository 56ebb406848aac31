"""A real engine whose 4-bit layers are computed by nightgate's own kernel: vLLM's CPU build, the kernel in Triton's
interpreter, an AWQ model of one small layer with random weights."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import httpx
import pytest

from agents.tuning.placing import place
from agents.tuning.probes import ArmSeen, judge_path, probe_for
from agents.tuning.seen import of_kind, seen_in
from contracts import Change, EngineSpec, Lever
from engine.own_plugins import TOLD_WITHIN_S
from engine.server import Engine
from tests.agents.examples import KNOBS
from tests.real import LIMITS, ROOT, engine_python

KEY = "w4a16_linear#dispatch"
SILENT_A = 'nightgate-evidence active {"pid": 7, "version": "0.1.0"}\n'  # stands in for the log of an engine without it


@pytest.mark.engine_python
@pytest.mark.timeout(600)
def test_an_engine_is_served_by_our_kernel_and_a_night_sees_it(tmp_path: Path) -> None:
    python, model = engine_python(), tmp_path / "awq"
    make = [
        python,
        "-m",
        "benchmarks.random_awq_model",
        str(model),
        "--layers",
        "1",
        "--width",
        "128",
        "--inner",
        "256",
    ]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    spec = EngineSpec(
        python=python,
        model=str(model),
        flags={
            "dtype": "bfloat16", "enforce-eager": True, "max-model-len": 64, "max-num-seqs": 2,
            "max-num-batched-tokens": 64,
        },
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "TRITON_INTERPRET": "1"},
        overlay={Lever.KERNEL_TABLE: {KEY: True}},
    )  # fmt: skip
    with Engine.start(spec, "L001", tmp_path, LIMITS, placement=place(spec, tmp_path / "overlay")) as engine:
        engine.wait_ready()
        body = {
            "model": engine.served_name,
            "prompt": [5, 6, 7, 8],
            "temperature": 0,
            "max_tokens": 3,
            "ignore_eos": True,
        }
        answer = httpx.post(engine.base_url + "/v1/completions", json=body, trust_env=False, timeout=250)
        assert answer.is_success, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 3
        time.sleep(TOLD_WITHIN_S)
        log = engine.log_since(0)
    assert of_kind(seen_in(log), "problem") == []
    assert "Using NightgateW4A16LinearKernel for AutoAWQMarlinLinearMethod" in log
    change = Change(lever=Lever.KERNEL_TABLE, key=KEY, after=True)
    proof = judge_path(change, probe_for(change, KNOBS), ArmSeen(log=SILENT_A), ArmSeen(log=log))
    assert proof.outcome == "proven", proof.reason
    assert proof.reason.startswith("only arm B calls w4a16_linear at least ")
