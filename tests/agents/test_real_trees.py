"""On real trees of vLLM and AITER: what a lever lays out is what that project's own lookup code then finds.

Nothing of the lookups is re-told here: they run in a process of the engine's interpreter, from the tree as it would be
found, once without the change and once with it. No card is needed for a lookup; what stands in for one is said where it
is made. Trees are fetched by `make trees`; AITER's newer ones come in by NIGHTGATE_REAL_TREES (tests/real_trees.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.research.tables.gemm_csv import families, head_of, rows_of
from agents.research.tables.gemm_json import flat_prefix
from agents.tuning.levers import LEVERS, aiter_csv, aiter_json, moe_table
from agents.tuning.placing import place
from contracts import EngineSpec, Lever
from engine.placement import Placement
from tests.real import engine_python
from tests.real_trees import FOLDER, aiter_trees, tree

ARCH, UNITS, DEVICE = "gfx950", 256, "AMD_Instinct_MI300X"

# Stands in for the card in AITER's lookups: Triton's driver says gfx950. The packages' own __init__ files, which load
# compiled kernels, stand empty, so a lookup's module is imported alone, from wherever the interpreter finds `aiter`.
BEFORE = """
import importlib, importlib.machinery, importlib.util, json, logging, os, sys, types
import triton
from triton.backends.compiler import GPUTarget
class Driver:
    def get_current_target(self): return GPUTarget("hip", os.environ["STANDIN_ARCH"], 64)
triton.runtime.driver.set_active(Driver())
root = list(importlib.util.find_spec("aiter").submodule_search_locations)[0]
for name in ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton._triton_kernels"):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = [os.path.join(root, *name.split(".")[1:])]
    module.__spec__.submodule_search_locations = module.__path__
    sys.modules[name] = module
log = logging.getLogger("aiter")
log.setLevel(logging.INFO)
log.addHandler(logging.StreamHandler())
sys.modules["aiter"].logger = log
"""
GEMM = """
m, n, k = map(int, sys.argv[1:4])
if os.path.exists(os.path.join(root, "ops/triton/utils/gemm_config_utils.py")):
    from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config
    found, _ = get_gemm_config("GEMM-A16W16", m, n, k)
else:
    found = importlib.import_module("aiter.ops.triton._triton_kernels.gemm_a16w16")._get_config(m, n, k)
    found = found[0] if isinstance(found, tuple) else found
print("found:" + json.dumps(found))
"""
ATTENTION = """
import torch
from aiter.ops.triton.utils import unified_attention_utils as ua
given = json.loads(sys.argv[2])
given |= {name: getattr(torch, given[name]) for name in ("q_dtype", "kv_cache_dtype")}
print("found:" + json.dumps(ua.get_unified_attention_config(sys.argv[1], types.SimpleNamespace(**given))))
"""
# Where AITER would merge CSV files into a folder that all engines of a machine share, the file goes into the test's own
# folder instead, and is named: a test must not change what an engine that runs here reads.
CSV = """
import pandas as pd
shared, own = [], os.environ["STANDIN_TMP"]
write, read = pd.DataFrame.to_csv, pd.read_csv
def moved(path): return os.path.join(own, os.path.basename(str(path)).removesuffix(".tmp"))
def to_csv(self, path=None, *a, **k):
    if str(path).startswith("/tmp/aiter_configs/") or os.path.dirname(str(path)) == "/tmp":
        shared.append(os.path.basename(moved(path)))
        return write(self, moved(path), *a, **k)
    return write(self, path, *a, **k)
def read_csv(path, *a, **k):
    there = moved(path)
    return read(there if os.path.basename(there) in shared and str(path).startswith("/tmp") else path, *a, **k)
