"""A table's row is in use when the engine's own process looked it up. The lines are what kernels/nightgate_evidence
writes (tests/kernels/test_evidence_plugin.py has it write them); here they are written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import JsonValue

from agents.tuning.probes import ArmSeen, judge_path, probe_for
from agents.tuning.seen import seen_in
from contracts import Change, Lever, PathEvidence, Probe
from tests.agents.examples import KNOBS

ACTIVE = 'nightgate-evidence active {"pid": 7, "version": "0.1.0"}\n'
MOE = "E=8,N=7168,device_name=AMD_Instinct_MI355X.json"
OLD: dict[str, JsonValue] = {"BLOCK_SIZE_M": 16, "num_warps": 4}
NEW: dict[str, JsonValue] = {"BLOCK_SIZE_M": 32, "num_warps": 4}


def line(table: str, row: Any, rows: list[str], file: str | None = None, **asked: Any) -> str:
    data = {"table": table, "row": row, "row_keys": rows, "file": file, "asked": asked}
    return f"(EngineCore pid=7) nightgate-evidence table_row {json.dumps(data)}\n"


def judged(lever: Lever, key: str, before: Any, after: Any, a: str, b: str) -> PathEvidence:
    change = Change(lever=lever, key=key, before=before, after=after)
    return judge_path(change, probe_for(change, KNOBS), ArmSeen(log=ACTIVE + a), ArmSeen(log=ACTIVE + b))


def moe(row: Any, key: str, file: str | None, batch: int) -> str:
    return line("vllm_moe", row, [key] if file else [], file, E=8, N=7168, M=batch)


IN_A, IN_B = f"/site-packages/vllm/configs/{MOE}", f"/night/tables/{MOE}"


def test_a_changed_row_of_a_moe_table() -> None:
    a, b = moe(OLD, "16", IN_A, 15), moe(NEW, "16", IN_B, 15)
    proof = judged(Lever.MOE_TABLE, f"{MOE}#16", OLD, NEW, a, b)
    assert proof.outcome == "proven"
    assert proof.reason == f"arm B resolves 16 as {NEW}; arm A: {OLD} to the same question"
    assert proof.b["rows"][0]["file"] == IN_B  # type: ignore[index, call-overload]
    assert judged(Lever.MOE_TABLE, f"{MOE}#16", OLD, NEW, a, a).outcome == "absent"
    assert judged(Lever.MOE_TABLE, f"{MOE}#16", OLD, NEW, b, b).outcome == "absent"


def test_a_table_where_there_was_none() -> None:
    """A's engine used vLLM's default tile: no file, no row."""
    a, b = moe(OLD, "16", None, 15), moe(NEW, "16", IN_B, 15)
    assert judged(Lever.MOE_TABLE, f"{MOE}#16", None, NEW, a, b).outcome == "proven"
    assert judged(Lever.MOE_TABLE, f"{MOE}#16", NEW, None, b, a).outcome == "proven"  # and taken away again
    assert judged(Lever.MOE_TABLE, f"{MOE}#16", NEW, None, b, b).outcome == "absent"


def test_a_row_that_no_batch_reaches_is_told_with_those_that_are() -> None:
    a, b = moe(OLD, "16", IN_A, 15), moe(OLD, "16", IN_B, 15)
    proof = judged(Lever.MOE_TABLE, f"{MOE}#512", OLD, NEW, a, b)
    assert (proof.outcome, proof.reason) == (
        "absent", "arm B never looked 512 up under this load; rows that it did use: 16"
    )  # fmt: skip


def test_a_table_of_another_card_is_not_looked_at() -> None:
    b = moe(NEW, "16", IN_B.replace("MI355X", "MI300X"), 15)
    assert judged(Lever.MOE_TABLE, f"{MOE}#16", OLD, NEW, moe(OLD, "16", IN_A, 15), b).outcome == "absent"


def gemm(row: Any, keys: list[str], batch: int, root: str) -> str:
    file = f"{root}/aiter/ops/triton/configs/gemm/gfx950-GEMM-A16W16.json"
    return line("aiter_json_gemm", row, keys, file, config_name="GEMM-A16W16", M=batch, N=512, K=7168)


def test_a_row_of_aiters_json() -> None:
    key = "gemm/gfx950-GEMM-A16W16.json#M_LEQ_64"
    a, b = gemm(OLD, ["M_LEQ_64"], 60, "/site-packages"), gemm(NEW, ["M_LEQ_64"], 60, "/night/overlay")
    assert judged(Lever.AITER_JSON, key, OLD, NEW, a, b).outcome == "proven"
    # Another row of the table has the same tile, and it answered the same question before: nothing changed there.
    equal = gemm(NEW, ["M_LEQ_64", "M_LEQ_128"], 60, "/night/overlay")
    before = gemm(NEW, ["M_LEQ_128"], 60, "/site-packages")
    assert "both arms resolve" in judged(Lever.AITER_JSON, key, OLD, NEW, before, equal).reason


def test_a_nested_row_of_the_attention_table() -> None:
    file, key = "gfx950/triton/attention/unified_attention/DEFAULT.json", "D_GEQ_512.DT_fp8_fp8"
    a = line("aiter_json_attention", OLD, [f"attn_2d/{key}"], f"/a/{file}", op="attn_2d", head_size=512)
    b = line("aiter_json_attention", NEW, [f"attn_2d/{key}"], f"/b/{file}", op="attn_2d", head_size=512)
    assert judged(Lever.AITER_JSON, f"{file}#attn_2d/{key}", OLD, NEW, a, b).outcome == "proven"
    assert judged(Lever.AITER_JSON, f"{file}#attn_2d/any", OLD, NEW, a, b).outcome == "absent"


def test_a_whole_table() -> None:
    """The key's row is "*": any row of it that was looked up, and that the other arm did not have, shows it."""
    table: dict[str, JsonValue] = {"16": NEW, "512": OLD}
    default = moe(OLD, "16", None, 15)
    assert judged(Lever.MOE_TABLE, f"{MOE}#*", None, table, default, moe(NEW, "16", IN_B, 15)).outcome == "proven"
    same = moe(OLD, "512", IN_B, 15)
    assert "both arms resolve" in judged(Lever.MOE_TABLE, f"{MOE}#*", None, table, default, same).reason


