"""Lookups in AITER's GEMM tables, and what is estimated from a table alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.research.tables.gemm_csv import families, find, read_family
from agents.research.tables.gemm_json import chosen, lookup, never_chosen, new_bucket, read_gemm_tables
from agents.research.tables.lds import lds_need, not_powers_of_two, operand_bits
from agents.research.tables.quant_scheme import dense_scheme, expert_scheme
from agents.research.tables.steps import steps
from tests.agents.examples import dossier, spec, workload
from tests.agents.tables_examples import FAMILY, FP4, FP8_BLOCK, INT4, MXFP4, TILE, gemm_tree, with_experts, write
from tests.test_rooms import CHECKOUT

REAL = CHECKOUT.parent / "shared" / "data" / "aiter_configs"
real_tables = pytest.mark.skipif(not REAL.is_dir(), reason=f"needs real AITER tables in {REAL}")

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
    tables = read_gemm_tables(gemm_tree(tmp_path), "gfx950")
    nested = lookup(tables, "GEMM-AFP4WFP4", 40, 1024, 1024)
    assert nested is not None
    assert (nested.row, nested.tuned) == (f"aiter/{FP4}/GEMM-AFP4WFP4-N=1024-K=1024.json#M_LEQ_64", True)
    flat = lookup(tables, "GEMM-A8W8_BLOCKSCALE", 40, 7, 7)
    assert flat is not None
    assert (flat.row, flat.tuned) == ("aiter/ops/triton/configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json#any", False)
    assert lookup(tables, "GEMM-A16W16", 40) is None  # no default file: AITER raises
    assert new_bucket(tables, "GEMM-AFP4WFP4", 40) == "M_LEQ_64"


def test_any_does_not_count_as_tuned_even_in_a_file_of_the_shape(tmp_path: Path) -> None:
    found = lookup(read_gemm_tables(gemm_tree(tmp_path), "gfx950"), "GEMM-AFP4WFP4", 1000, 1024, 1024)
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
    aiter = gemm_tree(tmp_path)
    shutil.copy(REAL / "dsv3_a4w4_blockscale_tuned_gemm.csv", aiter / "configs/a4w4_blockscale_tuned_gemm.csv")
    table = read_family(aiter, FAMILY, families(aiter)[FAMILY], {}, "gfx950", 256)
    assert (len(table.rows), table.repeated_count, table.bad_count, table.cards) == (30, 0, 0, {"gfx950 256": 30})
    assert str(find(table, 1, 7168, 4608)) == "aiter/configs/a4w4_blockscale_tuned_gemm.csv:2"
    assert find(table, 1, 7168, 4609) is None


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
