"""What the watcher writes, and that it changes nothing: in real processes, against a made-up aiter (named as such) and
against the lookups of the installed vLLM."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from agents.tuning.seen import of_kind, seen_in
from engine.measure import COMPILE_LINES
from engine.own_plugins import EVIDENCE as FOLDER
from engine.own_plugins import FILES, SWITCH
from engine.server import Engine
from tests.kernels.made_up_aiter import GEMM, write
from tests.real import engine_python

REGISTER = "import nightgate_evidence; nightgate_evidence.register()\n"


def run(code: str, *paths: Path, python: str = sys.executable, **env: str) -> subprocess.CompletedProcess[str]:
    path = ":".join(map(str, (*paths, FOLDER)))
    done = subprocess.run(
        [python, "-c", code], env={"PYTHONPATH": path, **SWITCH, **env}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done


def lines(done: subprocess.CompletedProcess[str], kind: str) -> list[dict[str, Any]]:
    start = f"nightgate-evidence {kind} "
    return [json.loads(row[len(start) :]) for row in done.stderr.splitlines() if row.startswith(start)]


def test_vllm_finds_it_as_any_plugin() -> None:
    (info,) = FOLDER.glob("*.dist-info")
    (point,) = PathDistribution(info).entry_points
    assert (point.group, point.value) == ("vllm.general_plugins", "nightgate_evidence:register")
    assert f'{point.name} = "{point.value}"' in (FOLDER / "pyproject.toml").read_text()


def test_switched_off_it_writes_nothing_and_wraps_nothing(tmp_path: Path) -> None:
    code = REGISTER + (
        "from aiter.ops.gemm_op_a4w4 import get_GEMM_config\n"
        "get_GEMM_config(16, 512, 7168); nightgate_evidence.count('x')"
    )
    assert run(code, write(tmp_path), NIGHTGATE_EVIDENCE="0").stderr == ""


def test_a_row_of_a_json_table_with_its_file_and_its_key(tmp_path: Path) -> None:
    code = REGISTER + (
        "from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config\n"
        "for rows in (100, 100, 64, 4096): get_gemm_config('GEMM-A16W16', rows, N=512)"
    )
    done = run(code, write(tmp_path))
    found = lines(done, "table_row")
    assert [(row["asked"]["M"], row["row_keys"]) for row in found] == [
        (100, ["M_LEQ_128"]),  # and not M_LEQ_64, whose row is equal: the order of lookup decides
        (64, ["M_LEQ_64"]),
        (4096, ["any"]),
    ]
    assert found[0]["table"] == "aiter_json_gemm" and found[0]["row"] == GEMM["M_LEQ_128"]
    assert found[0]["file"] == f"{tmp_path}/aiter/ops/triton/utils/configs/gemm/gfx950-GEMM-A16W16.json"
    assert found[0]["asked"] == {"name": "GEMM-A16W16", "M": 100, "N": 512, "K": None}
    assert len(lines(done, "active")) == 1 and not lines(done, "problem")


def test_an_older_aiter_whose_kernels_open_their_tables_themselves(tmp_path: Path) -> None:
    code = REGISTER + (
        "from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config\n"
        "from aiter.ops.triton.gemm_a8w8 import _get_config\n"
        "get_gemm_config('GEMM-A16W16', 64); _get_config(1, 2, 3); _get_config(1, 2, 3); _get_config(4096, 2, 3)"
    )
    done = run(code, write(tmp_path))
    _, small, large = lines(done, "table_row")
    file = f"{tmp_path}/aiter/ops/triton/utils/configs/gemm/MI350X-GEMM-A8W8.json"
    assert (small["table"], small["file"], small["row_keys"]) == ("aiter_json_gemm", file, ["small"])
    assert (large["file"], large["row_keys"], large["asked"]["M"]) == (file, ["large"], 4096)
    assert not lines(done, "problem")


def test_many_lengths_of_prompts_do_not_hide_a_row(tmp_path: Path) -> None:
    code = REGISTER + (
        "from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config\n"
        "for rows in (*range(1000, 2000), 64): get_gemm_config('GEMM-A16W16', rows)"
    )
    found = lines(run(code, write(tmp_path)), "table_row")
    assert [row["row_keys"] for row in found] == [["any"]] * 12 + [["M_LEQ_64"]]


def test_a_row_of_a_csv_and_a_miss(tmp_path: Path) -> None:
    code = REGISTER + (
        "import aiter.ops.gemm_op_a4w4 as m\n"
        "m.get_GEMM_config(16, 512, 7168); m.get_GEMM_config(16, 512, 7168); m.get_GEMM_config(M=1, N=2, K=3)"
    )
    hit, miss = lines(run(code, write(tmp_path)), "table_row")
    assert hit["row"] == {"kernelId": 20, "splitK": 1, "kernelName": "f4gemm"}
    assert (hit["table"], hit["file"], hit["asked"]["K"]) == ("aiter_csv_a4w4", "/tables/a4w4.csv", 7168)
    assert (miss["asked"], miss["row"]) == ({"M": 1, "N": 2, "K": 3}, None)


def test_nothing_else_changes(tmp_path: Path) -> None:
    """The same answers, errors, caches and attributes, with and without the watcher; also of what was imported before
    the watcher came, by name, into another module."""
    (write(tmp_path) / "before.py").write_text("from aiter.ops.gemm_op_a4w4 import get_GEMM_config\n")
    code = """