pd.DataFrame.to_csv, pd.read_csv = to_csv, read_csv
replace = os.replace
os.replace = lambda a, b: None if str(b).startswith("/tmp/aiter_configs/") else replace(a, b)
# Compiled code stands in as well: two enumerations, and the rounding of M, asked only where M itself has no row.
from unittest.mock import MagicMock
sys.modules["aiter.ops.enum"] = MagicMock()
sys.modules["aiter.ops.gemm_op_common"] = types.SimpleNamespace(get_padded_m=lambda M, N, K, gl: M)
from aiter.ops import gemm_op_a4w4
found = gemm_op_a4w4.get_GEMM_config(*map(int, sys.argv[1:4]))
print("found:" + json.dumps({"row": found, "shared": sorted(set(shared))}))
"""


def site(python: Path, folder: Path) -> str:
    """An interpreter that finds the packages of `folder`, as one with that site-packages does. The folder goes behind
    all else by a .pth-like start: a wrapper that adds it to the end of the path."""
    wrapper = python.parent.parent / "engine-python"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{folder}" exec {engine_python()} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def ask(spec: EngineSpec, placement: Placement, code: str, *arguments: str, folder: Path) -> Any:
    """What the code finds in a process with the engine's environment. ROCm's programs that AITER asks for the card and
    its own version are stand-ins."""
    standin = folder / "standin"
    standin.mkdir(exist_ok=True)
    (standin / "rocminfo").write_text(f"#!/bin/sh\nprintf 'Agent 1\\n  Name: {ARCH}\\n  Device Type: GPU\\n"
                                      f"  Compute Unit: {UNITS}\\n'\n")  # fmt: skip
    (standin / "hipconfig").write_text("#!/bin/sh\necho 7.0.0\n")
    for program in standin.iterdir():
        program.chmod(0o755)
    own = {"PATH": f"{standin}:{os.environ['PATH']}", "HOME": str(folder), "STANDIN_ARCH": ARCH,
           "ROCM_HOME": "/nowhere", "GPU_ARCHS": ARCH, "CU_NUM": str(UNITS), "STANDIN_TMP": str(standin),
           "PYTHONDONTWRITEBYTECODE": "1",
           "AITER_JIT_DIR": str(standin / "jit")}  # fmt: skip
    path = [*placement.python_path, str(FOLDER / "pandas")]
    done = subprocess.run(
        [spec.python, "-c", code, *arguments],
        env=own | spec.env | placement.env | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True, text=True, cwd=standin, timeout=250, check=False,
    )  # fmt: skip
    answer = [line.removeprefix("found:") for line in done.stdout.splitlines() if line.startswith("found:")]
    assert answer, done.stderr[-3000:]
    return {"found": json.loads(answer[-1]), "log": done.stderr + done.stdout}


def digest(folder: Path) -> str:
    """Of all files' names and contents: an installed tree before and after."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def shared_places() -> dict[str, tuple[int, int]]:
    """What lies where AITER puts merged tables for all engines of a machine."""
    places = [*Path("/tmp/aiter_configs").glob("*"), *Path("/tmp").glob("*tuned*.csv")]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in places}


def laid(lever: Lever, rows: Mapping[str, Any], python: str, folder: Path) -> tuple[EngineSpec, Placement]:
    spec = EngineSpec(python=python, model="m")
    for key, value in rows.items():
        assert LEVERS[lever].normalise(key) == key
        spec = LEVERS[lever].write(spec, key, value)
    return spec, place(spec, folder / "placed")


# --- vLLM ---

