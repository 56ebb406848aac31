"""On real trees of vLLM and AITER: what the readers propose is what that project's own lookup then finds.

One row or table of each kind goes the whole way: found by the reader, taken by the static check, laid out by the lever,
and resolved by the project's own code run from the overlay, which answers otherwise without it. What stands in for a
card is said in test_real_trees.py. The stock attention table is not in AITER's release on PyPI: it is a file of the
test data, laid over a copy of the tree.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import Dossier
from agents.research.readers import READERS
from agents.research.subject import Asked, subject
from agents.tuning.apply import apply
from agents.tuning.levers import aiter_json
from agents.tuning.placing import place
from agents.tuning.static_check import static_check
from contracts import Change, Lever
from engine.placement import Placement
from tests.agents.tables_examples import FP8_BLOCK, MXFP4
from tests.agents.test_attention_tables import stock
from tests.agents.test_real_trees import ATTENTION, BEFORE, CSV, MOE_BY_SOURCE, ask, site
from tests.real_trees import aiter_trees, tree
from tests.test_rooms import CHECKOUT

MODELS = CHECKOUT / "configs" / "models"
pytestmark = pytest.mark.engine_python


def asked(tmp_path: Path, model: str, vllm: Path, aiter: Path | None = None, **more: Any) -> Dossier:
    """An MI355X that serves one of the public families, 48 requests at a time. `quant`: another arithmetic."""
    config = json.loads((MODELS / f"{model}.json").read_text()) | {"quantization_config": more.pop("quant", {})}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return subject(Asked(arch="gfx950", model=path, vllm=vllm, aiter=aiter, concurrency=48, input_tokens=9500, **more))


def proposed(dossier: Dossier, reader: str, key: str) -> list[Change]:
    """What the reader proposes under keys that hold this text; every one passes the static check."""
    assert READERS[reader].for_nights
    found = [h.change for h in READERS[reader].hypotheses(dossier) if key in h.change.key]
    assert found
    assert [static_check(c, dossier.spec, dossier.knobs, subject=dossier) for c in found] == [None] * len(found)
    return found


def laid(dossier: Dossier, change: Change, python: str, folder: Path) -> Placement:
    spec = dossier.spec.model_copy(update={"python": python})
    return place(apply(spec, change), folder / "placed")


@pytest.mark.parametrize("name", ["vllm-0.30.0", "vllm-0.33.0"])
def test_a_borrowed_moe_table_is_the_one_that_vllm_takes(name: str, tmp_path: Path) -> None:
    folder = tree(name)
    here = asked(tmp_path, "experts_30b_a3b", folder / "vllm")
    python = site(tmp_path / "bin" / "python", folder)
    change = proposed(here, "moe_tables", "E=128,N=768,device_name=AMD_Instinct_MI355X.json#*")[0]
    spec = here.spec.model_copy(update={"python": python, "env": {"STANDIN_DEVICE": "AMD_Instinct_MI355X"}})
    question = (MOE_BY_SOURCE, "128", "768", "", "48")
    assert ask(spec, Placement(), *question, folder=tmp_path)["found"] is None
    table = change.after
    assert isinstance(table, dict)
    nearest = min(table, key=lambda size: abs(int(size) - 48))
    found = ask(spec, laid(here, change, python, tmp_path), *question, folder=tmp_path)["found"]
    assert found == table[nearest]


@pytest.mark.parametrize("name", ["vllm-0.33.0"])
def test_a_row_by_vllms_own_rule_is_the_one_that_vllm_takes(name: str, tmp_path: Path) -> None:
    """An H200 has a table of these experts up to 4096 tokens; a prompt's step has 8192."""
    folder = tree(name)
    here = asked(tmp_path, "experts_30b_a3b", folder / "vllm")
    h200 = subject(Asked(arch="sm_90", model=tmp_path / "config.json", vllm=folder / "vllm", input_tokens=9500))
    python = site(tmp_path / "bin" / "python", folder)
    [change] = proposed(h200, "moe_tables", "E=128,N=768,device_name=NVIDIA_H200.json#8192")
    spec = here.spec.model_copy(update={"python": python, "env": {"STANDIN_DEVICE": "NVIDIA_H200"}})
    question = (MOE_BY_SOURCE, "128", "768", "", "8192")
    plain = ask(spec, Placement(), *question, folder=tmp_path)["found"]
    changed = ask(spec, laid(h200, change, python, tmp_path), *question, folder=tmp_path)["found"]
    assert changed == change.after != plain


