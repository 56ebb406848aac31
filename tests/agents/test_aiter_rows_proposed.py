"""Rows of AITER's GEMM and fused-MoE tables that the readers propose to a night."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import Dossier
from agents.research.finding import Finding
from agents.research.model_shape import ModelShape
from agents.research.rank import research
from agents.research.readers import READERS, gemm_tables, moe_tables
from agents.stages.opening import aiter_of
from agents.tuning.apply import apply
from agents.tuning.packages import _find
from agents.tuning.static_check import static_check
from cards.sheet import read_sheet
from contracts import Change, Container, Lever
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.tables_examples import (
    CORE,
    FAMILY,
    FP4,
    HUGE,
    MXFP4,
    ROWS,
    TILE,
    dense,
    gemm_tree,
    sheet,
    with_experts,
    write,
)
from tests.agents.test_table_levers import engine

NESTED = FP4.removeprefix("ops/triton/configs/")
BOUNDS = "STANDARD_M_BOUNDS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)\n"
FMOE = "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"


def subject(aiter: Path, model: ModelShape, tokens: int = 1024, **env: str) -> Dossier:
    held = sheet()
    return dossier(
        card=held.card(),
        sheet=held,
        aiter=str(aiter),
        model=model,
        knobs=KNOBS.model_copy(update={"path": str(aiter.parent / "vllm")}),
        spec=spec(env={"VLLM_ROCM_USE_AITER": "1", **env}),
        workload=workload(concurrency=64, input_tokens=(tokens, tokens)),
    )


def of(found: list[Finding], start: str) -> list[Change]:
    return [f.change for f in found if f.title.startswith(start) and f.change is not None]


def warps(tile: dict[str, Any], count: int) -> dict[str, Any]:
    return {**tile, "num_warps": count}


def test_a_size_that_falls_to_a_far_row_gets_the_tile_of_the_bound_below(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / "ops/triton/utils/gemm_config_utils.py", BOUNDS)
    own = {"M_LEQ_16": TILE, "M_LEQ_32": warps(TILE, 1), "M_LEQ_256": warps(TILE, 8), "any": TILE}
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=1024-K=1024.json", {"M_LEQ_512": warps(TILE, 2), "any": TILE})
    write(aiter / FP4 / "DEFAULT.json", own)
    here = subject(aiter, dense(quantization_config=MXFP4))
    found = gemm_tables.look(here)
    # Attention out, [1024, 1024], 1024 tokens: "any" of its own file; the bound below is 512.
    assert of(found, "attention out in prefill") == [
        Change(
            lever=Lever.AITER_JSON,
            key=f"{NESTED}/GEMM-AFP4WFP4-N=1024-K=1024.json#M_LEQ_1024",
            after=warps(TILE, 2),
        )
    ]
    # qkv, [3072, 1024], 64 tokens: M_LEQ_256 of the default file answers; the row for 64 is copied from 32.
    [copied] = of(found, "qkv in decode")
    assert (copied.key, copied.after) == (f"{NESTED}/DEFAULT.json#M_LEQ_64", warps(TILE, 1))
    assert static_check(copied, here.spec, here.knobs) is None
    # N 1024, K 2048 has no table and one twice as narrow has: the whole of it, under its own name.
    assert f"{NESTED}/GEMM-AFP4WFP4-N=1024-K=2048.json#*" in {c.key for c in of(found, "down in decode")}


def test_a_tile_that_does_not_fit_the_card_is_not_copied(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    write(aiter / "ops/triton/utils/gemm_config_utils.py", BOUNDS)
    big = {**HUGE, "BLOCK_SIZE_K": 1024}
    write(aiter / FP4 / "DEFAULT.json", {"M_LEQ_32": big, "M_LEQ_256": TILE, "any": TILE})
    found = gemm_tables.look(subject(aiter, dense(quantization_config=MXFP4)))
    [qkv] = [f for f in found if f.title.startswith("qkv in decode")]
    assert qkv.change is None and "M_LEQ_64 of" in qkv.fix


def test_a_product_without_a_row_gets_the_kernel_of_the_nearest_sizes(tmp_path: Path) -> None:
    aiter = gemm_tree(tmp_path)
    head = ROWS.replace("kernelName", "splitK,kernelName")
    rows = [(512, 3, "k3"), (2048, 4, "k4"), (65536, 5, "k5")]
    lines = "".join(f"gfx950,256,{m},3072,1024,{number},9.5,0,{name},0.0\n" for m, number, name in rows)
    shuffled = {"M_LEQ_64": TILE, "M_LEQ_128": TILE, "any": TILE}
    probes = "".join(f"gfx950,256,{m},3072,1024,1,5.0,0,k,0.0\n" for m in (1024, 8192))
    write(aiter / f"{FP4}_preshuffled/DEFAULT.json", {"any": TILE})
    write(aiter / f"{FP4}_preshuffled/GEMM-AFP4WFP4_PRESHUFFLED-N=3072-K=1024.json", shuffled)
    write(aiter / f"configs/{FAMILY}.csv", f"{head}\n{lines}{probes}")
    here = subject(aiter, dense(quantization_config=MXFP4), tokens=700)
    found = of(gemm_tables.look(here), "qkv in prefill")
    assert found == []  # 700 is rounded up to 704, then to 1024, which has a row
    here = subject(aiter, dense(quantization_config=MXFP4), tokens=3000)
    found = of(gemm_tables.look(here), "qkv in prefill")
    key = f"{FAMILY}#gfx=gfx950,cu_num=256,M=3008,N=3072,K=1024"
    assert [(c.lever, c.key) for c in found] == [(Lever.AITER_CSV, key)] * 2
    assert found[0].after == {"kernelId": 4, "splitK": 0, "kernelName": "k4"}  # 2048; then 8192, as near as 1024
    assert static_check(found[0], here.spec, here.knobs) is None
    # Kept, it is not proposed again.
    assert READERS["gemm_tables"].for_nights
    kept = here.model_copy(update={"spec": apply(here.spec, found[0])})
    again = [h.change for h in research(kept, ["gemm_tables"]).hypotheses]
    assert found[0].after not in [c.after for c in again if c.key == key]


def test_a_night_finds_the_aiter_beside_its_engines_interpreter(tmp_path: Path) -> None:
    """No AITER, an image and a card of another maker are no fault: there is nothing to look into."""
    here, card = engine(tmp_path), sheet().card()
    assert aiter_of(here, card) == ""
    write(gemm_tree(tmp_path) / "__init__.py", "")
    _find.cache_clear()  # the answer is kept for the life of a process
    assert aiter_of(here, card) == str(tmp_path / "aiter")
    assert aiter_of(here, read_sheet("sm_90").card()) == ""
    assert aiter_of(here.model_copy(update={"container": Container(image="rocm/vllm:x")}), card) == ""
    assert aiter_of(here.model_copy(update={"python": "/nowhere/python"}), card) == ""


def test_experts_without_a_row_get_the_kernels_of_the_nearest_step(tmp_path: Path) -> None:
    aiter = tmp_path / "aiter"
    write(aiter / "jit/core.py", CORE)
    (tmp_path / "vllm/model_executor").mkdir(parents=True)
    kind = "torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0"
    rows = [
        f"256,{token},1024,768,8,2,ActivationType.{act},{kind},{block},9.5,stage1_{act}"
        for token, act, block in ((64, "Silu", 16), (512, "Silu", 32), (512, "Gelu", 64))
    ]
    write(aiter / "configs/tuned_fmoe.csv", f"{FMOE},block_m,us,kernelName1\n" + "\n".join(rows) + "\n")
    write(aiter / "configs/untuned_fmoe.csv", FMOE.removeprefix("cu_num,") + "\n")
    here = subject(aiter, with_experts())
    found = of(moe_tables.look(here), "experts in prefill")
    assert found[0].key.startswith(
        "tuned_fmoe#cu_num=256,token=1024,model_dim=1024,inter_dim=768,expert=8,topk=2,act_type="
    )
    assert found[0].after == {"block_m": 32, "kernelName1": "stage1_Silu"}
    assert static_check(found[0], here.spec, here.knobs) is None


@pytest.mark.parametrize("cell", ["9" * 400, "9" * 5000, "-3", "nan", "1e9", ""])
def test_a_size_that_is_none_costs_its_own_row_only(tmp_path: Path, cell: str) -> None:
    aiter = tmp_path / "aiter"
    write(aiter / "jit/core.py", CORE)
    (tmp_path / "vllm/model_executor").mkdir(parents=True)
    kind = "torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0"
    rows = [f"256,{token},1024,768,8,2,ActivationType.Silu,{kind},32,9.5,k" for token in (cell, "512")]
    write(aiter / "configs/tuned_fmoe.csv", f"{FMOE},block_m,us,kernelName1\n" + "\n".join(rows) + "\n")
    write(aiter / "configs/untuned_fmoe.csv", FMOE.removeprefix("cu_num,") + "\n")
    [found] = of(moe_tables.look(subject(aiter, with_experts())), "experts in prefill")
    assert "token=1024" in found.key and found.after == {"block_m": 32, "kernelName1": "k"}


def test_a_nan_deep_in_a_table_is_no_hypothesis(tmp_path: Path) -> None:
    """json.loads takes NaN; the ledger, which is JSON, does not."""
    aiter = gemm_tree(tmp_path)
    write(aiter / "ops/triton/utils/gemm_config_utils.py", BOUNDS)
    bad = {**TILE, "x": {"y": [math.nan]}}
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=1024-K=1024.json", {"M_LEQ_512": bad, "any": {**bad, "num_warps": 1}})
    write(aiter / FP4 / "DEFAULT.json", {"M_LEQ_16": TILE, "M_LEQ_32": warps(TILE, 1), "any": TILE})
    here = subject(aiter, dense(quantization_config=MXFP4))
    said = research(here, ["gemm_tables"])
    assert any("NaN" in line for line in said.dropped)
    assert said.hypotheses
    for h in said.hypotheses:
        json.dumps(h.model_dump(mode="json"), allow_nan=False)
