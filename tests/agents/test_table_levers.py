"""The levers for tables, on small trees that the test writes: what they take, what they refuse, what they lay out."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.research.knobs import Knob, Knobs
from agents.tuning.apply import apply, difference
from agents.tuning.levers import LEVERS, aiter_csv, aiter_json, moe_table
from agents.tuning.placed import PlacementError
from agents.tuning.placing import place
from contracts import Change, EngineSpec, Lever
from tests.agents.attention_trees import FOLDER, TABLE, entry
from tests.agents.examples import KNOBS, spec
from tests.agents.tables_examples import FAMILY, FP4, HUGE, TILE, gemm_tree, write

MOE_FILE = "E=8,N=14336,device_name=AMD_Instinct_MI355X.json"
MOE_TILE = {**TILE, "GROUP_SIZE_M": 1}
MOE_TREE = "model_executor/layers/fused_moe"
VARIABLE = "VLLM_TUNED_CONFIG_FOLDER"


def engine(folder: Path, **fields: Any) -> EngineSpec:
    """A spec whose interpreter finds the packages of `folder`: this Python, with the folder behind its own path."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{folder}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return spec(python=str(python), **fields)


def with_entries(engine_spec: EngineSpec, lever: Lever, rows: dict[str, Any]) -> EngineSpec:
    for key, value in rows.items():
        engine_spec = LEVERS[lever].write(engine_spec, key, value)
    return engine_spec


# --- what all four have in common ---


@pytest.mark.parametrize("lever", [Lever.MOE_TABLE, Lever.AITER_JSON, Lever.AITER_CSV, Lever.KERNEL_TABLE])
def test_a_row_is_a_change_like_any_other(lever: Lever) -> None:
    key = {
        Lever.MOE_TABLE: f"{MOE_FILE}#16",
        Lever.AITER_JSON: "gemm/gfx950-GEMM-A16W16.json#M_LEQ_64",
        Lever.AITER_CSV: "a4w4_blockscale_tuned_gemm#gfx=gfx950,cu_num=256,M=64,N=3072,K=1024",
        Lever.KERNEL_TABLE: "w4a16_linear#8",
    }[lever]
    change = Change(lever=lever, key=key, after={"a": 1})
    changed = apply(spec(), change)
    assert difference(spec(), changed) == (change,)
    assert LEVERS[lever].keys(changed) == (key,)
    back = apply(changed, Change(lever=lever, key=key, before={"a": 1}))
    assert back == spec()


def test_nothing_to_lay_is_nothing_laid(tmp_path: Path) -> None:
    for lever in (Lever.MOE_TABLE, Lever.AITER_JSON, Lever.AITER_CSV, Lever.KERNEL_TABLE):
        action = LEVERS[lever].place
        assert action is not None and action({}, "/nowhere/python", tmp_path, {}).env == {}
    assert list(tmp_path.iterdir()) == []


# --- vLLM's fused MoE ---


def vllm_tree(root: Path, variable: str = VARIABLE) -> Path:
    vllm = root / "vllm"
    write(vllm / "__init__.py", "")
    write(vllm / "envs.py", f"{variable}: str | None = None\n")
    write(vllm / MOE_TREE / "fused_moe.py", f"envs.{variable}\n")
    table = {"triton_version": "3.9.0", "1": MOE_TILE, "16": MOE_TILE, "64": MOE_TILE}
    write(vllm / MOE_TREE / "configs" / MOE_FILE, table)
    return vllm


def test_one_row_of_a_moe_table_changes_and_the_rest_is_the_installed_one(tmp_path: Path) -> None:
    vllm, new = vllm_tree(tmp_path), {**MOE_TILE, "num_warps": 8}
    held = (vllm / MOE_TREE / "configs" / MOE_FILE).read_bytes()
    changed = with_entries(engine(tmp_path), Lever.MOE_TABLE, {f"{MOE_FILE}#16": new, f"{MOE_FILE}#256": new})
    placement = place(changed, tmp_path / "placed")
    made = Path(placement.env[VARIABLE]) / MOE_FILE
    assert list(json.loads(made.read_text())) == ["triton_version", "1", "16", "64", "256"]
    assert json.loads(made.read_text())["16"] == json.loads(made.read_text())["256"] == new
    assert json.loads(made.read_text())["64"] == MOE_TILE
    assert (vllm / MOE_TREE / "configs" / MOE_FILE).read_bytes() == held
    assert place(changed, tmp_path / "placed") == placement
    # vLLM logs the folder, so two tables that differ must not lie in folders of one name.
    other = with_entries(engine(tmp_path), Lever.MOE_TABLE, {f"{MOE_FILE}#16": MOE_TILE})
    assert Path(place(other, tmp_path / "placed").env[VARIABLE]).name != made.parent.name