def test_a_row_of_a_csv_by_its_shape() -> None:
    def csv(row: Any, n: int = 7168, file: str = "a4w4_blockscale_tuned_gemm", rows: int = 60) -> str:
        return line("aiter_csv_a4w4", row, [], f"/tables/{file}.csv", M=rows, N=n, K=2048)

    new: dict[str, JsonValue] = {"kernelId": 31, "splitK": 1, "_tag": "x"}  # not all of it is in the answer
    old, got = csv({"kernelId": 20, "splitK": 0}), csv({"kernelId": 31, "splitK": 1, "us": 12.5, "tflops": 4.0})
    key = "a4w4_blockscale_tuned_gemm#gfx=gfx950,cu_num=256,M=64,N=7168,K=2048"
    assert judged(Lever.AITER_CSV, key, None, new, old, got).outcome == "proven"
    assert judged(Lever.AITER_CSV, key, None, new, csv(None), got).outcome == "proven"  # a miss before
    won: dict[str, JsonValue] = {"kernelId": 31, "splitK": 1}
    for elsewhere in (csv(won, n=512), csv(won, rows=65), csv(won, file="a8w8_tuned_gemm")):
        assert judged(Lever.AITER_CSV, key, None, new, old, elsewhere).outcome == "absent"


def test_a_table_whose_name_begins_with_another_ones() -> None:
    """The changed row is of a8w8; the engine only ever asked a8w8_bpreshuffle, which has a row of that shape."""
    won: dict[str, JsonValue] = {"kernelId": 31, "splitK": 1}
    key = "a8w8_tuned_gemm#cu_num=256,M=64,N=7168,K=2048"

    def csv(row: Any, file: str) -> str:
        return line(f"aiter_csv_{file.removesuffix('_tuned_gemm')}", row, [], f"/t/{file}.csv", M=64, N=7168, K=2048)

    other, mine = csv(won, "a8w8_bpreshuffle_tuned_gemm"), csv(won, "a8w8_tuned_gemm")
    assert judged(Lever.AITER_CSV, key, None, won, csv(None, "a8w8_tuned_gemm"), other).outcome == "absent"
    proof = judged(Lever.AITER_CSV, key, None, won, other + csv(None, "a8w8_tuned_gemm"), mine)
    assert (proof.outcome, proof.seen_in_a) == ("proven", "aiter_csv_a8w8 no row of a file: None")  # its own table's