# From a bare source tree the module cannot be imported (it needs the compiled parts), so its two functions are taken
# out of it by their syntax tree and run with the tree's own envs.py. What stands in: the logger, and the card's name.
MOE_BY_SOURCE = """
import ast, functools, importlib.util, json, os, sys, types
root = list(importlib.util.find_spec("vllm").submodule_search_locations)[0]
path = os.path.join(root, "model_executor/layers/fused_moe/fused_moe.py")
spec = importlib.util.spec_from_file_location("envs", os.path.join(root, "envs.py"))
envs = importlib.util.module_from_spec(spec); sys.modules["envs"] = envs; spec.loader.exec_module(envs)
class Logger:
    def info_once(self, text, *values, **more): print(text % values)
    warning_once = info_once
given = {"functools": functools, "os": os, "json": json, "envs": envs, "logger": Logger(), "Any": object,
         "__file__": path, "get_device_name_as_file_name": lambda: os.environ["STANDIN_DEVICE"]}
tree = ast.parse(open(path).read())
wanted = ("get_config_file_name", "get_moe_configs")
tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
exec(compile(tree, path, "exec"), given)
e, n, dtype, m = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None, int(sys.argv[4])
found = given["get_moe_configs"](e, n, dtype)
print("found:" + json.dumps(found and found[min(found, key=lambda key: abs(key - m))]))
"""
# The installed vLLM is imported as it is. The card's name stands in; its log goes to standard error.
MOE_BY_IMPORT = """
import json, logging, os, sys
logging.basicConfig(level=logging.INFO)
from vllm.model_executor.layers.fused_moe import fused_moe
fused_moe.get_device_name_as_file_name = lambda: os.environ["STANDIN_DEVICE"]
e, n, dtype, m = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None, int(sys.argv[4])
found = fused_moe.get_moe_configs(e, n, dtype)
print("found:" + json.dumps(found and found[min(found, key=lambda key: abs(key - m))]))
"""
FILE = f"E=8,N=14336,device_name={DEVICE}.json"
TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 2, "num_warps": 2, "num_stages": 1}


@pytest.fixture(params=["vllm-0.30.0", "vllm-0.33.0", "installed"])
def vllm(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Path]:
    """(interpreter, how it is asked, the folder of its package)"""
    if request.param == "installed":
        python = engine_python()
        asked = [python, "-c", "import importlib.util as u; print(u.find_spec('vllm').origin)"]
        origin = subprocess.run(asked, capture_output=True, text=True, check=True, cwd="/").stdout.strip()
        return python, MOE_BY_IMPORT, Path(origin).parent
    folder = tree(request.param)
    return site(tmp_path / "bin" / "python", folder), MOE_BY_SOURCE, folder / "vllm"


@pytest.mark.engine_python
def test_vllm_takes_the_changed_row_and_the_old_one_without_it(vllm: tuple[str, str, Path], tmp_path: Path) -> None:
    python, code, package = vllm
    table = package / "model_executor/layers/fused_moe/configs" / FILE
    before, held = digest(table.parent), json.loads(table.read_text())
    spec, placement = laid(Lever.MOE_TABLE, {f"{FILE}#16": TILE}, python, tmp_path)
    here = spec.model_copy(update={"env": {"STANDIN_DEVICE": DEVICE}})
    plain = ask(here, Placement(), code, "8", "14336", "", "16", folder=tmp_path)
    changed = ask(here, placement, code, "8", "14336", "", "16", folder=tmp_path)
    other = ask(here, placement, code, "8", "14336", "", "64", folder=tmp_path)
    assert plain["found"] == held["16"] != TILE
    assert changed["found"] == TILE
    assert other["found"] == held["64"]  # one row, and no other
    name = moe_table.folder_name(spec.overlay[Lever.MOE_TABLE])
    line = f"/{name}/{FILE} for MoE layer."
    assert line in changed["log"] and line not in plain["log"]
    assert digest(table.parent) == before


@pytest.mark.engine_python
def test_vllm_has_no_table_of_a_shape_until_a_whole_one_is_laid(vllm: tuple[str, str, Path], tmp_path: Path) -> None:
    python, code, _ = vllm
    file = f"E=3,N=96,device_name={DEVICE},dtype=int4_w4a16.json"
    table = {"1": TILE, "64": {**TILE, "num_warps": 4}}
    spec, placement = laid(Lever.MOE_TABLE, {f"{file}#*": table}, python, tmp_path)
    here = spec.model_copy(update={"env": {"STANDIN_DEVICE": DEVICE}})
    asked = ("3", "96", "int4_w4a16")
    assert ask(here, Placement(), code, *asked, "60", folder=tmp_path)["found"] is None
    assert ask(here, placement, code, *asked, "60", folder=tmp_path)["found"]["num_warps"] == 4


# --- AITER ---