def test_the_folder_that_the_engine_was_given_is_the_base(tmp_path: Path) -> None:
    vllm_tree(tmp_path)
    own = tmp_path / "own"
    write(own / MOE_FILE, {"1": HUGE | {"GROUP_SIZE_M": 1}, "32": MOE_TILE})
    write(own / "E=2,N=8,device_name=X.json", {"1": MOE_TILE})
    given = engine(tmp_path, env={VARIABLE: str(own)})
    changed = with_entries(given, Lever.MOE_TABLE, {f"{MOE_FILE}#32": {**MOE_TILE, "num_warps": 2}})
    placement = place(changed, tmp_path / "placed")
    folder = Path(placement.env[VARIABLE])
    assert sorted(p.name for p in folder.iterdir()) == sorted([MOE_FILE, "E=2,N=8,device_name=X.json"])
    assert list(json.loads((folder / MOE_FILE).read_text())) == ["1", "32"]
    gone = engine(tmp_path, env={VARIABLE: str(tmp_path / "gone")})
    with pytest.raises(PlacementError, match="is no folder"):
        place(with_entries(gone, Lever.MOE_TABLE, {f"{MOE_FILE}#32": MOE_TILE}), tmp_path / "placed")


def test_a_row_of_a_table_that_is_not_there_would_serve_every_batch_size(tmp_path: Path) -> None:
    vllm_tree(tmp_path)
    file = "E=3,N=96,device_name=AMD_Instinct_MI355X.json"
    alone = with_entries(engine(tmp_path), Lever.MOE_TABLE, {f"{file}#16": MOE_TILE})
    with pytest.raises(PlacementError, match=r"it would serve every batch size; propose the whole table, key .*#\*"):
        place(alone, tmp_path / "placed")
    whole = with_entries(alone, Lever.MOE_TABLE, {f"{file}#*": {"1": MOE_TILE, "16": TILE | {"GROUP_SIZE_M": 8}}})
    made = Path(place(whole, tmp_path / "placed").env[VARIABLE]) / file
    assert json.loads(made.read_text()) == {"1": MOE_TILE, "16": MOE_TILE}  # a row on top of the whole table


def test_a_vllm_that_takes_no_tables_from_outside(tmp_path: Path) -> None:
    vllm_tree(tmp_path, variable="VLLM_SOMETHING")
    changed = with_entries(engine(tmp_path), Lever.MOE_TABLE, {f"{MOE_FILE}#16": MOE_TILE})
    with pytest.raises(PlacementError, match="vllm/envs.py does not know VLLM_TUNED_CONFIG_FOLDER"):
        place(changed, tmp_path / "placed")
    none = KNOBS.model_copy(update={"env": {"VLLM_X": Knob(name="VLLM_X")}})
    assert "has no variable VLLM_TUNED_CONFIG_FOLDER" in str(moe_table.validate(f"{MOE_FILE}#16", MOE_TILE, none))


