"""What a lookup in AITER's GEMM tables finds, and what the audit says of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.research.finding import Finding
from agents.research.model_shape import ModelShape
from agents.research.readers import gemm_tables
from agents.research.tables.gemm_csv import families, find, on_repeat, padded, read_family, sizes
from agents.research.tables.gemm_json import OWN_BOUNDS, chosen, lookup, never_chosen, new_bucket, read_gemm_tables
from agents.research.tables.lds import lds_need, not_powers_of_two, operand_bits
from agents.research.tables.quant_scheme import dense_scheme, expert_scheme
from agents.research.tables.steps import steps
from agents.research.tables.vllm_gates import read_gates
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.tables_examples import (
    CORE,
    FP8_BLOCK,
    HUGE,
    INT4,
    MXFP4,
    OPS,
    TILE,
    dense,
    sheet,
    with_experts,
    write,
)
from tests.test_rooms import CHECKOUT

REAL = CHECKOUT.parent / "shared" / "data" / "aiter_configs"
real_tables = pytest.mark.skipif(not REAL.is_dir(), reason=f"needs real AITER tables in {REAL}")
FP4 = "ops/triton/configs/gfx950/triton/gemm/gemm_afp4wfp4"
ROWS = "gfx,cu_num,M,N,K,kernelId,us,kernelName,errRatio"


def tree(root: Path) -> Path:
    """aiter/: both layouts, one merged CSV family; vllm/ beside it."""
    aiter = root / "aiter"
    write(aiter / FP4 / "DEFAULT.json", {"M_LEQ_16": TILE, "M_LEQ_256": TILE, "any": TILE})
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=1024-K=1024.json", {"M_LEQ_64": TILE, "any": TILE})
    flat = aiter / "ops/triton/configs/gemm"
    write(flat / "gfx950-GEMM-A8W8_BLOCKSCALE.json", {"any": TILE})
    write(flat / "gfx950-GEMM-A8W8_BLOCKSCALE-N=3072-K=1024.json", {"M_LEQ_128": TILE, "M_GEQ_256": TILE, "any": TILE})
    write(aiter / "jit/core.py", CORE)
    write(aiter / "configs/a4w4_blockscale_untuned_gemm.csv", "M,N,K\n1, 2, 3\n")
    write(aiter / "configs/a4w4_blockscale_tuned_gemm.csv", f"{ROWS}\ngfx950,256,64,3072,1024,1,5.0,k,0.0\n")
    write(root / "vllm/_aiter_ops.py", OPS)
    return aiter


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


# --- the lookup ---


@pytest.mark.parametrize(
    ("m", "key"),
    [
        (1, "M_LEQ_8"),
        (8, "M_LEQ_8"),
        (9, "M_LEQ_32"),
        (33, "any"),
        (4095, "any"),
        (4096, "M_GEQ_4096"),
        (9000, "M_GEQ_4096"),
    ],
)
def test_upper_bounds_upwards_then_lower_bounds_downwards_then_any(m: int, key: str) -> None:
    assert chosen({"any": {}, "M_GEQ_4096": {}, "M_LEQ_32": {}, "M_LEQ_8": {}}, m) == key


def test_a_bound_that_the_lookup_does_not_ask_for_is_never_chosen() -> None:
    assert chosen({"M_LEQ_48": {}, "M_LEQ_64": {}}, 40) == "M_LEQ_64"
    assert chosen({"M_LEQ_64": {}}, 65) is None  # AITER raises KeyError


def test_both_layouts_are_found_and_a_file_of_the_shape_comes_first(tmp_path: Path) -> None:
    tables = read_gemm_tables(tree(tmp_path), "gfx950")
    nested = lookup(tables, "GEMM-AFP4WFP4", 40, 1024, 1024)
    assert nested is not None
    assert (nested.row, nested.tuned) == (f"aiter/{FP4}/GEMM-AFP4WFP4-N=1024-K=1024.json#M_LEQ_64", True)
    flat = lookup(tables, "GEMM-A8W8_BLOCKSCALE", 40, 7, 7)
    assert flat is not None
    assert (flat.row, flat.tuned) == ("aiter/ops/triton/configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json#any", False)
    assert lookup(tables, "GEMM-A16W16", 40) is None  # no default file: AITER raises
    assert new_bucket(tables, "GEMM-AFP4WFP4", 40) == "M_LEQ_64"


def test_any_does_not_count_as_tuned_even_in_a_file_of_the_shape(tmp_path: Path) -> None:
    found = lookup(read_gemm_tables(tree(tmp_path), "gfx950"), "GEMM-AFP4WFP4", 1000, 1024, 1024)
    assert found is not None
    assert (found.key, found.specialised, found.tuned) == ("any", True, False)


def test_entries_that_nothing_reaches(tmp_path: Path) -> None:
    write(
        tmp_path / "aiter/ops/triton/configs/gemm/gfx950-GEMM-A8W8.json",
        {"M_LEQ_8": TILE, "M_LEQ_48": TILE, "M_GEQ_4": TILE, "M_GEQ_8": TILE, "any": TILE},
    )
    tables = read_gemm_tables(tmp_path / "aiter", "gfx950")
    [table] = tables.files.values()
    assert [key for key, _ in never_chosen(table, tables.bounds)] == ["M_LEQ_48", "M_GEQ_4", "any"]


def test_an_older_aiter_names_files_by_the_card(tmp_path: Path) -> None:
    write(tmp_path / "aiter/ops/triton/utils/_triton/arch_info.py", 'MAP = {\n    "gfx950": "MI350X",\n}\n')
    write(tmp_path / "aiter/ops/triton/configs/gemm/MI350X-GEMM-AFP4WFP4.json", {"small": TILE, "medium_M32": TILE})
    found = lookup(read_gemm_tables(tmp_path / "aiter", "gfx950"), "GEMM-AFP4WFP4", 16)
    assert found is not None and found.key == "*"  # the kernel's own code chooses among such keys


@real_tables
def test_real_tables_answer_as_aiter_does(tmp_path: Path) -> None:
    configs = tmp_path / "aiter/ops/triton/configs"
    (configs / "gemm").mkdir(parents=True)
    for name in ("gfx950-GEMM-A16W16.json", "gfx950-GEMM-A16W16-N=128-K=2880.json"):
        shutil.copy(REAL / f"gemm_{name}", configs / "gemm" / name)
    nested = configs / "gfx950/triton/gemm/gemm_afp4wfp4"
    nested.mkdir(parents=True)
    shutil.copy(REAL / "gfx950_triton_gemm_gemm_afp4wfp4_DEFAULT.json", nested / "DEFAULT.json")
    tables = read_gemm_tables(tmp_path / "aiter", "gfx950")

    def key(family: str, m: int, n: int, k: int) -> tuple[str | None, bool] | None:
        found = lookup(tables, family, m, n, k)
        return (found.key, found.tuned) if found else None

    assert key("GEMM-A16W16", 64, 5120, 5120) == ("M_LEQ_64", False)
    assert key("GEMM-A16W16", 2048, 5120, 5120) == ("M_LEQ_2048", False)
    assert key("GEMM-A16W16", 2049, 128, 2880) == ("M_LEQ_4096", True)
    assert key("GEMM-AFP4WFP4", 2048, 5120, 8192) == ("any", False)


@real_tables
def test_real_rows_are_found_by_padded_sizes(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
    shutil.copy(REAL / "dsv3_a4w4_blockscale_tuned_gemm.csv", aiter / "configs/a4w4_blockscale_tuned_gemm.csv")
    table = read_family(aiter, FAMILY, families(aiter)[FAMILY], {}, "gfx950", 256)
    assert (len(table.rows), table.repeated_count, table.bad_count, table.cards) == (30, 0, 0, {"gfx950 256": 30})
    assert str(find(table, 1, 7168, 4608)) == "aiter/configs/a4w4_blockscale_tuned_gemm.csv:2"
    assert find(table, 1, 7168, 4609) is None


FAMILY = "a4w4_blockscale_tuned_gemm"

# --- estimates ---


def test_lds_of_a_tile_is_told_with_every_buffer_and_with_one_fewer() -> None:
    need = lds_need({"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 256, "num_stages": 2}, (16, 16))
    assert need is not None
    assert (need.bytes, need.lean) == (196608, 98304)  # Triton 3.9 compiles this tile to 202,688 on gfx950


@pytest.mark.parametrize(
    ("family", "bits"),
    [
        ("GEMM-A16W16", (16, 16)),
        ("GEMM-AFP4WFP4", (4, 4)),
        ("BATCHED_GEMM-A8WFP4", (8, 4)),
        ("GEMM-A8W8_BLOCKSCALE_PRESHUFFLED", None),
        ("FF-A16W16-fused", None),
    ],
)
def test_element_sizes_stand_in_the_family_name(family: str, bits: tuple[int, int] | None) -> None:
    assert operand_bits(family) == bits


def test_triton_takes_powers_of_two() -> None:
    assert not_powers_of_two({**TILE, "BLOCK_SIZE_N": 96, "num_stages": 3}) == ["BLOCK_SIZE_N 96"]


@pytest.mark.parametrize(
    ("config", "dense_as", "experts_as"),
    [
        (None, "bf16", "bf16"),
        (FP8_BLOCK, "fp8_block", "fp8_block"),
        ({"quant_method": "fp8"}, "fp8_token", "fp8_token"),
        (MXFP4, "mxfp4", "mxfp4"),
        ({"quant_method": "mxfp4"}, "bf16", "mxfp4"),  # only the experts are in 4 bits
        (INT4, "int4", "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8", "int8"),
        ({"quant_method": "unheard of"}, "other", "other"),
    ],
)
def test_arithmetic_by_quantization_config(config: Any, dense_as: str, experts_as: str) -> None:
    model = with_experts(quantization_config=config)
    assert (dense_scheme(model), expert_scheme(model)) == (dense_as, experts_as)


def test_decode_tokens_are_padded_to_a_captured_graph() -> None:
    held = {"num_speculative_tokens": 2}
    drafting = steps(dossier(spec=spec(flags={"speculative-config": held}), workload=workload(concurrency=25)))
    assert drafting.decode == 80  # 25 x 3 = 75
    eager = steps(dossier(spec=spec(flags={"enforce-eager": True}), profile={"running_mean": 12.6}))
    assert (eager.decode, eager.prefill) == (13, 128)


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
    aiter = tree(tmp_path)
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
    aiter = tree(tmp_path)
    write(aiter / "jit/core.py", CORE.replace("re-run", "") + "\nmerge_df.drop_duplicates(subset=keys)")
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", f"{ROWS}\ngfx942,304,64,3072,1024,7,4.0,other,0.0\n")
    assert on_repeat(aiter) == "drops"
    [trap] = [f for f in look(aiter, dense()) if "repeat" in f.title]
    assert "whatever card it was measured on" in trap.fix


def test_files_named_by_the_environment_replace_the_others(tmp_path: Path) -> None:
    aiter, mine = tree(tmp_path), write(tmp_path / "mine.csv", f"{ROWS}\ngfx950,256,1,8,16,1,5.0,k,0.0\n")
    known = families(aiter)[FAMILY]
    table = read_family(aiter, FAMILY, known, {known.env: str(mine)}, "gfx950", 256)
    assert list(table.rows) == [("1", "8", "16")]
    assert table.sources == ("mine.csv",)


def test_rows_without_the_gfx_column_are_of_the_arch_that_has_so_many_units(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
    write(aiter / f"configs/{FAMILY}.csv", "cu_num,M,N,K,us\n256,1,8,16,5\n304,1,8,16,5\n")
    table = read_family(aiter, FAMILY, families(aiter)[FAMILY], {}, "gfx950", 256)
    assert table.cards == {"gfx950 256": 1, "gfx942 304": 1}


def test_rows_no_tuner_should_have_kept(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
    bad = "gfx950,256,1,8,16,1,-1,k,0.0\ngfx950,256,2,8,16,1,nan,k,0\ngfx950,256,4,8,16,1,5,k,0.1\n"
    write(aiter / f"configs/{FAMILY}.csv", f"{ROWS}\n{bad}gfx942,304,1,8,16,1,-1,k,0\n")
    [trap] = [f for f in look(aiter, dense()) if "usable time" in f.title]
    assert [e.detail for e in trap.evidence] == ["us -1", "us nan", "errRatio 0.1, the tuner's own limit is 0.05"]


def test_rows_of_a_card_with_other_units_do_not_count(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
    write(aiter / f"configs/{FAMILY}.csv", f"{ROWS}\ngfx950,32,64,3072,1024,1,5.0,k,0.0\n")
    assert "1 CSV families have rows of gfx950, but none of a card with 256 compute units" in titles(
        look(aiter, dense()), "trap"
    )


# --- the model's shapes ---


def test_four_bit_floats_use_triton_until_rows_and_a_file_turn_assembly_on(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
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
    aiter = tree(tmp_path)
    found = look(aiter, dense(quantization_config=FP8_BLOCK))
    assert not any(f.title.startswith("qkv") for f in found)  # N=3072-K=1024 is tuned for both sizes
    [down] = [f for f in found if f.title.startswith("down in decode")]
    assert down.title == "down in decode (M 64, N 1024, K 2048) has no row in a8w8_blockscale_tuned_gemm"
    table = {"M_LEQ_64": TILE, "any": TILE}  # m = 128 falls to "any": vLLM takes the shape for untuned
    write(aiter / "ops/triton/configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=3072-K=1024.json", table)
    assert any(f.title.startswith("qkv") for f in look(aiter, dense(quantization_config=FP8_BLOCK)))


def test_sixteen_bit_layers_ask_no_triton_table(tmp_path: Path) -> None:
    found = look(tree(tmp_path), dense())
    [qkv] = [f for f in found if f.title.startswith("qkv in prefill")]
    assert qkv.title == "qkv in prefill (M 1024, N 3072, K 1024) has no row in bf16_tuned_gemm"


def test_shares_go_by_operations_and_add_up(tmp_path: Path) -> None:
    terms = [f.terms for f in look(tree(tmp_path), dense(quantization_config=INT4 | MXFP4)) if f.terms]
    prefill = [t.share for t in terms if t.phase == "prefill"]
    assert sum(prefill) == pytest.approx(0.15)


def test_nothing_to_try_where_aiter_is_off(tmp_path: Path) -> None:
    assert titles(look(tree(tmp_path), dense(), env={"VLLM_ROCM_USE_AITER": "0"}), "opportunity") == []


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
    aiter = tree(tmp_path)
    write(tmp_path / "vllm/_aiter_ops.py", OPS.replace("2 * k_bytes", "4 * k_bytes"))
    assert any("4 x the bytes" in t for t in titles(look(aiter, dense(quantization_config=MXFP4)), "trap"))
    assert not any("the bytes" in t for t in titles(look(aiter, dense()), "trap"))


# --- what can be wrong ---


def test_an_arch_without_tables_is_one_fact(tmp_path: Path) -> None:
    aiter, old = tree(tmp_path), sheet("gfx906", lds=64 << 10, mfma=False)
    found = gemm_tables.look(dossier(card=old.card(), sheet=old, aiter=str(aiter), model=dense()))
    assert [f.title for f in found] == [
        "AITER has no GEMM table for gfx906: no JSON file, and no row in its 2 CSV families"
    ]


def test_broken_files_are_one_trap_and_never_a_crash(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
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
    aiter = tree(tmp_path)
    write(aiter / FP4 / "DEFAULT.json", {"M_LEQ_16": TILE, "M_LEQ_256": {**HUGE, "BLOCK_SIZE_K": 1024}, "any": TILE})
    [trap] = [f for f in look(aiter, dense(quantization_config=MXFP4)) if "LDS" in f.title]
    assert trap.kind == "trap"
    assert trap.evidence[0].source == f"aiter/{FP4}/DEFAULT.json#M_LEQ_256"
    assert trap.evidence[0].detail == "256x256x1024, 3 stages: 786432 bytes, 524288 with one buffer fewer"


def test_a_key_that_stands_twice_is_told(tmp_path: Path) -> None:
    aiter = tree(tmp_path)
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=8-K=8.json", '{"any": {"BLOCK_SIZE_M": 16}, "any": {"BLOCK_SIZE_M": 32}}')
    write(aiter / "ops/triton/utils/gemm_config_utils.py", "STANDARD_M_BOUNDS = (1, 16, 64)\n")
    [fact] = [f for f in look(aiter, dense()) if "never be chosen" in f.title]
    assert "any stands twice in one object; the last one counts" in [e.detail for e in fact.evidence]
    assert OWN_BOUNDS["GEMM-AFP4WFP4_PRESHUFFLED"][3] == 31
