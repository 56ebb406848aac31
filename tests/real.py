"""The real vLLM for tests: the engine that `make setup` chose, with the arithmetic model, eager, in float32 (bfloat16
crawls on a CPU without AVX-512). The planted faults are on its path and do nothing unless told.

An engine takes up to a minute to start, so tests that change nothing share one (`real` in conftest.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts import EngineSpec, Limits

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Limits(engine_start_s=300, engine_stop_s=30)


def engine_python() -> str:
    chosen = ROOT / ".engine-python"
    if not chosen.exists():
        pytest.skip("no engine here: run `make setup`")
    return chosen.read_text().strip()


def real_spec(fault: str = "") -> EngineSpec:
    return EngineSpec(
        python=engine_python(),
        model=str(ROOT / "accuracy_gate" / "arithmetic_model"),
        flags={
            "dtype": "float32",
            "enforce-eager": True,
            "max-model-len": 1024,
            "max-num-seqs": 16,
            "attention-backend": "FLASH_ATTN",  # accepted by a CPU engine, and not used
            "kernel-config": {"moe_backend": "triton"},  # the same
        },
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_SUCH_VARIABLE": "1"}
        | ({"NIGHTGATE_PLANTED_FAULT": fault} if fault else {}),
        plugin_paths=(str(ROOT / "tests" / "planted"),),
    )