@pytest.fixture(params=aiter_trees())
def aiter(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """(interpreter, the folder of its package)"""
    folder = tree(request.param)
    return site(tmp_path / "bin" / "python", folder), folder / "aiter"


@pytest.mark.engine_python
def test_aiter_takes_the_changed_gemm_row(aiter: tuple[str, Path], tmp_path: Path) -> None:
    python, package = aiter
    file = f"gemm/{flat_prefix(package, ARCH)}-GEMM-A16W16.json"
    held = json.loads((package / "ops/triton/configs" / file).read_text())
    tile = {**held["M_LEQ_64"], "BLOCK_SIZE_M": 16, "num_warps": 4}
    before, shared = digest(package), shared_places()
    spec, placement = laid(Lever.AITER_JSON, {f"{file}#M_LEQ_64": tile}, python, tmp_path)
    shape = ("5120", "8192")  # no table of its own
    plain = ask(spec, Placement(), BEFORE + GEMM, "40", *shape, folder=tmp_path)["found"]
    changed = ask(spec, placement, BEFORE + GEMM, "40", *shape, folder=tmp_path)["found"]
    other = ask(spec, placement, BEFORE + GEMM, "200", *shape, folder=tmp_path)["found"]
    assert {k: plain[k] for k in held["M_LEQ_64"]} == held["M_LEQ_64"] != tile
    assert {k: changed[k] for k in tile} == tile
    assert {k: other[k] for k in held["M_LEQ_256"]} == held["M_LEQ_256"]
    assert (digest(package), shared_places()) == (before, shared)


@pytest.mark.engine_python
def test_aiter_takes_a_whole_new_table_of_a_shape(aiter: tuple[str, Path], tmp_path: Path) -> None:
    python, package = aiter
    prefix = flat_prefix(package, ARCH)
    tile = json.loads((package / f"ops/triton/configs/gemm/{prefix}-GEMM-A16W16.json").read_text())["any"]
    mine = {**tile, "num_warps": 2}
    key = f"gemm/{prefix}-GEMM-A16W16-N=192-K=4096.json#*"
    spec, placement = laid(Lever.AITER_JSON, {key: {"M_LEQ_64": mine, "any": tile}}, python, tmp_path)
    assert ask(spec, placement, BEFORE + GEMM, "40", "192", "4096", folder=tmp_path)["found"]["num_warps"] == 2
    assert ask(spec, Placement(), BEFORE + GEMM, "40", "192", "4096", folder=tmp_path)["found"]["num_warps"] != 2


@pytest.mark.engine_python
def test_aiter_takes_the_changed_attention_row(aiter: tuple[str, Path], tmp_path: Path) -> None:
    python, package = aiter
    file = f"{ARCH}/triton/attention/unified_attention/DEFAULT.json"
    path, loader = package / "ops/triton/configs" / file, package / "ops/triton/utils/unified_attention_utils.py"
    if not path.is_file() or not loader.is_file() or "schema" not in loader.read_text():
        pytest.skip("this AITER picks attention tiles in Python, or by another layout of its table")
    held = json.loads(path.read_text())["attn_2d"]
    key = f"{file}#attn_2d/D_GEQ_512.Q_GEQ_256.DT_fp8_fp8"
    tile = {**held["D_GEQ_512.DT_fp8_fp8"], "BLOCK_M": 64}
    spec, placement = laid(Lever.AITER_JSON, {key: tile}, python, tmp_path)
    call = {"head_size": 512, "max_seqlen_q": 10000, "max_seqlen_k": 10000, "sliding_window": 0, "block_size": 64,
            "shuffled_kv_cache": False, "q_dtype": "float8_e4m3fn", "kv_cache_dtype": "float8_e4m3fn"}  # fmt: skip
    asked = ("attn_2d", json.dumps(call))
    assert ask(spec, Placement(), BEFORE + ATTENTION, *asked, folder=tmp_path)["found"]["BLOCK_M"] == 16
    assert ask(spec, placement, BEFORE + ATTENTION, *asked, folder=tmp_path)["found"]["BLOCK_M"] == 64


FAMILY = "a4w4_blockscale_tuned_gemm"


@pytest.mark.engine_python
def test_aiter_takes_the_changed_csv_row_and_merges_nothing(aiter: tuple[str, Path], tmp_path: Path) -> None:
    python, package = aiter
    path = package / "configs" / f"{FAMILY}.csv"
    head = head_of(path)
    assert isinstance(head, list)
    rows = [dict(zip(head, cells, strict=True)) for _, cells in rows_of(path)]
    one = next(r for r in rows if r["cu_num"] == str(UNITS) and r.get("gfx", ARCH) == ARCH)
    other = next(r for r in rows if r["kernelName"] != one["kernelName"] and r["cu_num"] == str(UNITS))
    shape = {c: one[c] for c in ("gfx", "cu_num", "M", "N", "K") if c in one}
    new = {"kernelId": int(other["kernelId"]), "splitK": 1, "kernelName": other["kernelName"]}
    key = f"{FAMILY}#{','.join(f'{c}={v}' for c, v in shape.items())}"
    fresh = f"{FAMILY}#{','.join(f'{c}={v}' for c, v in {**shape, 'M': '3'}.items())}"
    before, shared = digest(package), shared_places()
    spec, placement = laid(Lever.AITER_CSV, {key: new, fresh: new}, python, tmp_path)
    m, n, k = one["M"], one["N"], one["K"]
    plain = ask(spec, Placement(), BEFORE + CSV, m, n, k, folder=tmp_path)
    changed = ask(spec, placement, BEFORE + CSV, m, n, k, folder=tmp_path)
    assert plain["found"]["row"]["kernelName"] == one["kernelName"]
    assert {c: changed["found"]["row"][c] for c in new} == new
    assert (
        ask(spec, placement, BEFORE + CSV, "3", n, k, folder=tmp_path)["found"]["row"]["kernelName"]
        == new["kernelName"]
    )
    assert f"{FAMILY}.csv" not in changed["found"]["shared"]  # no merge of this family, so nothing in a shared place
    name = aiter_csv.folder_name(spec.overlay[Lever.AITER_CSV])
    line = f"/{name}/{FAMILY}.csv, kernel name is {new['kernelName']}"
    assert line in changed["log"] and name not in plain["log"]
    assert (digest(package), shared_places()) == (before, shared)
    # Every other row is the installed one.
    made = Path(placement.env[families(package)[FAMILY].env])
    columns = head_of(made)
    assert isinstance(columns, list)
    kept = [dict(zip(columns, cells, strict=True)) for _, cells in rows_of(made)]
    names = {tuple(r[c] for c in shape): r["kernelName"] for r in kept}
    assert len(names) == len(kept)  # and no shape stands there twice
    assert {m for m, r in names.items() if r == new["kernelName"]} >= {tuple(shape.values())}
    assert all(names[tuple(r[c] for c in shape)] == r["kernelName"] for r in rows if r is not one)


@pytest.mark.engine_python
def test_rows_that_this_aiter_would_not_read_are_refused(aiter: tuple[str, Path]) -> None:
    _, package = aiter
    prefix = flat_prefix(package, ARCH)
    file = f"gemm/{prefix}-GEMM-A16W16.json"
    tile = json.loads((package / "ops/triton/configs" / file).read_text())["M_LEQ_64"]
    fault = aiter_json.row_fault
    assert fault(package, f"{file}#M_LEQ_64", {**tile, "num_warp": 4}) == (
        f"no row of {file} near M_LEQ_64 has a key num_warp; did you mean num_warps?"
    )
    lacking = {k: v for k, v in tile.items() if k != "BLOCK_SIZE_K"}
    assert "lacks BLOCK_SIZE_K" in str(fault(package, f"{file}#M_LEQ_64", lacking))
    big = {**tile, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256}
    assert "bytes of LDS (estimate), gfx950 has 163840" in str(fault(package, f"{file}#M_LEQ_64", big))
    assert "did you mean" in str(fault(package, f"gemm/{prefix}-GEMM-A16W61.json#M_LEQ_64", tile))
    if (package / "ops/triton/utils/gemm_config_utils.py").is_file():
        assert "no batch size reaches M_LEQ_48" in str(fault(package, f"{file}#M_LEQ_48", tile))
