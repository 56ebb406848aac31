"""A setting is in use when the running engine was read back to have it: accepted and ignored is caught. Log lines are
of vLLM 0.32.0; those of a GPU are written after its source and were not seen on a card."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from agents.tuning.probes import ArmSeen, judge_path, probe_for
from contracts import Change, LaunchRecord, Lever, PathEvidence
from engine.server import Engine
from tests.agents.examples import KNOBS

FLAG, COMP = Lever.ENGINE_FLAG, Lever.COMPILATION
GRAPHS = (
    "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|####| 4/4 [00:01<00:00]\n"
    "Capturing CUDA graphs (decode, FULL): 100%|####| 4/4 [00:01<00:00]\n"
    "INFO [gpu_model_runner.py:6582] Graph capturing finished in 2 secs, took 0.10 GiB\n"
)
SIZES = "compilation.cudagraph_capture_sizes"


def arm(realised: dict[str, JsonValue], log: str = "a log\n", launch: str = "L001") -> ArmSeen:
    record = LaunchRecord(
        launch_id=launch, spec_id="s", pid=1, pid_started=0.0, port=1, nonce="n", realised=realised, log_path="x"
    )
    return ArmSeen(log=log, record=record)


def judged(lever: Lever, key: str, before: Any, after: Any, a: ArmSeen, b: ArmSeen) -> PathEvidence:
    change = Change(lever=lever, key=key, before=before, after=after)
    return judge_path(change, probe_for(change, KNOBS), a, b)


DENSE = "none, the model has no experts"


@pytest.mark.parametrize(("key", "after"), [("moe-backend", "triton"), ("kernel-config", {"moe_backend": "triton"})])
def test_a_moe_backend_that_a_cpu_accepts_and_ignores(key: str, after: JsonValue) -> None:
    """--kernel-config {"moe_backend": "triton"} starts without a word of protest: what was realised says why not."""
    proof = judged(FLAG, key, None, after, arm({"moe_backend": DENSE}), arm({"moe_backend": DENSE}))
    assert proof.outcome == "absent"
    assert proof.reason == f"accepted but not in use: asked moe_backend = triton, realised {DENSE}"
    assert proof.b == {"moe_backend": DENSE, "launch": "L001"} and proof.seen_in_b == f"moe_backend = {DENSE}"


@pytest.mark.real_engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("key", "after"), [("kernel-config", {"moe_backend": "triton"}), ("attention-backend", "FLASH_ATTN")]
)
def test_two_flags_that_the_real_engine_accepts_and_ignores(real: Engine, key: str, after: JsonValue) -> None:
    """The shared engine was started with both (tests/real.py) and serves. What it does is what an engine without them
    does, so it stands for both arms."""
    if real.record.realised["device_config"] != "cpu":
        pytest.skip("on this engine the two flags may well do something")
    both = ArmSeen(log=real.log_since(0), record=real.record)
    proof = judged(FLAG, key, None, after, both, both)
    assert proof.outcome == "absent" and proof.reason.startswith("accepted but not in use"), proof.reason


def test_a_moe_backend_in_use() -> None:
    a, b = arm({"moe_backend": "AITER"}), arm({"moe_backend": "TRITON"})
    assert judged(FLAG, "moe-backend", None, "triton", a, b).outcome == "proven"
    assert judged(FLAG, "moe-backend", None, "triton", b, b).outcome == "absent"
    assert judged(FLAG, "moe-backend", None, "triton", arm({}), b).outcome == "unknown"


def test_graph_sizes_are_in_use_only_where_graphs_are_captured() -> None:
    """The list stands in every configuration, on a CPU too."""
    a, b = arm({SIZES: [1, 2, 4, 8]}, GRAPHS), arm({SIZES: [4, 2, 1]}, GRAPHS)
    proof = judged(COMP, "cudagraph_capture_sizes", None, [1, 2, 4], a, b)
    assert proof.outcome == "proven" and "Graph capturing finished" in str(proof.b["line"])
    idle = arm({SIZES: [1, 2, 4]}, "a log without captures\n")
    assert "set and not used" in judged(COMP, "cudagraph_capture_sizes", None, [1, 2, 4], a, idle).reason
    assert judged(COMP, "cudagraph_capture_sizes", [1, 2, 4], None, b, a).outcome == "proven"
    assert judged(COMP, "cudagraph_capture_sizes", [1, 2, 4], None, b, b).outcome == "absent"


def test_a_graph_mode_that_vllm_lowered() -> None:
    mode = "compilation.cudagraph_mode"
    a = arm({mode: "PIECEWISE"}, GRAPHS.replace("FULL", "PIECEWISE"))
    assert judged(COMP, "cudagraph_mode", "PIECEWISE", "FULL", a, arm({mode: "FULL"}, GRAPHS)).outcome == "proven"
    lowered = arm({mode: "FULL"}, GRAPHS.replace("FULL", "PIECEWISE"))
    assert judged(COMP, "cudagraph_mode", "PIECEWISE", "FULL", a, lowered).outcome == "absent"


@pytest.mark.parametrize(
    ("before", "after", "in_a", "in_b", "outcome"),
    [
        (None, "fp8", "auto", "fp8", "proven"),
        (None, "fp8", "auto", "auto", "absent"),
        (None, "fp8", "fp8", "fp8", "absent"),
        ("fp8", None, "fp8", "auto", "proven"),
        ("fp8", "auto", "fp8", "auto", "proven"),
        ("fp8", "auto", "fp8", "fp8", "absent"),
        ("fp8", None, "auto", "auto", "absent"),
    ],
)
def test_the_type_of_the_cache(before: Any, after: Any, in_a: str, in_b: str, outcome: str) -> None:
    a, b = arm({"kv_cache_dtype": in_a}), arm({"kv_cache_dtype": in_b})
    assert judged(FLAG, "kv-cache-dtype", before, after, a, b).outcome == outcome
