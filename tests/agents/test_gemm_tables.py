"""What the audit says of AITER's GEMM tables and of a model's way through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.finding import Finding
from agents.research.model_shape import ModelShape
from agents.research.readers import gemm_tables
from agents.research.tables.dense_route import reduced_skinny
from agents.research.tables.gemm_csv import families, on_repeat, padded, read_family, sizes
from agents.research.tables.gemm_json import OWN_BOUNDS
from agents.research.tables.vllm_gates import read_gates
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.tables_examples import (
    CORE,
    FAMILY,
    FP4,
    FP8_BLOCK,
    HUGE,
    INT4,
    MXFP4,
    OPS,
    ROWS,
    TILE,
    dense,
    gemm_tree,
    sheet,
    write,
)


def look(aiter: Path, model: ModelShape, env: dict[str, str] | None = None, **more: Any) -> list[Finding]:
    held = sheet()
    return gemm_tables.look(
        dossier(
            card=held.card(),
            sheet=held,
            aiter=str(aiter),
            model=model,
            knobs=KNOBS.model_copy(update={"path": str(aiter.parent / "vllm")}),
            spec=spec(env={"VLLM_ROCM_USE_AITER": "1"} if env is None else env),
            workload=workload(concurrency=64, input_tokens=(1024, 1024)),
            **more,
        )
    )


def titles(found: list[Finding], kind: str) -> list[str]:
    return [f.title for f in found if f.kind == kind]


# --- CSV families ---


def test_a_lookup_tries_the_size_then_a_grid_then_a_power_of_two() -> None:
    assert [padded(m, 1024) for m in (5, 300, 3000, 9000)] == [
        (5, 16, 8),
        (300, 320, 512),
        (3000, 3008, 4096),
        (9000, 9088, 16384),
    ]
    assert padded(9000, 8192)[2] == 8192


def test_a_shape_in_two_files_is_repeated_and_spelling_does_not_hide_it(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    model = f"{ROWS}\ngfx950,256.0, 64,3072,1024,7,4.0,other,0.0\ngfx942,304,64,3072,1024,7,4.0,other,0.0\n"
    write(aiter / f"configs/model_configs/some_{FAMILY}.csv", model)
    write(aiter / "configs/model_configs/some_a4w4_blockscale_untuned_gemm.csv", "M,N,K\n")
    table = read_family(aiter, FAMILY, families(aiter)[FAMILY], {}, "gfx950", 256)
    [(first, again)] = table.repeated
    assert str(first) == f"aiter/configs/{FAMILY}.csv:2"
    assert str(again) == f"aiter/configs/model_configs/some_{FAMILY}.csv:2"
    assert sizes(table, 3072, 1024) == [64]
    [title] = [t for t in titles(look(aiter, dense()), "trap") if "repeat" in t]
    assert title == f"1 rows of {FAMILY} repeat a shape: the first start rewrites the CSV files and fails"


def test_an_older_aiter_drops_rows_whatever_card_they_are_of(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / "jit/core.py", CORE.replace("re-run", "") + "\nmerge_df.drop_duplicates(subset=keys)")
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", f"{ROWS}\ngfx942,304,64,3072,1024,7,4.0,other,0.0\n")
    assert on_repeat(aiter) == "drops"
    [trap] = [f for f in look(aiter, dense()) if "repeat" in f.title]
    assert "whatever card it was measured on" in trap.fix


def test_files_named_by_the_environment_replace_the_others(tmp_path: Path) -> None:
    aiter, mine = gemm_tree(tmp_path), write(tmp_path / "mine.csv", f"{ROWS}\ngfx950,256,1,8,16,1,5.0,k,0.0\n")
    known = families(aiter)[FAMILY]
    table = read_family(aiter, FAMILY, known, {known.env: str(mine)}, "gfx950", 256)
    assert list(table.rows) == [("1", "8", "16")]
    assert table.sources == ("mine.csv",)


def test_rows_without_the_gfx_column_are_of_the_arch_that_has_so_many_units(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / f"configs/{FAMILY}.csv", "cu_num,M,N,K,us\n256,1,8,16,5\n304,1,8,16,5\n")
    table = read_family(aiter, FAMILY, families(aiter)[FAMILY], {}, "gfx950", 256)
    assert table.cards == {"gfx950 256": 1, "gfx942 304": 1}


def test_rows_no_tuner_should_have_kept(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    bad = "gfx950,256,1,8,16,1,-1,k,0.0\ngfx950,256,2,8,16,1,nan,k,0\ngfx950,256,4,8,16,1,5,k,0.1\n"
    write(aiter / f"configs/{FAMILY}.csv", f"{ROWS}\n{bad}gfx942,304,1,8,16,1,-1,k,0\n")
    [trap] = [f for f in look(aiter, dense()) if "usable time" in f.title]
    assert [e.detail for e in trap.evidence] == ["us -1", "us nan", "errRatio 0.1, the tuner's own limit is 0.05"]


def test_what_is_not_named_is_counted_all_of_it(tmp_path: Path) -> None:
    """22 bad rows and 20 repeated ones: eight of each are named, the others are 14 and 12."""
    aiter = gemm_tree(tmp_path)
    bad = "".join(f"gfx950,256,{m},8,16,1,-1,k,0.0\n" for m in range(1, 23))
    write(aiter / f"configs/{FAMILY}.csv", f"{ROWS}\n{bad}")
    again = "".join(f"gfx942,304,{m},8,16,1,5,k,0.0\n" * 2 for m in range(1, 21))
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", f"{ROWS}\n{again}")
    found = {f.title.split()[0]: f for f in look(aiter, dense()) if f.kind == "trap"}
    assert (len(found["22"].evidence), found["22"].unnamed) == (8, 14)
    assert (len(found["20"].evidence), found["20"].unnamed) == (8, 12)


def test_rows_of_a_card_with_other_units_do_not_count(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / f"configs/{FAMILY}.csv", f"{ROWS}\ngfx950,32,64,3072,1024,1,5.0,k,0.0\n")
    assert "1 CSV families have rows of gfx950, but none of a card with 256 compute units" in titles(
        look(aiter, dense()), "trap"
    )


# --- the model's shapes ---


def test_four_bit_floats_use_triton_until_rows_and_a_file_turn_assembly_on(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    found = look(aiter, dense(quantization_config=MXFP4))
    [summary] = [f for f in found if "lookups" in f.title]
    # qkv, gate+up and down: default; attention out [1024, 1024]: tuned at m = 64, "any" at 1024. The head: 16 bits.
    assert summary.title.startswith(
        "of 9 lookups for this model's dense layers (mxfp4), 1 find a row of their shape, 7"
    )
    tuned = [e.source for e in summary.evidence if "a row of its shape" in e.detail]
    assert tuned == [f"aiter/{FP4}/GEMM-AFP4WFP4-N=1024-K=1024.json#M_LEQ_64"]
    [qkv] = [f for f in found if f.title.startswith("qkv in decode")]
    assert qkv.title == "qkv in decode (M 64, N 3072, K 1024) runs on a tile that GEMM-AFP4WFP4 has for any shape"
    assert qkv.evidence[0].source == f"aiter/{FP4}/DEFAULT.json#M_LEQ_256"
    assert f"M_LEQ_64 of aiter/{FP4}/GEMM-AFP4WFP4-N=3072-K=1024.json" in qkv.fix
    assert qkv.terms is not None
    assert (qkv.terms.speedup, qkv.terms.probability) == (1.078, 0.35)

    rows = "".join(f"gfx950,256,{m},3072,1024,1,5.0,k,0.0\n" for m in (1024, 8192))
    write(aiter / f"configs/{FAMILY}.csv", f"{ROWS}\n{rows}")
    shuffled = aiter / f"{FP4}_preshuffled"
    write(shuffled / "DEFAULT.json", {"any": TILE})
    write(shuffled / "GEMM-AFP4WFP4_PRESHUFFLED-N=3072-K=1024.json", {"M_LEQ_64": TILE, "M_LEQ_128": TILE})
    [summary] = [f for f in look(aiter, dense(quantization_config=MXFP4)) if "lookups" in f.title]
    assert summary.evidence[0].source == f"aiter/configs/{FAMILY}.csv:2"  # prefill qkv: assembly
    assert summary.evidence[1].source.endswith("PRESHUFFLED-N=3072-K=1024.json#M_LEQ_64")  # decode: Triton's other one


def test_eight_bit_blocks_use_triton_only_with_a_file_that_answers_at_128(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    found = look(aiter, dense(quantization_config=FP8_BLOCK))
    assert not any(f.title.startswith("qkv") for f in found)  # N=3072-K=1024 is tuned for both sizes
    [down] = [f for f in found if f.title.startswith("down in decode")]
    assert down.title == "down in decode (M 64, N 1024, K 2048) has no row in a8w8_blockscale_tuned_gemm"
    table = {"M_LEQ_64": TILE, "any": TILE}  # m = 128 falls to "any": vLLM takes the shape for untuned
    write(aiter / "ops/triton/configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=3072-K=1024.json", table)
    assert any(f.title.startswith("qkv") for f in look(aiter, dense(quantization_config=FP8_BLOCK)))


def test_sixteen_bit_layers_ask_no_triton_table(tmp_path: Path) -> None:
    found = look(gemm_tree(tmp_path), dense())
    [qkv] = [f for f in found if f.title.startswith("qkv in prefill")]
    assert qkv.title == "qkv in prefill (M 1024, N 3072, K 1024) has no row in bf16_tuned_gemm"


@pytest.mark.parametrize(
    ("m", "n", "k", "takes"),
    [
        (16, 2048, 4096, True),  # 32 x 8 blocks, one wave each: 256 units
        (17, 2048, 4096, False),  # 32 tokens' worth: two waves share the work, 512
        (64, 2048, 4096, False),  # 1024
        (64, 1024, 2048, True),  # 16 x 4 x 4 = 256
        (128, 1024, 2048, True),  # no more than four waves
        (9, 64, 1024, False),
        (129, 64, 1024, False),
        (64, 64, 512, False),  # k above 512 only
        (64, 72, 1024, False),  # outputs in sixteens
    ],
)
def test_what_the_skinny_kernel_takes_before_any_table_is_asked(m: int, n: int, k: int, takes: bool) -> None:
    """As wvsplitkrc_dispatch and rocm_unquantized_gemm_impl of vLLM 0.33.0 decide on 256 compute units."""
    assert reduced_skinny(m, n, k, 256) is takes


def test_a_skinny_kernel_that_is_switched_off_leaves_the_product_to_the_table(tmp_path: Path) -> None:
    """Attention out, N 1024, K 1024: 16 x 2 x 4 = 128 units at 64 tokens."""

    def told(env: dict[str, str]) -> str:
        found = look(gemm_tree(tmp_path), dense(), env={"VLLM_ROCM_USE_AITER": "1", **env})
        [summary] = [f for f in found if "lookups" in f.title]
        return next(e.detail for e in summary.evidence if e.detail.startswith("decode attention out"))

    assert "no table" in told({}) and "wvSplitKrc" in told({})
    assert "no row" in told({"VLLM_ROCM_USE_SKINNY_GEMM": "0"})


def test_shares_go_by_operations_and_add_up(tmp_path: Path) -> None:
    terms = [f.terms for f in look(gemm_tree(tmp_path), dense(quantization_config=INT4 | MXFP4)) if f.terms]
    prefill = [t.share for t in terms if t.phase == "prefill"]
    assert sum(prefill) == pytest.approx(0.15)


def test_nothing_to_try_where_aiter_is_off(tmp_path: Path) -> None:
    assert titles(look(gemm_tree(tmp_path), dense(), env={"VLLM_ROCM_USE_AITER": "0"}), "opportunity") == []


def test_vllm_conditions_are_read_from_its_source(tmp_path: Path) -> None:
    write(tmp_path / "vllm/_aiter_ops.py", OPS)
    dispatch = "def use_aiter_triton_gemm(n, m, k, dtype):\n    return (m == 5120 and k == 2880)\n"
    write(tmp_path / "vllm/model_executor/layers/utils.py", dispatch)
    gates = read_gates(tmp_path / "vllm", "gfx950")
    assert gates.bf16_triton is not None and gates.bf16_triton.shapes == {(5120, 2880)}
    assert gates.fp4_preshuffled is not None
    assert (gates.fp4_preshuffled.by, gates.fp4_preshuffled.k_factor) == ("file", 2)
    assert gates.tuned_gemm == "vllm/_aiter_ops.py:17"
    assert read_gates(tmp_path / "vllm", "gfx942").tuned_gemm is None
    assert read_gates(tmp_path / "nothing", "gfx950").fp8_triton is None


def test_a_vllm_that_asks_for_twice_the_size_misses_the_tables(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(tmp_path / "vllm/_aiter_ops.py", OPS.replace("2 * k_bytes", "4 * k_bytes"))
    assert any("4 x the bytes" in t for t in titles(look(aiter, dense(quantization_config=MXFP4)), "trap"))
    assert not any("the bytes" in t for t in titles(look(aiter, dense()), "trap"))


# --- what can be wrong ---


def test_an_arch_without_tables_is_one_fact(tmp_path: Path) -> None:
    aiter, old = gemm_tree(tmp_path), sheet("gfx906", lds=64 << 10, mfma=False)
    found = gemm_tables.look(dossier(card=old.card(), sheet=old, aiter=str(aiter), model=dense()))
    assert [f.title for f in found] == [
        "AITER has no GEMM table for gfx906: no JSON file, and no row in its 2 CSV families"
    ]


def test_broken_files_are_one_trap_and_never_a_crash(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=8-K=8.json", '{"any": ')
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=9-K=8.json", "[1]")
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", "")
    (aiter / FP4 / "GEMM-AFP4WFP4-N=7-K=7.json").symlink_to("GEMM-AFP4WFP4-N=7-K=7.json")
    [trap] = [f for f in look(aiter, dense()) if "cannot be read" in f.title]
    assert [e.source.rsplit("/", 1)[1] for e in trap.evidence] == [
        "GEMM-AFP4WFP4-N=8-K=8.json",
        "GEMM-AFP4WFP4-N=9-K=8.json",
        f"x_{FAMILY}.csv",
    ]
    assert gemm_tables.look(dossier(aiter=str(tmp_path / "nowhere"), card=sheet().card())) == []


def test_an_entry_that_is_reached_and_too_big_is_a_trap(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / FP4 / "DEFAULT.json", {"M_LEQ_16": TILE, "M_LEQ_256": {**HUGE, "BLOCK_SIZE_K": 1024}, "any": TILE})
    [trap] = [f for f in look(aiter, dense(quantization_config=MXFP4)) if "LDS" in f.title]
    assert trap.kind == "trap"
    assert trap.evidence[0].source == f"aiter/{FP4}/DEFAULT.json#M_LEQ_256"
    assert trap.evidence[0].detail == "256x256x1024, 3 stages: 786432 bytes, 524288 with one buffer fewer"


def test_a_key_that_stands_twice_is_told(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=8-K=8.json", '{"any": {"BLOCK_SIZE_M": 16}, "any": {"BLOCK_SIZE_M": 32}}')
    write(aiter / "ops/triton/utils/gemm_config_utils.py", "STANDARD_M_BOUNDS = (1, 16, 64)\n")
    [fact] = [f for f in look(aiter, dense()) if "never be chosen" in f.title]
    assert "any stands twice in one object; the last one counts" in [e.detail for e in fact.evidence]
    assert OWN_BOUNDS["GEMM-AFP4WFP4_PRESHUFFLED"][3] == 31
