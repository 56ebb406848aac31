"""Real traces against what another tool, or the profiler itself, made of them."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from pytest import approx

from agents.research.readers.traces import look
from agents.research.traces.profiles import phase_profiles
from agents.research.traces.read import read_trace
from tests.agents.examples import dossier

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
GRAPH = DATA / "traces__inference__vllm_decode_full__graph_execution.json.gz"
TIMELINE = DATA / "traces__inference__vllm_decode_full__perf_csvs__gpu_timeline.csv"
CATEGORIES = DATA / "traces__inference__vllm_decode_full__perf_csvs__ops_summary_by_category.csv"
EAGER = DATA / "traces__mi300__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
ROCPROF = DATA / "rocprofiler-sdk-docs__kernel_trace.csv"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not beside this checkout (shared/data)")

ROUNDING_MS = 2e-5  # the other tool adds up 434 doubles of 1e-3 us each


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_decode_step_agrees_with_the_other_tool_s_timeline() -> None:
    told = {row["type"]: float(row["time ms"]) for row in rows(TIMELINE)}
    trace = read_trace(GRAPH)
    (step,) = trace.steps
    assert (trace.device, trace.how) == ("unnamed: 304 compute units, 192 GiB, 64 lanes a wave", "launch")
    assert (step.kind.phase, step.kind.generation_tokens, step.launches, step.graph_launches) == ("decode", 32, 425, 1)
    assert step.wall_ms == approx(told["total_time"], abs=ROUNDING_MS) == approx(10.7432, abs=5e-5)
    assert step.kernel_ms + step.copy_ms == approx(told["busy_time"], abs=ROUNDING_MS) == approx(10.7177, abs=5e-5)
    assert step.kernel_ms == approx(told["computation_time"], abs=ROUNDING_MS)
    assert step.copy_ms == approx(told["exposed_memcpy_time"], abs=ROUNDING_MS)
    assert step.idle_ms == approx(told["idle_time"], abs=ROUNDING_MS) == approx(0.0255, abs=5e-5)
    assert step.communication_ms == told["exposed_comm_time"] == 0
    assert trace.launch_bound is False and trace.outside_ms == 0


def test_its_categories_agree_as_far_as_they_mean_the_same() -> None:
    """The other tool sorts by the operator that launched, we by the kernel's name. So its "other" is our MoE and the
    rotary embedding, its "triton" our MoE's padding and a copy that Inductor fused, its "elementwise" and last "other"
    our copies (memcpy apart) and one addition."""
    told: dict[str, float] = {}
    for row in rows(CATEGORIES):
        key = f"{row['op category']} {row['parent_module']}"
        told[key] = told.get(key, 0.0) + float(row["total_direct_kernel_time_ms"])
    (step,), (decode,) = read_trace(GRAPH).steps, read_trace(GRAPH).phases
    ours = {kernel.name: kernel.time_ms for kernel in decode.top}
    graph, fine = "nn.Module: GraphModule", ROUNDING_MS
    assert decode.categories["attention"] == approx(told[f"InferenceAttention {graph}"], abs=fine)
    assert decode.categories["norm"] == approx(told[f"RMSNorm {graph}"], abs=fine)
    assert decode.categories["gemm"] == approx(
        told[f"GEMM {graph}"] + told["GEMM nn.Module: LogitsProcessor"], abs=fine
    )
    padding, rotary, rest = 0.122615, 0.149735, 0.004918
    assert decode.categories["moe"] == approx(told[f"other {graph}"] - rotary + padding, abs=fine)
    assert decode.categories["memory"] == approx(rest, abs=fine)
    assert decode.categories["other"] + decode.categories["memory"] + step.copy_ms == approx(
        told[f"triton {graph}"] - padding + rotary + told["elementwise NA"] + told["other NA"], abs=fine
    )
    assert sum(decode.categories.values()) + step.copy_ms == approx(sum(told.values()), abs=fine)
    assert ours["_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"] == approx(3.761878)


def test_the_trace_fills_a_dossier_and_the_reader_tells_it() -> None:
    (decode,) = phase_profiles(read_trace(GRAPH))
    assert (decode.phase, decode.weight) == ("decode", None)
    assert {name: round(share, 3) for name, share in decode.shares.items()} == {
        "moe": 0.73,
        "gemm": 0.115,
        "attention": 0.081,
        "other": 0.043,
        "norm": 0.031,
    } | {"memory": 0.0}
    titles = [finding.title for finding in look(dossier(traces=(str(GRAPH),)))]
    assert titles[0].startswith(
        "Decode takes 10.743 ms a step (1 step); of the time in kernels moe 73.0%, gemm 11.5%, "
    )
    assert "(moe), is 35.0% of decode; without it the phase would be at most 1.54 times as fast" in titles[1]
    assert "(moe), is 30.5% of decode; without it the phase would be at most 1.44 times as fast" in titles[2]
    assert titles[3].startswith("Decode is not launch-bound: 0.2% of it without GPU work, 66% of its 425 kernels")
    assert len(titles) == 4


def test_the_eager_trace_agrees_with_its_own_annotation_and_a_slow_reading() -> None:
    """The profiler's gpu_user_annotation spans the step on the GPU; what was launched before it lies outside."""
    with gzip.open(EAGER, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    (span,) = [e for e in events if e.get("cat") == "gpu_user_annotation"]
    trace = read_trace(EAGER)
    (step,) = trace.steps
    assert trace.device == "AMD Instinct MI300X VF" and phase_profiles(trace) == ()
    assert step.name == span["name"] == "ProfilerStep#6" and step.kind.phase == "unknown"
    assert step.wall_ms == approx(span["dur"] / 1000, abs=1e-5) == approx(33.1313, abs=1e-4)
    inside = [e for e in events if e.get("cat") == "kernel" and e["ts"] >= span["ts"] - 0.002]
    outside = sum(e["dur"] for e in events if e.get("cat") == "kernel") - sum(e["dur"] for e in inside)
    assert step.launches == len(inside) == 1053
    assert step.kernel_ms == approx(sum(e["dur"] for e in inside) / 1000, abs=1e-5)  # one stream: no overlap
    assert trace.outside_ms == approx(outside / 1000, abs=1e-5)
    assert trace.graph_launches == 0 and trace.launch_bound is None


def test_the_rocprof_sample() -> None:
    told = [(int(row["Start_Timestamp"]), int(row["End_Timestamp"])) for row in rows(ROCPROF)]
    (phase,) = read_trace(ROCPROF).phases
    assert phase.launches == len(told) == 9
    assert sum(phase.categories.values()) == approx(sum(end - start for start, end in told) / 1e6)
    assert phase.wall_ms == (max(end for _, end in told) - min(start for start, _ in told)) / 1e6
    assert read_trace(DATA / "rocprofiler-sdk-docs__kernel_trace_truncated.csv").phases[0].launches == 4