KNOWN = Knobs(version="0.32.0", path="/nowhere/vllm", env={VARIABLE: Knob(name=VARIABLE)})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (f"{MOE_FILE}#16", MOE_TILE, None),
        (f"{MOE_FILE}#16", None, None),  # back to the installed row
        (f"{MOE_FILE}#*", {"1": MOE_TILE}, None),
        (MOE_FILE, MOE_TILE, "names no row of a table"),
        ("tiles.json#16", MOE_TILE, "is no name of a fused-MoE table"),
        (f"{MOE_FILE}#many", MOE_TILE, "is no number of tokens"),
        (f"{MOE_FILE}#0", MOE_TILE, "is no number of tokens"),
        (f"{MOE_FILE}#*", {"x": MOE_TILE}, "row 'x' is no number of tokens"),
        (f"{MOE_FILE}#16", {"BLOCK_SIZE_M": 16}, "lacks BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M"),
        (f"{MOE_FILE}#16", {**MOE_TILE, "num_warp": 4}, "did you mean num_warps?"),
        (f"{MOE_FILE}#16", {**MOE_TILE, "BLOCK_SIZE_M": 48}, "powers of two only"),
        (f"{MOE_FILE}#16", {**MOE_TILE, "num_warps": 32}, "at most 1024 lanes"),
        (f"{MOE_FILE}#16", {**MOE_TILE, "kpack": True}, "takes a whole number"),
        (f"{MOE_FILE}#16", {**HUGE, "GROUP_SIZE_M": 1}, "gfx950 has 163840"),
        (MOE_FILE.replace(".json", ",backend=flydsl.json#16"), MOE_TILE, "from its own folder only"),
        (f"{MOE_FILE}##16", MOE_TILE, "names no row of a table"),
        (f"{MOE_FILE}#{'9' * 900}", MOE_TILE, "is no number of tokens"),
        (f"{MOE_FILE}#{'9' * 5000}", MOE_TILE, "names no row of a table"),  # int() raises from 4300 digits on
        (f"{MOE_FILE}#*", {"9" * 5000: MOE_TILE}, "is no number of tokens"),
        (f"{MOE_FILE}#*", {"\u0661": MOE_TILE}, "is no number of tokens"),
        (f"{MOE_FILE}#16", {**MOE_TILE, "GROUP_SIZE_M": 1 << 40}, "GROUP_SIZE_M takes a number below 2^31"),
        (f"E={'9' * 900},N=1,device_name=X.json#1", MOE_TILE, "is no name of a fused-MoE table"),
        ("E=1,N=1,device_name=../../X.json#1", MOE_TILE, "is no name of a fused-MoE table"),
        ("E=1,N=1,device_name=a\0b.json#1", MOE_TILE, "names no row of a table"),
        (f"E=1,N=1,device_name={'a' * 300}.json#1", MOE_TILE, "is no name of a fused-MoE table"),
    ],
)
def test_moe_rows_are_checked(key: str, value: Any, says: str | None) -> None:
    fault = moe_table.validate(key, value, KNOWN)
    assert fault is None if says is None else fault is not None and says in fault


@pytest.mark.parametrize(
    "key",
    ["//gemm/x.json#a", "/gemm//./x.json# /a/ ", "gemm/x.json#/", "#a", "a#b#c", "", "\n", f"{MOE_FILE} # 00016",
     "9" * 5000],
)  # fmt: skip
@pytest.mark.parametrize("lever", [Lever.MOE_TABLE, Lever.AITER_JSON, Lever.AITER_CSV, Lever.KERNEL_TABLE])
def test_a_spelling_is_final(lever: Lever, key: str) -> None:
    once = LEVERS[lever].normalise(key)
    assert LEVERS[lever].normalise(once) == once
    assert LEVERS[Lever.AITER_JSON].normalise("//gemm/x.json#a") == "gemm/x.json#a"


def test_a_moe_key_has_one_spelling() -> None:
    spaced = "E=8,N=7168,device_name=AMD_Instinct_MI355X,dtype=fp8_w8a8,block_shape=[128, 128].json # 016 "
    tight = "E=8,N=7168,device_name=AMD_Instinct_MI355X,dtype=fp8_w8a8,block_shape=[128,128].json#16"
    assert moe_table.normalise(spaced) == tight == moe_table.normalise(tight)


# --- AITER's JSON ---


def aiter_tree(root: Path) -> Path:
    aiter = gemm_tree(root)
    write(aiter / "__init__.py", "")
    write(aiter / "ops/triton/utils/gemm_config_utils.py", "STANDARD_M_BOUNDS = (1, 4, 8, 16, 32, 64, 128, 256)\n")
    write(aiter / FOLDER / "DEFAULT.json", TABLE)
    return aiter


NESTED = f"{FP4.removeprefix('ops/triton/configs/')}/DEFAULT.json"
ATTENTION = f"{FOLDER.removeprefix('ops/triton/configs/')}/DEFAULT.json"


