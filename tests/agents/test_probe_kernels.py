"""Kernels of two profiles compared. Real traces of vLLM on MI300X cards and rocprofv3's own samples where they are
beside this checkout; else events written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.research.traces.kernels import Kernels, read_kernels
from agents.research.traces.read import TraceError
from agents.tuning.kernel_probe import judge_kernels
from agents.tuning.probes import ArmSeen, judge_path, probe_for
from contracts import Change, Lever, Probe
from tests.agents.examples import KNOBS
from tests.agents.test_traces_real import DATA, EAGER, GRAPH, ROCPROF

real = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not beside this checkout (shared/data)")


def trace(folder: Path, name: str, events: list[dict[str, Any]]) -> Kernels:
    whole = [{"ph": "X", "cat": "kernel", "ts": 1.0, "dur": 2.0, **event} for event in events]
    path = folder / f"{name}.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": [*whole, {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "dur": 1}]}))
    return read_kernels(path)


def moe(grid: int, **more: Any) -> dict[str, Any]:
    return {"name": "fused_moe_kernel", "args": {"grid": [grid, 1, 1], "block": [256, 1, 1], **more}}


def test_another_kernel_is_told_by_its_symbol(tmp_path: Path) -> None:
    a = trace(tmp_path, "a", [{"name": "rms_norm_kernel"}, {"name": "gemm"}])
    b = trace(tmp_path, "b", [{"name": "_ZN7ck_tile6Rmsnorm2dFwd"}] * 3 + [{"name": "gemm"}])
    change = Change(lever=Lever.ENVIRONMENT, key="VLLM_ROCM_USE_AITER_RMSNORM", before="0", after="1")
    probe = probe_for(change, KNOBS)
    proof = judge_path(change, probe, ArmSeen(kernels=a), ArmSeen(kernels=b))
    assert (proof.outcome, proof.reason) == ("proven", "only arm B launches _ZN7ck_tile6Rmsnorm2dFwd (3 launches)")
    assert proof.b["profile"] == "b.pt.trace.json" and proof.b["kernels"][0]["launches"] == 3  # type: ignore[index, call-overload]
    assert judge_path(change, probe, ArmSeen(kernels=b), ArmSeen(kernels=b)).outcome == "absent"
    assert judge_path(change, probe, ArmSeen(kernels=b), ArmSeen(kernels=a)).reason.startswith("the wrong arm (A)")
    assert judge_path(change, probe, ArmSeen(kernels=a), ArmSeen()).reason == "there is no profile of arm B"


def test_another_tile_keeps_its_symbol_and_changes_its_grid(tmp_path: Path) -> None:
    a, b = trace(tmp_path, "a", [moe(64), moe(8)]), trace(tmp_path, "b", [moe(32), moe(8)])
    probe = Probe(kind="kernel", pattern="^fused_moe_kernel$", differs=("grid",))
    assert judge_kernels(probe, a, b).outcome == "proven"
    assert judge_kernels(probe, a, a).reason == "the same kernels in both arms, equal in grid (64x1x1, 8x1x1)"
    both = probe.model_copy(update={"differs": ("grid", "block")})
    assert judge_kernels(both, a, b).outcome == "absent"  # all that the probe names must differ
    assert judge_kernels(probe.model_copy(update={"differs": ()}), a, b).outcome == "absent"


def test_a_few_launches_of_another_batch_are_no_other_tile(tmp_path: Path) -> None:
    """Equal engines that batch their requests differently launch some grids that the other did not."""
    a, b = trace(tmp_path, "a", [moe(8)] * 9 + [moe(24)]), trace(tmp_path, "b", [moe(8)] * 9 + [moe(40)])
    probe = Probe(kind="kernel", pattern="fused_moe", differs=("grid",))
    equal = judge_kernels(probe, a, b)
    assert equal.outcome == "absent" and "grid (8x1x1, 24x1x1; 10% of the launches differ)" in equal.reason


def test_a_variant_of_a_kernel_by_its_memory_and_registers(tmp_path: Path) -> None:
    """As the torch profiler tells them on CUDA."""
    a = trace(tmp_path, "a", [moe(8, **{"shared memory": 16384, "registers per thread": 128})])
    b = trace(tmp_path, "b", [moe(8, **{"shared memory": 65536, "registers per thread": 255})])
    probe = Probe(kind="kernel", pattern="fused_moe", differs=("shared_memory", "registers"))
    assert judge_kernels(probe, a, b).outcome == "proven"
    told = judge_kernels(probe, a, b).reason
    assert "shared_memory: mostly 16384 (1 of 1 launches) in arm A, 65536 (1 of 1) in arm B, registers: mostly" in told
    assert b.seen[0].shared_memory == {"65536": 1} and b.seen[0].registers == {"255": 1}


def test_what_a_trace_does_not_tell_is_unknown_not_equal(tmp_path: Path) -> None:
    """ROCm's torch profiler tells no grid for kernels of a replayed graph."""
    replayed = trace(tmp_path, "a", [{"name": "fused_moe_kernel", "args": {"kind": "Dispatch Task"}}])
    probe = Probe(kind="kernel", pattern="fused_moe", differs=("grid",))
    assert (
        judge_kernels(probe, replayed, replayed).reason == "the profile of arm A does not tell the grid of /fused_moe/"
    )