@pytest.fixture(params=aiter_trees())
def aiter(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    folder = tree(request.param)
    return site(tmp_path / "bin" / "python", folder), folder / "aiter"


NESTED = """
m, n, k = map(int, sys.argv[2:5])
from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config
print("found:" + json.dumps(get_gemm_config(sys.argv[1], m, n, k)[0]))
"""


def test_a_borrowed_gemm_table_is_the_one_that_aiter_takes(aiter: tuple[str, Path], tmp_path: Path) -> None:
    python, package = aiter
    if not (package / "ops/triton/utils/gemm_config_utils.py").is_file():
        pytest.skip("this AITER has no shared lookup, and no table with rows that the reader can follow")
    here = asked(tmp_path, "dense_gqa_32b", tree("vllm-0.33.0") / "vllm", package, quant=MXFP4)
    change = proposed(here, "gemm_tables", "GEMM-AFP4WFP4-N=7168-K=5120.json#*")[0]
    question = (BEFORE + NESTED, "GEMM-AFP4WFP4", "9500", "7168", "5120")
    plain = ask(here.spec.model_copy(update={"python": python}), Placement(), *question, folder=tmp_path)["found"]
    spec = here.spec.model_copy(update={"python": python})
    changed = ask(spec, laid(here, change, python, tmp_path), *question, folder=tmp_path)["found"]
    assert isinstance(change.after, dict)
    tiles = [tile for tile in change.after.values() if isinstance(tile, dict)]
    assert any(tile.items() <= changed.items() for tile in tiles)
    assert changed != plain


def test_a_copied_csv_row_is_the_one_that_aiter_takes(aiter: tuple[str, Path], tmp_path: Path) -> None:
    """The family of 4-bit floats, as the other test asks it: rows of the nearest size of a shape that has some."""
    from agents.research.tables.csv_rows import Families, csv_rows
    from agents.research.tables.gemm_csv import families

    python, package = aiter
    here = asked(tmp_path, "dense_gqa_32b", tree("vllm-0.33.0") / "vllm", package, quant=FP8_BLOCK)
    family, card = "a4w4_blockscale_tuned_gemm", {"cu_num": "256", "gfx": "gfx950"}
    tables = Families(package, families(package), {})
    merged = tables.get(family)
    assert merged is not None
    held = [dict(zip(merged.columns, row, strict=True)) for row in merged.rows]
    mine = next(r for r in held if r["cu_num"] == "256" and int(r["M"]) >= 32)
    shape = {"N": mine["N"], "K": mine["K"], **card}
    sizes = {int(r["M"]) for r in held if (r["N"], r["K"]) == (mine["N"], mine["K"])}
    size = next(m for m in range(33, 4096) if m not in sizes)
    one = csv_rows(tables, family, ("M", size), shape, {})[0]
    change = Change(lever=Lever.AITER_CSV, key=one.key, after=one.row)
    assert static_check(change, here.spec, here.knobs) is None
    spec = here.spec.model_copy(update={"python": python})
    question = (BEFORE + CSV, str(size), mine["N"], mine["K"])
    found = ask(spec, laid(here, change, python, tmp_path), *question, folder=tmp_path)["found"]["row"]
    assert isinstance(one.row, dict) and {c: found[c] for c in one.row} == one.row
    plain = ask(spec, Placement(), *question, folder=tmp_path)["found"]["row"]
    assert plain is None or plain != found


def test_an_attention_entry_is_the_one_that_aiter_takes(aiter: tuple[str, Path], tmp_path: Path) -> None:
    """Where this AITER has its tiles in a table: the lever lays the proposed row, and AITER's own lookup finds it."""
    python, package = aiter
    loader = package / "ops/triton/utils/unified_attention_utils.py"
    if not loader.is_file() or "schema" not in loader.read_text():
        pytest.skip("this AITER picks attention tiles in Python, or by another layout of its table")
    copy = tmp_path / "copied" / "aiter"
    shutil.copytree(package, copy)
    file = "gfx950/triton/attention/unified_attention/DEFAULT.json"
    (copy / "ops/triton/configs" / file).parent.mkdir(parents=True, exist_ok=True)
    (copy / "ops/triton/configs" / file).write_text(json.dumps(stock()))
    python = site(tmp_path / "bin2" / "python", copy.parent)
    flags = {"kv-cache-dtype": "fp8", "attention-backend": "ROCM_AITER_UNIFIED_ATTN"}
    here = asked(tmp_path, "windows_256_512_31b", tree("vllm-0.33.0") / "vllm", copy, flags=flags)
    change = proposed(here, "attention_tables", f"{file}#attn_2d/D_GEQ_512")[0]
    assert aiter_json.row_fault(copy, change.key, change.after) is None
    call = {"head_size": 512, "max_seqlen_q": 9500, "max_seqlen_k": 9500, "sliding_window": 0, "block_size": 64,
            "shuffled_kv_cache": False, "q_dtype": "float8_e4m3fn", "kv_cache_dtype": "float8_e4m3fn"}  # fmt: skip
    question = (BEFORE + ATTENTION, "attn_2d", json.dumps(call))
    spec = here.spec.model_copy(update={"python": python})
    assert ask(spec, Placement(), *question, folder=tmp_path)["found"]["BLOCK_M"] == 16
    found = ask(spec, laid(here, change, python, tmp_path), *question, folder=tmp_path)["found"]
    assert isinstance(change.after, dict) and found["BLOCK_M"] == change.after["BLOCK_M"] == 128