import before, json
before.get_GEMM_config(16, 512, 7168)
import nightgate_evidence; nightgate_evidence.register()
import aiter.ops.gemm_op_a4w4 as m
from aiter.ops.triton.utils import core, gemm_config_utils as g
assert before.get_GEMM_config is m.get_GEMM_config
seen = [before.get_GEMM_config(16, 512, 7168), m.get_GEMM_config(16, 512, 7168), m.get_GEMM_config(1, 2, 3)]
seen += [m.get_GEMM_config.cache_parameters(), m.get_GEMM_config.__name__, str(m.get_GEMM_config.gemm_dict)]
seen += [g.get_gemm_config("GEMM-A16W16", 8)]
seen += [g.get_gemm_config("GEMM-A16W16", 8)[0] is g.get_gemm_config("GEMM-A16W16", 8)[0]]
csv = m.get_GEMM_config
for function, arguments in ((g.get_gemm_config, ("GEMM-NONE", 8)), (csv, (1,)), (csv, ([1], 2, 3))):
    try: function(*arguments)
    except Exception as error: seen.append(f"{type(error).__name__}: {error}")
before_clear = g._get_gemm_config_cached.cache_info()
seen += [list(before_clear), list(core.load_config_json.cache_info())]
g._get_gemm_config_cached.cache_clear(); core.load_config_json.cache_clear()
seen += [list(g._get_gemm_config_cached.cache_info()), list(core.load_config_json.cache_info())]
seen += [type(g.__loader__).__name__, type(g.__spec__.loader).__name__, "exec_module" in vars(g.__loader__)]
print(json.dumps(seen))
"""
    on, off = run(code, tmp_path), run(code, tmp_path, NIGHTGATE_EVIDENCE="0")
    assert json.loads(on.stdout) == json.loads(off.stdout)
    assert lines(on, "table_row") and not lines(off, "table_row")


def test_an_argument_that_can_not_be_compared_is_no_fault_of_the_engine(tmp_path: Path) -> None:
    """As a tensor, whose == gives no truth."""
    code = """
import types
import nightgate_evidence.watch as watch
class Odd:
    def __hash__(self): return 1
    def __eq__(self, other): raise RuntimeError("no truth")
class Hashless:
    def __hash__(self): raise ValueError("no hash")
module = types.ModuleType("m")
module.look = lambda key: "answer"
asked = []
assert watch.wrap(module, "look", lambda *told: asked.append(told))
assert [module.look(key) for key in (Odd(), Odd(), Hashless(), 5, 5)] == ["answer"] * 5
assert len(asked) == 2, asked
"""
    assert len(lines(run(code, write(tmp_path)), "problem")) == 1


def test_what_fails_inside_the_watcher_stays_inside(tmp_path: Path) -> None:
    code = """