def test_a_row_that_is_made_equal_to_another_one() -> None:
    """B answers from M_LEQ_32, which has been the same tile all along; the changed M_LEQ_64 is never asked for."""
    key, file = "gemm/gfx950-GEMM-A16W16.json#M_LEQ_64", "/t/gemm/gfx950-GEMM-A16W16.json"

    def tile(row: Any, rows: list[str], size: int) -> str:
        return line("aiter_json_gemm", row, rows, file, M=size)

    b = tile(NEW, ["M_LEQ_32", "M_LEQ_64"], 20)
    assert judged(Lever.AITER_JSON, key, OLD, NEW, tile(NEW, ["M_LEQ_32"], 20), b).outcome == "absent"
    unknown = judged(Lever.AITER_JSON, key, OLD, NEW, tile(OLD, ["M_LEQ_16"], 3), b)
    assert (unknown.outcome, unknown.reason) == (
        "unknown", "arm B resolves one of the equal rows M_LEQ_32, M_LEQ_64, and arm A was not asked the same",
    )  # fmt: skip
    both = b + tile(NEW, ["M_LEQ_32", "M_LEQ_64"], 60)  # and now it is: one question has two answers
    a = tile(NEW, ["M_LEQ_32"], 20) + tile(OLD, ["M_LEQ_64"], 60)
    assert judged(Lever.AITER_JSON, key, OLD, NEW, a, both).outcome == "proven"
    # One question may have two answers in one arm (its words do not say the dtype); both arms have both.
    two = tile(NEW, ["M_LEQ_64"], 60) + tile(OLD, ["M_LEQ_32"], 60)
    assert judged(Lever.AITER_JSON, key, None, NEW, two, two).outcome == "absent"


def test_a_row_of_our_own_tables() -> None:
    """As kernels/nightgate_kernels writes them itself, and as nightgate_evidence.resolved does."""
    a = 'nightgate_kernels: table row w4a16_linear 8 -> {"N": 16} (built in)\n'
    b = '(Worker pid=9) nightgate_kernels: table row w4a16_linear 8 -> {"N": 32} (from /night/kernel_tables.json)\n'
    proof = judged(Lever.KERNEL_TABLE, "w4a16_linear#8", {"N": 16}, {"N": 32}, a, b)
    assert proof.outcome == "proven"
    assert proof.b["rows"][0]["file"] == "/night/kernel_tables.json"  # type: ignore[index, call-overload]
    assert judged(Lever.KERNEL_TABLE, "w4a16_linear#1", {"N": 16}, {"N": 32}, a, b).outcome == "absent"
    a, b = (line("w4a16_linear", row, ["8"], "/t.json", N=4096) for row in (OLD, NEW))
    assert judged(Lever.KERNEL_TABLE, "w4a16_linear#8", OLD, NEW, a, b).outcome == "proven"
    assert judged(Lever.KERNEL_TABLE, "add_rms_norm#8", OLD, NEW, a, b).outcome == "absent"


def test_a_kernel_of_ours_that_serves() -> None:
    """Registered is not used: vLLM may have no layer that the kernel computes."""
    registered = ACTIVE + "nightgate_kernels: w4a16_linear serves vLLM's 4-bit linear layers, before vLLM's own\n"
    called, key = registered + counted("w4a16_linear", 64), "w4a16_linear#dispatch"
    proof = judged(Lever.KERNEL_TABLE, key, None, True, ACTIVE, called)
    assert (proof.outcome, proof.reason) == ("proven", "only arm B calls w4a16_linear at least 64 times")
    assert judged(Lever.KERNEL_TABLE, key, None, True, ACTIVE, registered).outcome == "absent"
    assert judged(Lever.KERNEL_TABLE, key, True, None, called, ACTIVE).outcome == "proven"
    other = ACTIVE + counted("add_rms_norm", 64)
    assert judged(Lever.KERNEL_TABLE, key, None, True, ACTIVE, other).outcome == "absent"


