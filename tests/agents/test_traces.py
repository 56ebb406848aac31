"""Profiles become facts: where a step's time goes, by phase and kind of kernel."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from agents.research.dossier import PhaseProfile
from agents.research.readers import READERS
from agents.research.readers.traces import findings, look
from agents.research.traces.categories import category
from agents.research.traces.intervals import covered
from agents.research.traces.profiles import ENOUGH_STEPS, ProfileError, phase_profiles, profiles_from_json
from agents.research.traces.read import read_trace
from agents.research.traces.steps import step_kind
from tests.agents.examples import dossier
from tests.agents.traces_example import (
    DECODE,
    MIXED,
    PREFILL,
    annotation,
    gpu,
    launch,
    launches_one_by_one,
    night,
    write,
)


def test_a_step_holds_the_work_that_it_launched(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, night()))
    assert trace.how == "launch" and trace.outside_ms == 0 and trace.warnings == () and trace.graph_launches == 2
    assert trace.device == "unnamed: 256 compute units, 288 GiB, 64 lanes a wave"
    prefill, first, second = trace.steps
    assert (prefill.kind.phase, first.kind.phase, second.kind.phase) == ("prefill", "decode", "decode")
    # Two streams overlap by 100 us: 900 us of kernels, not 1000.
    assert (prefill.wall_ms, prefill.kernel_ms, prefill.idle_ms) == (0.9, 0.9, 0.0)
    assert (first.start_ms, first.wall_ms, first.kernel_ms) == (1.0, 0.175, 0.155)
    assert (first.copy_ms, first.idle_ms) == (0.010, 0.010)
    assert first.communication_ms == 0.010  # the other half of the all-reduce is hidden behind the GEMM
    assert (prefill.gap_ms, first.gap_ms, second.gap_ms) == (0.1, 0.125, None)
    assert (first.launches, first.graph_launches, second.host_ms) == (4, 1, 0.1)


def test_a_phase_is_the_sum_of_its_steps(tmp_path: Path) -> None:
    decode = read_trace(write(tmp_path, night())).phase("decode")
    assert decode is not None
    assert (decode.steps, decode.launches, decode.short_launches) == (2, 7, 2)
    assert (decode.wall_ms, decode.gap_ms) == (approx(0.330), 0.125)
    assert decode.categories == {"attention": 0.2, "gemm": 0.08, "communication": 0.02, "sampling": 0.01}
    assert decode.shares["attention"] == approx(0.2 / 0.31)
    top = decode.top[0]
    assert (top.name, top.category, top.launches) == ("kernel_unified_attention_3d", "attention", 2)
    assert top.share == approx(0.2 / 0.455) and top.bound == approx(1 / (1 - 0.2 / 0.455))


def test_profiles_fill_a_dossier(tmp_path: Path) -> None:
    prefill, decode = phase_profiles(read_trace(write(tmp_path, night())))
    assert (prefill.phase, prefill.step_ms, prefill.kernel_ms) == ("prefill", 1.0, 0.9)
    assert (decode.phase, decode.step_ms, decode.kernel_ms) == ("decode", 0.29, 0.15)  # medians; gap 0.125
    assert prefill.shares == {"gemm": 0.6, "attention": 0.4}
    assert decode.source == "measured in rank0.trace.json, 2 steps"
    assert decode.weight is None, "three steps say nothing of the workload's mix"


def test_a_long_trace_says_what_each_phase_weighs(tmp_path: Path) -> None:
    events = []
    for i in range(ENOUGH_STEPS):
        name, took = (PREFILL, 600) if i % 5 == 0 else (DECODE, 100)
        events += [annotation(name, 1000 * i, 50), launch(1000 * i, i), gpu("gemm", 1000 * i, took, i)]
    prefill, decode = phase_profiles(read_trace(write(tmp_path, events)))
    assert prefill.step_ms == 1.0 and decode.step_ms == 1.0
    assert prefill.weight == approx(10 / 49.1) and decode.weight == approx(39.1 / 49.1)


def test_decode_that_waits_for_the_host(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, launches_one_by_one()))
    decode = trace.phase("decode")
    assert decode is not None and decode.idle_share == approx((194 - 80) / 194)
    assert trace.launch_bound is True and trace.graph_launches == 0
    assert (
        "Decode is launch-bound: 58.8% of it without GPU work, 100% of its 20 kernels shorter than 10 us; "
        "no graph launch in any of its steps"
    ) in [f.title for f in findings(trace)]
    assert read_trace(write(tmp_path, [gpu("gemm", 0, 5)], "b.json")).launch_bound is None, "no decode steps"


@pytest.mark.parametrize("cat", ["gpu_user_annotation", "user_annotation"])
def test_without_launches_the_annotations_time_decides(tmp_path: Path, cat: str) -> None:
    events = [annotation(DECODE, 0, 100, cat), gpu("gemm", 10, 50), gpu("gemm", 500_000, 50)]
    trace = read_trace(write(tmp_path, events))
    assert trace.how == cat.replace("_user", "").replace("user", "host").replace("_", " ")
    assert (len(trace.steps), trace.outside_ms) == (1, 0.05)


def test_a_long_gap_is_no_host_time(tmp_path: Path) -> None:
    events = []
    for i, at in enumerate((0, 1000, 900_000)):
        events += [annotation(DECODE, at, 50), launch(at, i), gpu("gemm", at, 100, i)]
    assert [s.gap_ms for s in read_trace(write(tmp_path, events)).steps] == [0.9, None, None]


def test_work_of_unknown_launch_lies_in_the_step_around_it(tmp_path: Path) -> None:
    events = night() + [gpu("gemm", 2160, 5), gpu("gemm", 2280, 5), gpu("gemm", 100, 5)]
    trace = read_trace(write(tmp_path, events))
    assert [s.launches for s in trace.steps] == [2, 5, 3] and trace.outside_ms == 0.01


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (PREFILL, ("prefill", False, 512, 0)),
        (DECODE, ("decode", False, 0, 2)),
        (MIXED, ("prefill", True, 766, 2)),
        ("execute_context_1(100)_generation_3(3)", ("prefill", True, 100, 3)),
        ("execute_context_0(0)_generation_0(0)", ("unknown", False, 0, 0)),
        ("ProfilerStep#6", ("unknown", False, None, None)),
    ],
)
def test_what_an_annotation_says(name: str, expected: tuple[object, ...]) -> None:
    kind = step_kind(name)
    assert kind is not None
    assert (kind.phase, kind.mixed, kind.context_tokens, kind.generation_tokens) == expected


def test_other_annotations_are_no_steps() -> None:
    assert step_kind("execute_model") is None and step_kind("nccl:all_reduce") is None


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ("attention", "kernel_unified_attention_2d _ZN5aiter7fmha_v3E mla_reduce_v1 reduce_segments attn_fwd"),
        ("attention", "vllm::reshape_and_cache_flash_kernel BatchPrefillWithPagedKVCacheKernel paged_attention_ll4mi"),
        ("gemm", "Cijk_Alik_Bljk_BBS_MT16x16x256 _gemm_a16_w16_kernel wvSplitK_hf_sml_ nvjet_tst_192x192 triton_tem_x"),
        ("moe", "fused_moe_kernel _matmul_ogs_NNT_bf16 topkGatingSoftmax_moe _combined_routing_compute _topk_forward"),
        ("moe", "triton_poi_fused_constant_pad_nd_moe_forward_0 ck_tile::MoeSortingKernel _sum_bitmatrix_rows"),
        ("norm", "Rmsnorm2dFwd fused_add_rms_norm_kernel triton_red_fused_rms_norm_3 triton_red_mean_pow_rsqrt_1"),
        ("sampling", "ArgMaxOps _topk_topp_kernel cunn_SoftMaxForward DeviceRadixSortOnesweepKernel"),
        ("communication", "ncclDevKernel_Generic vllm::cross_device_reduce_2stage aiter::allreduce_fusion_kernel"),
        (
            "memory",
            "direct_copy_kernel_cuda __amd_rocclr_fillBufferAligned vectorized_gather_kernel CatArrayBatchedCopy",
        ),
        ("other", "vllm::rotary_embedding_kernel silu_and_mul triton_poi_fused_mul_silu_2 dynamic_scaled_fp8_quant x"),
    ],
)
def test_a_kernel_s_name_tells_its_category(expected: str, names: str) -> None:
    assert {name: category(name) for name in names.split()} == dict.fromkeys(names.split(), expected)


def test_a_union_of_intervals_is_what_counting_each_tick_gives() -> None:
    rng = random.Random(20261130)
    for _ in range(300):
        pairs = sorted(
            (start, start + rng.randrange(12)) for start in (rng.randrange(60) for _ in range(rng.randrange(9)))
        )
        ticks = {tick for start, end in pairs for tick in range(start, end)}
        starts, ends = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
        assert covered(starts, ends) == len(ticks), pairs


# --- the reader ---------------------------------------------------------------------------------------------------


def test_the_reader_tells_facts_with_the_step_to_look_at(tmp_path: Path) -> None:
    found = look(dossier(traces=(str(write(tmp_path, night())),)))
    assert {(f.reader, f.kind) for f in found} == {("traces", "fact")}
    assert [f.title for f in found] == [
        "Prefill takes 1.000 ms a step (1 step); of the time in kernels gemm 60.0%, attention 40.0%; "
        "the GPU idles 10.0% of it",
        "One kernel, Cijk_Alik_Bljk_MT256x128x64 (gemm), is 60.0% of prefill; "
        "without it the phase would be at most 2.50 times as fast",
        "One kernel, kernel_unified_attention_2d (attention), is 40.0% of prefill; "
        "without it the phase would be at most 1.67 times as fast",
        "Decode takes 0.227 ms a step (2 steps); "
        "of the time in kernels attention 64.5%, gemm 25.8%, communication 6.5%, sampling 3.2%; "
        "the GPU idles 31.9% of it",
        "One kernel, kernel_unified_attention_3d (attention), is 44.0% of decode; "
        "without it the phase would be at most 1.78 times as fast",
        "Decode is not launch-bound: 31.9% of it without GPU work, 29% of its 7 kernels shorter than 10 us; "
        "graph launches: 2, steps: 2",
        "Decode copies memory while no kernel runs for 2.2% of its time (0.005 ms a step)",
        "Decode is between steps, where the host prepares the next one, for 27.5% of its time (0.062 ms a step)",
    ]
    assert found[3].evidence[0].source == f"rank0.trace.json#{DECODE}"
    assert found[0].terms is None and "traces" in READERS


def test_mixed_steps_are_prefill_and_told(tmp_path: Path) -> None:
    events = [annotation(MIXED, 0, 10), annotation("nccl:all_reduce", 0, 5), launch(1, 1), gpu("gemm", 20, 80, 1)]
    (fact, _big) = look(dossier(traces=(str(write(tmp_path, events)),)))
    assert fact.title.startswith("Prefill takes 0.080 ms a step (1 step, 1 of them with generation too); ")


def test_further_ranks_are_told_in_a_line(tmp_path: Path) -> None:
    paths = [write(tmp_path, night(), f"rank{rank}.json", distributedInfo={"rank": rank}) for rank in (0, 1)]
    found = look(dossier(traces=tuple(str(path) for path in paths)))
    second = [f.title for f in found if f.evidence[0].source.startswith("rank1.json")]
    assert [title[:24] for title in second] == ["Rank 1's prefill takes 1", "Rank 1's decode takes 0."]


def test_a_trace_of_several_devices_is_a_trap(tmp_path: Path) -> None:
    more = gpu("gemm", 1000, 1, 1, pid=1, args={"device": 1})
    trap, *rest = look(dossier(traces=(str(write(tmp_path, [*night(), more])),)))
    assert trap.kind == "trap" and "2 devices did work in this trace; only the busiest one is summed up" in trap.title
    assert "0.900 ms" in rest[0].evidence[0].detail or "kernels 0.9000 ms" in rest[0].evidence[0].detail


# --- shares that a person wrote down --------------------------------------------------------------------------------


def test_a_written_profile(tmp_path: Path) -> None:
    path = tmp_path / "shares.json"
    path.write_text('{"phases": [{"phase": "prefill", "shares": {"attention": 0.43}, "weight": 0.8}]}')
    expected = PhaseProfile(
        phase="prefill", weight=0.8, shares={"attention": 0.43}, source="shares.json, written by hand"
    )
    assert profiles_from_json(path) == (expected,)
    path.write_text("source: rocprofv3\nphases:\n- {phase: decode, step_ms: 11, kernel_ms: 10.5}\n")
    (decode,) = profiles_from_json(path)
    assert (decode.step_ms, decode.kernel_ms, decode.source) == (11, 10.5, "shares.json: rocprofv3")
    path.write_text("phases:\n- {phase: decode, weight: 20%, shares: {attention: 43 %, gemm: 0.5}}\n")
    (decode,) = profiles_from_json(path)
    assert (decode.weight, decode.shares) == (0.2, {"attention": 0.43, "gemm": 0.5})


def test_the_example_in_the_docs_is_one(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    example = docs.split("## Known shares")[1].split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "known.yaml"
    path.write_text(example)
    prefill, decode = profiles_from_json(path)
    assert prefill.shares["attention"] == 0.43 and decode.kernel_ms is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no key phases"),
        ("{", "shares.yaml:1: not valid YAML"),
        ("[1]", "holds no key phases"),
        ("phases: []", "phases is empty"),
        ("phases: {prefill: {attention: 0.43}}", "phases must be a list, got keys (prefill)"),
        ("prefill: {attention: 0.43}", "phases is missing"),
        ("phases: [{shares: {gemm: 0.5}}]", "phases[0].phase is missing"),
        ("phases: [{phase: decode, shares: {gemm: much}}]", "phases[0].shares.gemm must be a number, got the text"),
        ("phases: [{phase: decode, step_ms: -1}]", "phases[0].step_ms must be above 0, got -1"),
        ("phases: [{phase: decoding}]", "phases[0].phase must be prefill or decode, got the text 'decoding'"),
        ("phases: [{phase: decode, shares: {attention: 43}}]", "attention = 43 is no share; write 0.43 or 43 %"),
        ("phases: [{phase: decode, shares: {attn: 0.4}}]", "'attn' is none of attention, gemm, moe"),
        ("phases: [{phase: decode, shares: {gemm: 0.6, moe: 0.6}}]", "they add up to 1.20"),
        ("phases: [{phase: decode, shares: {gemm: .nan}}]", "phases[0].shares.gemm: .nan is no plain finite number"),
        ("phases: [{phase: decode, step_ms: 1, kernel_ms: 2}]", "kernel_ms 2 is more than step_ms 1"),
        ("phases: [{phase: decode}, {phase: decode}]", "each phase may stand there once"),
        ("phases: [{phase: decode, weight: 0.9}, {phase: prefill, weight: 0.9}]", "the two weights add up to 1.80"),
        ("phases: [{phase: decode, note: x}]", "phases[0].note is not a key here; the keys here are phase, weight"),
        ("\x00", "holds a control character"),
        ("[" * 400, "nested too deeply"),
        ("phases: [{phase: decode}]\nphases: [{phase: prefill}]", "shares.yaml:2: phases"),
        ("a: &a [1, 1]\nphases: [*a, *a]", "aliases are not used here"),
    ],
)
def test_a_wrong_profile_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "shares.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as told:
        profiles_from_json(path)
    assert says in str(told.value) and "\n" not in str(told.value) and str(told.value).startswith("shares.yaml:")
    assert str(told.value).endswith("; docs/audit.md, Known shares, has an example")
    with pytest.raises(ProfileError, match="no such file"):
        profiles_from_json(tmp_path / "absent.json")