import nightgate_evidence, nightgate_evidence.tables as tables
nightgate_evidence.register()
def broken(*_): raise RuntimeError("the watcher is broken")
tables.line = broken
import aiter.ops.gemm_op_a4w4 as m
assert m.get_GEMM_config(16, 512, 7168)["kernelId"] == 20 and m.get_GEMM_config(1, 2, 3) is None
"""
    (told,) = lines(run(code, write(tmp_path)), "problem")  # once, not at every call
    assert told == {"where": "aiter.ops.gemm_op_a4w4.get_GEMM_config", "what": "RuntimeError: the watcher is broken"}


def test_a_patched_file_that_was_imported_and_one_that_was_not(tmp_path: Path) -> None:
    tree = write(tmp_path)
    used, unused, late = (tree / f"aiter/{name}.py" for name in ("used", "unused", "late"))
    for path in (used, unused, late):
        path.write_text(f"NAME = {path.stem!r}\n")
    code = "import aiter.used\n" + REGISTER + "import aiter.late"
    patched = ":".join(map(str, (used, unused, late)))
    found = lines(run(code, tree, **{FILES: patched}), "imported")
    assert [(row["module"], row["file"]) for row in found] == [("aiter.used", str(used)), ("aiter.late", str(late))]
    assert found[0]["sha256"] == hashlib.sha256(used.read_bytes()).hexdigest()


def test_a_namesake_from_another_folder_is_no_evidence(tmp_path: Path) -> None:
    patched = write(tmp_path / "overlay") / "aiter/used.py"
    patched.write_text("x = 1\n")
    other = write(tmp_path / "installed")
    (other / "aiter/used.py").write_text("x = 0\n")
    code = REGISTER + "import aiter.used; assert aiter.used.x == 0"
    assert not lines(run(code, other, tmp_path / "overlay", **{FILES: str(patched)}), "imported")


def test_counts_are_written_at_powers_of_two() -> None:
    done = run("import nightgate_evidence as n\nfor _ in range(1000): n.count('add_rms_norm')")
    assert [row["count"] for row in lines(done, "counter")] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_a_row_of_a_table_of_our_own() -> None:
    told = "'w4a16_linear', 'gfx906,n=1', {'BLOCK_N': 64}, {'N': 4096}, '/t.json'"
    (row,) = lines(run(f"import nightgate_evidence as n\nn.resolved({told})"), "table_row")
    assert row == {
        "table": "w4a16_linear", "row_keys": ["gfx906,n=1"], "row": {"BLOCK_N": 64}, "asked": {"N": 4096},
        "file": "/t.json",
    }  # fmt: skip


@pytest.mark.real_engine
@pytest.mark.timeout(600)
def test_every_process_of_a_real_engine_carries_it(real: Engine) -> None:
    """The API server, the core and the worker; and it has nothing to complain of there."""
    seen = seen_in(real.log_since(0))
    active = {line["pid"] for line in of_kind(seen, "active")}
    assert len(active) >= 2 and active <= set(real.pids()), active
    assert of_kind(seen, "problem") == []


VLLM = """
import vllm.plugins; vllm.plugins.load_general_plugins()
from vllm.model_executor.layers.fused_moe import fused_moe as m
m.get_device_name_as_file_name = lambda: "Made_Up_Card"
def ask(rows): return m.try_get_optimal_moe_config((8, 2048, 1024), (8, 1024, 7168), 2, None, rows)
import json
print(json.dumps([ask(15), ask(15), ask(4096), m.get_moe_configs(8, 7168, None, 0, 0)]))
"""


@pytest.mark.engine_python
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tuned", [True, False])
def test_the_installed_vllms_own_lookup_of_a_moe_table(tmp_path: Path, tuned: bool) -> None:
    """vLLM's plugin loader, vLLM's lookup, a table in VLLM_TUNED_CONFIG_FOLDER; only the card's name is made up."""
    tile = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    file = tmp_path / "E=8,N=7168,device_name=Made_Up_Card.json"
    if tuned:
        file.write_text(json.dumps({"16": tile, "512": {**tile, "BLOCK_SIZE_M": 128}}))
    python = engine_python()
    done = run(VLLM, python=python, VLLM_TUNED_CONFIG_FOLDER=str(tmp_path), HOME=str(tmp_path))
    answers = json.loads(done.stdout.splitlines()[-1])
    rows = [row for row in lines(done, "table_row") if row["table"] == "vllm_moe"]
    assert [row["asked"]["M"] for row in rows] == [15, 4096]
    assert [row["row"] for row in rows] == [answers[0], answers[2]]
    if tuned:
        assert answers[0] == tile and rows[0]["row_keys"] == ["16"] and rows[1]["row_keys"] == ["512"]
        assert rows[0]["file"] == str(file)
    else:
        assert answers[3] is None and {row["file"] for row in rows} == {None} and rows[0]["row_keys"] == []
    assert not lines(done, "problem")


KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""


@pytest.mark.engine_python
def test_every_variant_of_a_triton_kernel_is_told_when_it_is_compiled(tmp_path: Path) -> None:
    """vLLM's own monitor warns once a name: the second variant of a kernel then slows a run that passes as clean."""
    (tmp_path / "added.py").write_text(KERNEL)
    code = REGISTER + (
        "from added import add_one\n"
        "from triton.backends.compiler import GPUTarget\n"
        "from triton.compiler import ASTSource, compile\n"
        "for block in (64, 128, 128):\n"
        "    source = ASTSource(add_one, {'x': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}, {(2,): block})\n"
        "    compile(source, target=GPUTarget('hip', 'gfx942', 64))\n"
    )
    done = run(
        code, tmp_path, python=str(engine_python()), TRITON_CACHE_DIR=str(tmp_path / "cache"), PATH="/usr/bin:/bin"
    )
    told = lines(done, "compiled")
    assert [row["kernel"] for row in told] == ["add_one", "add_one"]  # the third is in the cache on disk
    assert all(COMPILE_LINES.search(line) for line in done.stderr.splitlines() if " compiled " in line)