def test_more_launches_are_a_difference_only_where_batching_cannot_explain_them(tmp_path: Path) -> None:
    few, more, many = (trace(tmp_path, str(n), [moe(8)] * n) for n in (10, 12, 20))
    probe = Probe(kind="kernel", pattern="fused_moe", differs=("launches",))
    assert judge_kernels(probe, few, more).outcome == "absent"
    assert judge_kernels(probe, few, many).outcome == judge_kernels(probe, many, few).outcome == "proven"


def test_a_cut_or_empty_profile_proves_nothing(tmp_path: Path) -> None:
    whole = trace(tmp_path, "a", [moe(8)] * 40)
    (tmp_path / "cut.json").write_text((tmp_path / "a.pt.trace.json").read_text()[:1500])
    cut = read_kernels(tmp_path / "cut.json")
    probe = Probe(kind="kernel", pattern="no_such_kernel", present_in="A")
    assert judge_kernels(probe, whole, cut).outcome == "unknown"
    (tmp_path / "none.json").write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "dur": 1}]}')
    none = read_kernels(tmp_path / "none.json")
    assert "no event of the category kernel" in judge_kernels(probe, whole, none).reason
    for text in ("", "{}", "a,b\n1,2\n"):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(TraceError, match="^bad: "):
            read_kernels(tmp_path / "bad")


@real
def test_a_real_trace_of_vllm_on_an_mi300x() -> None:
    seen = {kernel.name: kernel for kernel in read_kernels(GRAPH).seen}
    assert sum(kernel.launches for kernel in seen.values()) == 425  # as test_traces_real counts them
    assert (seen["kernel_unified_attention_2d"].launches, seen["reduce_segments"].launches) == (12, 12)
    assert seen["kernel_unified_attention_2d"].grid == {}  # replayed from a graph
    eager = read_kernels(EAGER)
    gemm = max((k for k in eager.seen if k.name.startswith("Cijk_Alik_Bljk")), key=lambda k: k.launches)
    assert gemm.grid and gemm.block == {"256x1x1": sum(gemm.block.values())}
    operators = read_kernels(EAGER, "cpu_op")
    assert {"aten::embedding", "aten::mm"} <= {k.name for k in operators.seen}
    proof = judge_kernels(Probe(kind="kernel", pattern="^attn_fwd$"), read_kernels(GRAPH), eager)
    assert proof.outcome == "proven"


@real
def test_rocprofs_own_sample() -> None:
    add = next(k for k in read_kernels(ROCPROF).seen if k.name.startswith("void addition_kernel<float>"))
    assert add.launches == 3 and add.grid == {"1024x1024x1": 3}
    assert (add.block, add.shared_memory, add.registers) == ({"64x1x1": 3}, {"0": 3}, {"8": 3})


def test_a_kernel_of_hundreds_of_grids_is_counted_on_and_no_fault(tmp_path: Path) -> None:
    """The first 200 values of an attribute are told apart; their later launches still count, those of others do not."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "dur": 1, "ts": n,
         "args": {"grid": [n % 300 + 1, 1, 1], "shared memory": n % 300}}
        for n in range(900)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    [kernel] = read_kernels(path).seen
    assert kernel.launches == 900
    assert (len(kernel.grid), set(kernel.grid.values())) == (200, {3})
    assert (len(kernel.shared_memory), set(kernel.shared_memory.values())) == (200, {3})
    assert "1x1x1" in kernel.grid and "201x1x1" not in kernel.grid