def test_one_row_of_an_aiter_table_changes_in_an_overlay_tree(tmp_path: Path) -> None:
    aiter = aiter_tree(tmp_path)
    (tmp_path / "aiter_meta/hsa").mkdir(parents=True)
    held = (aiter / FP4 / "DEFAULT.json").read_bytes()
    changed = with_entries(engine(tmp_path), Lever.AITER_JSON, {f"{NESTED}#M_LEQ_16": {**TILE, "num_warps": 8}})
    placement = place(changed, tmp_path / "placed")
    (first,) = placement.python_path
    made = json.loads((Path(first) / "aiter" / FP4 / "DEFAULT.json").read_text())
    assert made == {"M_LEQ_16": {**TILE, "num_warps": 8}, "M_LEQ_256": TILE, "any": TILE}
    assert (Path(first) / "aiter_meta/hsa").is_dir()  # else AITER would find no assembled kernel
    assert (aiter / FP4 / "DEFAULT.json").read_bytes() == held


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (f"{NESTED}#M_LEQ_16", TILE, None),
        (f"{NESTED}#M_LEQ_64", TILE, None),  # a new row that the lookup asks for
        (f"{NESTED}#M_LEQ_48", TILE, "no batch size reaches M_LEQ_48: the lookup asks only for the bounds"),
        (f"{NESTED}#M_GEQ_64", TILE, None),  # of more than 256 tokens, which no other bound answers
        (f"{NESTED}#M_LEQ_16", {**TILE, "num_warp": 4}, "did you mean num_warps?"),
        (f"{NESTED}#M_LEQ_16", {k: v for k, v in TILE.items() if k != "num_stages"}, "lacks num_stages"),
        (f"{NESTED}#M_LEQ_16", {**TILE, "BLOCK_SIZE_K": 96}, "powers of two only"),
        (f"{NESTED}#M_LEQ_16", {"tile": TILE}, "name the row inside it with /"),
        ("gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json#any", HUGE, "gfx950 has 163840"),
        ("gemm/gfx950-GEMM-A8W8_BLOKSCALE.json#any", TILE, "did you mean gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json?"),
        ("gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=8-K=8.json#any", TILE, "a new one is given whole"),
        ("gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=8-K=8.json#*", {"any": TILE}, None),
        ("gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=8-K=8.json#*", {"M_LEQ_64": TILE}, 'has no row "any"'),
        ("gemm/gfx950-GEMM-A8W9-N=8-K=8.json#*", {"any": TILE}, "none of family GEMM-A8W9"),
        ("../gemm/x.json#any", TILE, "is no JSON file below"),
        ("gemm/x.csv#any", TILE, "is no JSON file below"),
        ("gemm/x\0.json#*", {"any": TILE}, "names no row of a table"),
        (f"{'x' * 300}.json#*", {"any": TILE}, "is no JSON file below"),
        ("gemm/x.json#", TILE, "names no row of a table"),
        ("gemm/x.json#/", TILE, "names no row of a table"),
        (f"{NESTED}#M_LEQ_16#x", TILE, "names no row of a table"),
        (f"{NESTED}#M_LEQ_16", {**TILE, "num_stages": 2.0}, "num_stages takes a whole number"),
        (f"{NESTED}#M_LEQ_16", {**TILE, "num_stages": True}, "num_stages takes a whole number"),
        (f"{NESTED}#M_LEQ_16", {**TILE, "num_stages": 1 << 40}, "from 0 up, as in every other row, not 1099511627776"),
        (f"{NESTED}#M_LEQ_16", {**TILE, "num_stages": float("nan")}, "takes a finite number"),
        (f"{ATTENTION}#attn_2d/D_GEQ_512.Q_GEQ_256.DT_fp8_fp8", entry(64, 32), None),
        (f"{ATTENTION}#attn_2d/D_GEQ_512.Q_LEQ_1", entry(32, 64), None),
        (f"{ATTENTION}#attn_2d/Q_LEQ_1.D_GEQ_512", entry(32, 64), "says the same as D_GEQ_512.Q_LEQ_1"),
        (f"{ATTENTION}#attn_2d/D_GEQ_512.BS_GEQ_64", entry(32, 64), "names axis BS, which the schema does not have"),
        (f"{ATTENTION}#attn_2d/D_LEQ_512", entry(32, 64), "takes every call from"),
        (f"{ATTENTION}#attn_2d/D_LEQ_0", entry(32, 64), "no call can reach D_LEQ_0"),
        (f"{ATTENTION}#attn_4d/any", entry(32, 64), "has no section attn_4d"),
        (f"{ATTENTION}#attn_2d", entry(32, 64), "is a section"),
    ],
)
def test_aiter_rows_are_checked(tmp_path: Path, key: str, value: Any, says: str | None) -> None:
    aiter_tree(tmp_path)
    beside = KNOBS.model_copy(update={"path": str(tmp_path / "vllm")})
    fault = aiter_json.validate(key, value, beside)
    assert fault is None if says is None else fault is not None and says in fault, fault
    if says is not None:
        changed = with_entries(engine(tmp_path), Lever.AITER_JSON, {key: value})
        with pytest.raises(PlacementError):
            place(changed, tmp_path / "placed")


