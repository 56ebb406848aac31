"""Which fused-MoE table and which row of it a model reaches, and what the audit says of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.research.finding import Finding
from agents.research.knobs import Knob
from agents.research.model_shape import ModelShape
from agents.research.readers import moe_tables
from agents.research.tables.aiter_moe import padded_tokens
from agents.research.tables.moe_json import devices, distance, file_name, nearest, parse_name, read_table
from contracts import Lever
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.tables_examples import CORE, FP8_BLOCK, HUGE, INT4, ROCM, TILE, dense, sheet, with_experts, write
from tests.test_rooms import CHECKOUT

REAL = CHECKOUT.parent / "shared" / "data" / "vllm_moe_configs"
CONFIGS = "vllm/model_executor/layers/fused_moe/configs"
MINE = "E=8,N=768,device_name=AMD_Instinct_MI355X.json"
OAM = MINE.replace("MI355X", "MI355_OAM")
VARIABLE = "VLLM_TUNED_CONFIG_FOLDER"
MOE_TILE = {**TILE, "GROUP_SIZE_M": 1}
ROWS = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,us"
)


def tree(root: Path) -> Path:
    """vllm/ with a map of devices and no table."""
    write(root / "vllm/platforms/rocm.py", ROCM)
    (root / CONFIGS).mkdir(parents=True)
    return root / CONFIGS


def look(root: Path, model: ModelShape, arch: str = "gfx950", **more: Any) -> list[Finding]:
    held = sheet(arch) if arch == "gfx950" else sheet(arch, lds=64 << 10, mfma=False)
    engine = spec(**more)
    return moe_tables.look(
        dossier(
            card=held.card(),
            sheet=held,
            model=model,
            knobs=KNOBS.model_copy(
                update={
                    "path": str(root / "vllm"),
                    "flag_keys": {"kernel-config": ("moe_backend",)},
                    "env": {**KNOBS.env, VARIABLE: Knob(name=VARIABLE)},
                }
            ),
            aiter=str(root / "aiter"),
            spec=engine,
            workload=workload(concurrency=64, input_tokens=(1024, 1024)),
        )
    )


def one(found: list[Finding], kind: str) -> Finding:
    [held] = [f for f in found if f.kind == kind]
    return held


# --- names ---


def test_a_file_is_named_by_shape_device_and_arithmetic() -> None:
    name = file_name(128, 384, "AMD_Instinct_MI300X", "fp8_w8a8", (128, 128))
    assert name == "E=128,N=384,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json"
    held = parse_name(name)
    assert held is not None and held.file == name
    assert (held.experts, held.width, held.block, held.backend) == (128, 384, (128, 128), "")
    assert parse_name("README.json") is None


@pytest.mark.parametrize(
    ("card", "names", "sure"),
    [
        ("AMD Instinct MI355X", ("AMD_Instinct_MI355X", "AMD_Instinct_MI355_OAM"), False),
        ("AMD Instinct MI355 OAM", ("AMD_Instinct_MI355_OAM", "AMD_Instinct_MI355X"), False),
        ("AMD Instinct MI50/MI60", ("AMD_Instinct_MI50_MI60",), False),
        ("MI300X", ("AMD_Instinct_MI300X",), True),  # vLLM's own map names it
    ],
)
def test_names_that_a_card_may_have(tmp_path: Path, card: str, names: tuple[str, ...], sure: bool) -> None:
    tree(tmp_path)
    found = devices(tmp_path / "vllm", card)
    assert (found.names, found.sure, found.source) == (names, sure, "vllm/platforms/rocm.py:2")


# --- the row ---


@pytest.mark.parametrize(("m", "key"), [(1, 1), (3, 4), (24, 16), (33, 32), (70, 64), (100000, 64)])
def test_the_nearest_key_is_taken_however_far(m: int, key: int) -> None:
    assert nearest(dict.fromkeys((1, 4, 16, 32, 64)), m) == key  # of two as near, the earlier


def test_how_far_a_key_is() -> None:
    assert (distance(64, 1024), distance(64, 48), distance(8, 8)) == (16.0, 64 / 48, 1.0)


def test_a_far_key_is_an_opportunity_with_its_ratio(tmp_path: Path) -> None:
    write(tree(tmp_path) / MINE, {"triton_version": "3.4.0", "8": TILE, "64": TILE})
    write(tmp_path / CONFIGS / MINE.replace("MI355X", "MI355_OAM"), {"64": TILE})
    found = look(tmp_path, with_experts())
    assert one(found, "fact").title == "vLLM has a fused-MoE table for this model: E=8, N=768, 2 sizes"
    far = one(found, "opportunity")
    assert (
        far.title == "experts in prefill (1024 tokens) take the row of 64 tokens, 16.0 times off: the nearest there is"
    )
    assert far.evidence[0].source == f"{CONFIGS}/{MINE}#64"
    assert far.terms is not None and far.terms.speedup == 1.05
    assert "--batch-size 1024 --tune" in far.fix


def test_ranks_cut_the_width_or_with_expert_parallelism_the_number(tmp_path: Path) -> None:
    tree(tmp_path)
    flags = {"tensor-parallel-size": 4}
    assert "E=8,N=192," in look(tmp_path, with_experts(), flags=flags)[0].title
    assert "E=2,N=768," in look(tmp_path, with_experts(), flags={**flags, "enable-expert-parallel": True})[0].title


def test_eight_bit_blocks_name_their_shape(tmp_path: Path) -> None:
    tree(tmp_path)
    title = look(tmp_path, with_experts(quantization_config=FP8_BLOCK))[0].title
    assert title.endswith("device_name=AMD_Instinct_MI355X,dtype=fp8_w8a8,block_shape=[128,128].json")


def test_without_a_table_both_phases_can_be_tuned_and_another_card_lends_its_own(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    for device in ("AMD_Instinct_MI300X", "AMD_Instinct_MI350X", "NVIDIA_H200"):
        write(folder / f"E=8,N=768,device_name={device}.json", {"64": {**MOE_TILE, "num_warps": 1 + ("300" in device)}})
    # One does not fit this card, and a Radeon's wavefronts are of another width.
    write(folder / "E=8,N=768,device_name=AMD_Instinct_MI325X.json", {"64": HUGE | {"GROUP_SIZE_M": 1}})
    write(folder / "E=8,N=768,device_name=AMD_Radeon_R9700.json", {"64": MOE_TILE})
    found = look(tmp_path, with_experts())
    assert [f.title for f in found[:2]] == [
        f"experts in decode (64 tokens) run on vLLM's default tile: no fused-MoE table for {MINE}",
        f"experts in prefill (1024 tokens) run on vLLM's default tile: no fused-MoE table for {MINE}",
    ]
    lent = found[2:]
    assert [f.title.split("table E=")[1].split(": ")[1].split(" can be")[0] for f in lent] == [
        "the table of AMD_Instinct_MI350X",  # the card's own arch first
        "the table of AMD_Instinct_MI300X",
        "the table of AMD_Instinct_MI350X, for the case that the driver calls this card AMD_Instinct_MI355_OAM",
    ]
    assert [f.change and f.change.key for f in lent] == [f"{MINE}#*", f"{MINE}#*", f"{OAM}#*"]
    assert lent[0].change is not None and lent[0].change.after == {"64": {**MOE_TILE, "num_warps": 1}}
    assert [round(f.terms.probability, 2) for f in lent if f.terms] == [0.3, 0.21, 0.12]
    assert f"'tuned/{MINE}'" in lent[0].fix


def test_the_users_folder_comes_first_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    write(tree(tmp_path) / MINE, {"64": TILE, "1024": TILE})
    write(tmp_path / "mine" / MINE, {"60": TILE, "1000": TILE})
    found = look(tmp_path, with_experts(), env={"VLLM_TUNED_CONFIG_FOLDER": str(tmp_path / "mine")})
    assert [e.source for e in one(found, "fact").evidence] == [f"mine/{MINE}#60", f"mine/{MINE}#1000"]
    found = look(tmp_path, with_experts(), env={"VLLM_TUNED_CONFIG_FOLDER": str(tmp_path / "absent")})
    assert any("names no folder" in f.title for f in found)


def test_a_table_under_one_of_two_spellings_is_a_trap(tmp_path: Path) -> None:
    write(tree(tmp_path) / MINE.replace("MI355X", "MI355_OAM"), {"64": TILE, "1024": TILE})
    trap = one(look(tmp_path, with_experts()), "trap")
    assert trap.title.startswith("the fused-MoE table of this card is there under one of its 2 spellings only: ")
    assert f"copy the table to {MINE}" in trap.fix


# --- what can be wrong ---


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"64": ', "no valid JSON: Expecting value: line 1 column 8 (char 7)"),
        ('{"many": {}}', "the key 'many' is no batch size"),
        ('{"64": 3}', "the entry 64 holds no tile"),
        ('{"triton_version": "3.4.0"}', "it holds no entry"),
    ],
)
def test_a_broken_table_is_a_trap(tmp_path: Path, text: str, why: str) -> None:
    write(tree(tmp_path) / MINE, text)
    assert read_table(tmp_path / CONFIGS / MINE) == why
    found = [f for f in look(tmp_path, with_experts()) if "cannot be read" in f.title]
    assert found[0].evidence[0].detail == why


def test_tiles_that_do_not_fit_and_settings_for_matrix_cores_that_are_not_there(tmp_path: Path) -> None:
    name = "E=60,N=100,device_name=AMD_Instinct_MI50_MI60.json"
    odd = {**TILE, "BLOCK_SIZE_N": 96, "matrix_instr_nonkdim": 16}
    write(tree(tmp_path) / name, {"1": odd, "64": {**HUGE, "num_stages": 2}})
    traps = {f.title: f.evidence[0] for f in look(tmp_path, with_experts(), arch="gfx906") if f.kind == "trap"}
    assert list(traps) == [
        "1 fused-MoE entries of this card need more LDS than its 65536 bytes (estimate)",
        "1 fused-MoE entries have sizes that are no powers of two",
        "1 fused-MoE entries name matrix-core settings, and gfx906 has no matrix cores",
    ]
    assert [(e.source, e.detail) for e in traps.values()] == [
        (f"{CONFIGS}/{name}#64", "256x256x256, 2 stages: 262144 to 524288 bytes"),
        (f"{CONFIGS}/{name}#1", "BLOCK_SIZE_N 96"),
        (f"{CONFIGS}/{name}#1", "matrix_instr_nonkdim 16"),
    ]


def test_a_dense_model_or_another_kind_of_card_has_no_such_tables(tmp_path: Path) -> None:
    tree(tmp_path)
    assert look(tmp_path, dense()) == []
    assert moe_tables.look(dossier(model=with_experts())) == []  # a CPU


# --- other kernels ---


def test_a_flydsl_table_that_the_engine_does_not_ask_for(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    write(
        folder / "E=8,N=768,device_name=AMD_Instinct_MI355X,dtype=int4_w4a16,backend=flydsl.json", {"1": {"tile_m": 16}}
    )
    place = "model_executor/layers/quantization/compressed_tensors/compressed_tensors_moe/compressed_tensors_moe.py"
    model = with_experts(quantization_config=INT4)
    assert not any("FlyDSL" in f.title for f in look(tmp_path, model))  # a vLLM without the condition
    write(tmp_path / "vllm" / place, 'if (\n    on_gfx950()\n    and moe_backend == "flydsl"\n):\n')
    [found] = [f for f in look(tmp_path, model) if "FlyDSL" in f.title]
    assert found.evidence[1].source == f"vllm/{place}:3"
    assert found.change is not None
    assert (found.change.lever, found.change.after) == (Lever.ENGINE_FLAG, {"moe_backend": "flydsl"})
    assert not any("FlyDSL" in f.title for f in look(tmp_path, model, flags={"kernel-config": found.change.after}))


def test_aiters_fused_moe_asks_its_csv_instead(tmp_path: Path) -> None:
    tree(tmp_path)
    write(tmp_path / "aiter/jit/core.py", CORE)
    cells = "ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,9.0"
    write(tmp_path / "aiter/configs/tuned_fmoe.csv", f"{ROWS}\n256,64,1024,768,8,2,{cells}\n")
    found = look(tmp_path, with_experts(), env={"VLLM_ROCM_USE_AITER": "1"})
    assert one(found, "fact").title == "AITER's fused MoE serves the experts: 1 of 2 lookups find a row"
    assert one(found, "fact").evidence[0].source == "aiter/configs/tuned_fmoe.csv:2"
    assert one(found, "opportunity").title == "experts in prefill (1024 tokens) have no row in AITER's tuned_fmoe"
    assert "1024,1024,768,8,2,ActivationType.Silu" in one(found, "opportunity").fix
    # 4-bit whole numbers stay with vLLM's own kernel
    held = look(tmp_path, with_experts(quantization_config=INT4), env={"VLLM_ROCM_USE_AITER": "1"})
    assert "int4_w4a16" in held[0].title


def test_tokens_as_aiters_fused_moe_counts_them() -> None:
    assert [padded_tokens(m) for m in (1, 3, 64, 65, 40000, 200000)] == [1, 4, 64, 128, 32768, 131072]


def test_a_triton_moe_table_without_one_of_its_three_sizes(tmp_path: Path) -> None:
    tree(tmp_path)
    write(tmp_path / "aiter/ops/triton/configs/moe/gfx950-MOE-DEFAULT.json", {"small_M": TILE, "large_M": TILE})
    trap = one(look(tmp_path, with_experts()), "trap")
    assert trap.title == "1 of AITER's Triton MoE tables of gfx950 cannot answer every step"
    assert trap.evidence[0].detail == "has no medium_M"


@pytest.mark.skipif(not REAL.is_dir(), reason=f"needs real vLLM tables in {REAL}")
def test_a_real_table_is_found_for_384_experts_on_eight_ranks(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    for path in REAL.glob("E=*.json"):
        shutil.copy(path, folder / path.name)
    model = with_experts(num_experts=384, num_experts_per_tok=8, moe_intermediate_size=2048, quantization_config=INT4)
    found = look(tmp_path, model, flags={"tensor-parallel-size": 8})
    name = "E=384,N=256,device_name=AMD_Instinct_MI355X,dtype=int4_w4a16.json"
    fact, trap = one(found, "fact"), one(found, "trap")
    assert [e.source for e in fact.evidence] == [f"{CONFIGS}/{name}#64", f"{CONFIGS}/{name}#1024"]
    assert trap.title.endswith(name)  # its twin, MI355_OAM, is not among the samples


FAMILY = """
def get_config_file_name(E, N, dtype, block_shape=None):
    device_name = current_platform.get_device_name().replace(" ", "_")
    if "H200" in device_name.split("_"):
        device_name = "NVIDIA_H200"
    old_names = ["Instinct_MI50", "Radeon_VII"]
    if any(s in device_name for s in old_names):
        device_name = "AMD_OLD"
    return f"E={E},N={N},device_name={device_name}.json"


def get_moe_configs(E, N): ...
"""


def test_a_fork_may_call_all_cards_of_a_kind_the_same(tmp_path: Path) -> None:
    asks = tmp_path / "vllm/model_executor/layers/fused_moe/fused_moe.py"
    asks.parent.mkdir(parents=True)
    asks.write_text(FAMILY)
    found = devices(tmp_path / "vllm", "AMD Radeon Instinct MI50 (32 GB)")
    assert (found.names, found.sure) == (("AMD_OLD",), True)
    assert found.source == "vllm/model_executor/layers/fused_moe/fused_moe.py:7"
    assert devices(tmp_path / "vllm", "AMD Instinct MI100").names == ("AMD_Instinct_MI100",)
    for broken in (FAMILY.replace('["Instinct_MI50", "Radeon_VII"]', "known()"), FAMILY.replace("None):", "None)")):
        asks.write_text(broken)
        assert not devices(tmp_path / "vllm", "AMD Radeon Instinct MI50 (32 GB)").sure