def test_without_the_watcher_nothing_is_known() -> None:
    change = Change(lever=Lever.MOE_TABLE, key=f"{MOE}#16", before=OLD, after=NEW)
    b = ArmSeen(log=moe(NEW, "16", IN_B, 15))
    proof = judge_path(change, probe_for(change, KNOBS), ArmSeen(log=ACTIVE + moe(OLD, "16", IN_A, 15)), b)
    assert proof.outcome == "unknown" and "the watcher wrote nothing in arm B's log" in proof.reason
    silent_a = judged(Lever.MOE_TABLE, f"{MOE}#16", OLD, NEW, "", moe(NEW, "16", IN_B, 15))
    assert silent_a.outcome == "unknown" and "nothing to compare with" in silent_a.reason


PATCH = "--- a/vllm/attention.py\n+++ b/vllm/attention.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


def imported(path: str, digest: str) -> str:
    data = {"module": "vllm.attention", "file": path, "sha256": digest}
    return f"nightgate-evidence imported {json.dumps(data)}\n"


def test_a_patched_file_was_imported() -> None:
    key, at = "vllm/faster-attention", "/night/overlay/vllm/attention.py"
    proof = judged(Lever.SOURCE_PATCH, key, None, PATCH, "x\n", imported(at, "1"))
    assert proof.outcome == "proven" and proof.a == {}
    assert proof.b == {
        "imported": {"vllm/attention.py": {"module": "vllm.attention", "file": at, "sha256": "1"}}
    }  # fmt: skip
    unused = judged(Lever.SOURCE_PATCH, key, None, PATCH, "x\n", "x\n")
    assert unused.reason == "laid over but not in use: arm B imported none of vllm/attention.py"
    # The incumbent has an earlier patch of the same file: the content tells them apart.
    assert judged(Lever.SOURCE_PATCH, key, None, PATCH, imported(at, "0"), imported(at, "1")).outcome == "proven"
    assert judged(Lever.SOURCE_PATCH, key, None, PATCH, imported(at, "1"), imported(at, "1")).outcome == "absent"
    assert judged(Lever.SOURCE_PATCH, key, PATCH, None, imported(at, "1"), "x\n").outcome == "proven"


def test_a_patch_without_python_needs_a_probe_of_its_own() -> None:
    proof = judged(Lever.SOURCE_PATCH, "vllm/k", None, PATCH.replace(".py", ".cu"), "x\n", "x\n")
    assert proof.outcome == "unknown" and "a probe of its own" in proof.reason


def counted(name: str, count: int) -> str:
    return f'nightgate-evidence counter {{"name": "{name}", "count": {count}, "pid": 7}}\n'


def test_a_kernel_of_ours_that_is_called() -> None:
    change = Change(lever=Lever.ENVIRONMENT, key="NIGHTGATE_KERNELS", after="add_rms_norm")
    probe = Probe(kind="counter", pattern="^{after}$")
    b = ArmSeen(log=ACTIVE + counted("add_rms_norm", 1) + counted("add_rms_norm", 64))
    proof = judge_path(change, probe, ArmSeen(log=ACTIVE), b)
    assert (proof.outcome, proof.reason) == ("proven", "only arm B calls add_rms_norm at least 64 times")
    assert proof.b == {"counts": {"add_rms_norm": 64}}
    assert judge_path(change, probe, b, b).outcome == "absent"
    assert judge_path(change, probe, ArmSeen(log=ACTIVE), ArmSeen(log=ACTIVE + counted("other", 4))).outcome == "absent"


def test_a_torn_line_is_no_evidence() -> None:
    text = (
        'x nightgate-evidence counter {"name": "a", "cou\nnightgate-evidence counter {"name": "b", "count": 2} tail\n'
    )
    assert [seen.data for seen in seen_in(text)] == [{"name": "b", "count": 2}]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "[" * 100_000])
def test_a_line_that_the_ledger_could_not_hold_is_left_out(value: str) -> None:
    """Evidence goes into the ledger as it is read, and a line that cannot be written there ends the night."""
    good = 'nightgate-evidence counter {"name": "b", "count": 2}'
    own = f'nightgate_kernels: table row gemm M_LEQ_8 -> {{"BLOCK": {value}}} (from /x.json)'
    assert seen_in(f'nightgate-evidence counter {{"name": "a", "count": {value}}}\n{own}\n{good}') == seen_in(good)
    assert len(seen_in(good)) == 1