def test_an_older_aiter_chooses_in_its_own_code_and_nothing_is_said_of_its_bounds(tmp_path: Path) -> None:
    aiter = aiter_tree(tmp_path)
    (aiter / "ops/triton/utils/gemm_config_utils.py").unlink()
    assert aiter_json.row_fault(aiter, f"{NESTED}#M_LEQ_48", TILE) is None


# --- AITER's CSV ---

ROW = {"kernelId": 2, "kernelName": "k"}
KEY = f"{FAMILY}#gfx=gfx950,cu_num=256,M=64,N=3072,K=1024"
CSV_VARIABLE = "AITER_CONFIG_GEMM_A4W4"


def rows_in(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_one_row_of_a_csv_family_changes_in_one_complete_file(tmp_path: Path) -> None:
    aiter = aiter_tree(tmp_path)
    more = "gfx950,256,128,3072,1024,7,6.0,other,0.0\n"
    head = rows_in(aiter / f"configs/{FAMILY}.csv")[0]
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", f"{head}\n{more}")
    held = {p: p.read_bytes() for p in aiter.rglob("*.csv")}
    fresh = KEY.replace("M=64", "M=8")
    changed = with_entries(engine(tmp_path), Lever.AITER_CSV, {KEY: ROW, fresh: {**ROW, "kernelName": "other"}})
    placement = place(changed, tmp_path / "placed")
    made = Path(placement.env[CSV_VARIABLE])
    assert rows_in(made) == [
        head,
        "gfx950,256,64,3072,1024,2,,k,",  # what was measured of the old kernel says nothing of this one
        more.strip(),
        "gfx950,256,8,3072,1024,2,,other,",
    ]
    assert os.pathsep not in placement.env[CSV_VARIABLE]
    assert made.parent.name == aiter_csv.folder_name(changed.overlay[Lever.AITER_CSV])
    assert {p: p.read_bytes() for p in aiter.rglob("*.csv")} == held


def test_files_that_the_engine_was_given_are_the_base(tmp_path: Path) -> None:
    aiter = aiter_tree(tmp_path)
    own = write(tmp_path / "own.csv", (aiter / f"configs/{FAMILY}.csv").read_text().replace(",64,", ",32,"))
    given = engine(tmp_path, env={CSV_VARIABLE: str(own)})
    placement = place(with_entries(given, Lever.AITER_CSV, {KEY: ROW}), tmp_path / "placed")
    assert [line.split(",")[2] for line in rows_in(Path(placement.env[CSV_VARIABLE]))[1:]] == ["32", "64"]


def test_a_shape_that_stands_twice_is_refused_before_aiter_rewrites_its_files(tmp_path: Path) -> None:
    aiter = aiter_tree(tmp_path)
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", (aiter / f"configs/{FAMILY}.csv").read_text())
    changed = with_entries(engine(tmp_path), Lever.AITER_CSV, {KEY: ROW})
    with pytest.raises(PlacementError, match="M 64, N 3072, K 1024, cu_num 256, gfx gfx950 twice: AITER would rewrite"):
        place(changed, tmp_path / "placed")


def test_an_older_aiter_drops_the_slower_row_and_so_does_the_file(tmp_path: Path) -> None:
    aiter = aiter_tree(tmp_path)
    core = (aiter / "jit/core.py").read_text().replace('raise RuntimeError("Please re-run")', "x.drop_duplicates()")
    write(aiter / "jit/core.py", core)
    text = (aiter / f"configs/{FAMILY}.csv").read_text()
    write(aiter / f"configs/model_configs/x_{FAMILY}.csv", text.replace("5.0,k", "3.0,faster"))
    row = {KEY.replace("M=64", "M=1"): ROW | {"kernelName": "faster"}}
    changed = with_entries(engine(tmp_path), Lever.AITER_CSV, row)
    made = rows_in(Path(place(changed, tmp_path / "placed").env[CSV_VARIABLE]))
    assert [line.split(",")[7] for line in made[1:]] == ["faster", "faster"]
    assert [line.split(",")[2] for line in made[1:]] == ["64", "1"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (KEY, ROW, None),
        (KEY, {**ROW, "us": 4.2}, None),
        (KEY.replace(FAMILY, "a4w4_blockscale_tuned_gem"), ROW, f"did you mean {FAMILY}?"),
        (KEY.replace("gfx=gfx950,", ""), ROW, "the key lacks gfx; it takes M, N, K, cu_num, gfx"),
        (KEY + ",dtype=bf16", ROW, "dtype is no column that makes a row"),
        (KEY, {"kernelId": 2}, "the row lacks kernelName"),
        (KEY, {**ROW, "kernelNam": "k"}, "did you mean kernelName?"),
        (KEY, {**ROW, "kernelName": "kk"}, "this AITER did not compile it"),
        (KEY, {**ROW, "kernelName": "_ZN5aiter_any"}, None),  # assembled: it lies beside the module
        (KEY, {**ROW, "kernelName": "a\nb"}, "takes one cell"),
        (f"{FAMILY}#64,3072", ROW, "is no shape"),
        (f"{FAMILY}#M=1,M=2", ROW, "each column once"),
        (FAMILY, ROW, "names no row"),
        # One cell of another kind would change what pandas makes of the whole column, so of every row.
        (KEY, {**ROW, "kernelId": 1.5}, "kernelId holds a whole number in every installed row, not '1.5'"),
        (KEY, {**ROW, "kernelId": None}, "kernelId holds a whole number in every installed row, not ''"),
        (KEY, {**ROW, "kernelId": True}, "not 'True'"),
        (KEY, {**ROW, "kernelId": "two"}, "not 'two'"),
        (KEY, {**ROW, "kernelId": -1}, None),
        (KEY, {**ROW, "kernelId": "2"}, None),
        (KEY.replace("M=64", "M=1e9999"), ROW, "M holds a whole number"),
        (KEY.replace("M=64", "M=64.5"), ROW, "M holds a whole number"),
        (KEY.replace("M=64", "M=\u0661"), ROW, "M holds a whole number"),
        (KEY + "#K=2", ROW, "names no row"),
        (KEY.replace("M=64", "M=6\u00a04"), ROW, "names no row"),
        (f"{FAMILY}#M=" + "1" * 5000, ROW, "names no row"),
    ],
)
def test_csv_rows_are_checked(tmp_path: Path, key: str, value: Any, says: str | None) -> None:
    aiter_tree(tmp_path)
    beside = KNOBS.model_copy(update={"path": str(tmp_path / "vllm")})
    fault = aiter_csv.validate(key, value, beside)
    assert fault is None if says is None else fault is not None and says in fault, fault


def test_a_shape_has_one_spelling_and_one_row() -> None:
    mixed = f"{FAMILY}# K=1024, M=64,N=3072 ,cu_num=256,gfx=gfx950"
    assert aiter_csv.normalise(mixed) == KEY == aiter_csv.normalise(KEY)


def test_two_keys_of_one_row_are_refused(tmp_path: Path) -> None:
    aiter_tree(tmp_path)
    changed = with_entries(engine(tmp_path), Lever.AITER_CSV, {KEY: ROW, KEY.replace("M=64", "M=064"): ROW})
    with pytest.raises(PlacementError, match="is the same row as"):
        place(changed, tmp_path / "placed")
