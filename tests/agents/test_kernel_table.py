"""The lever for nightgate's own kernels: its rows, the process that reads them, and vLLM's dispatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.tuning.levers import kernel_table
from agents.tuning.placing import place
from contracts import Lever
from kernels.nightgate_kernels import tables
from kernels.nightgate_kernels.tables import ENV
from tests.agents.examples import KNOBS, spec
from tests.agents.tables_examples import write
from tests.agents.test_table_levers import engine, with_entries
from tests.test_rooms import CHECKOUT

ASK = """
from nightgate_kernels import tables
print(tables.row_for("w4a16_linear", 5), tables.row_for("w4a16_linear", 1), tables.dispatched("add_rms_norm"))
"""


def test_a_process_with_the_placement_resolves_the_changed_row_and_says_so(tmp_path: Path) -> None:
    row = {"ROWS": 8, "N": 16, "WORDS": 64}
    changed = with_entries(engine(tmp_path), Lever.KERNEL_TABLE, {"w4a16_linear#8": row, "add_rms_norm#dispatch": True})
    placement = place(changed, tmp_path / "placed")

    def resolve(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(placement.python_path)
        return subprocess.run([sys.executable, "-c", ASK], env=env | {"PYTHONPATH": path}, capture_output=True,
                              text=True, check=True, cwd=tmp_path)  # fmt: skip

    with_table, without = resolve(placement.env), resolve({})
    assert "'N': 16" in with_table.stdout and with_table.stdout.strip().endswith("True")
    assert "'N': 16" not in without.stdout and without.stdout.strip().endswith("False")
    line = 'nightgate_kernels: table row w4a16_linear 8 -> {"N": 16, "ROWS": 8, "WORDS": 64} (from '
    assert line + placement.env[ENV] in with_table.stderr and line not in without.stderr
    assert "table row w4a16_linear 1 -> " in with_table.stderr and "(built in)" in with_table.stderr
    found = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='vllm.general_plugins')])"
    told = subprocess.run([sys.executable, "-c", found], env={"PYTHONPATH": os.pathsep.join(placement.python_path)},
                          capture_output=True, text=True, check=True, cwd=tmp_path)  # fmt: skip
    assert "nightgate_kernels.plugin:register" in told.stdout


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("w4a16_linear#8", {"ROWS": 8, "N": 16, "WORDS": 64}, None),
        ("add_rms_norm#2048", {"num_warps": 8}, None),
        ("w4a16_liner#8", {}, "did you mean w4a16_linear?"),
        ("w4a16_linear", {}, "names no row"),
        ("w4a16_linear#16", {}, "has no row 16; it has 1, 2, 4, 8 and dispatch"),
        ("w4a16_linear#8", {"ROWS": 8, "N": 16}, "takes exactly the keys ROWS, N, WORDS"),
        ("w4a16_linear#8", {"ROWS": 8, "N": 12, "WORDS": 64}, "takes a power of two, not 12"),
        ("add_rms_norm#2048", {"num_warps": 32}, "16 warps of 64 lanes"),
        ("w4a16_linear#dispatch", 1, "is true or false"),
        ("add_rms_norm#dispatch", "on", "is true or false"),
    ],
)
def test_kernel_rows_are_checked(key: str, value: Any, says: str | None) -> None:
    fault = kernel_table.validate(key, value, KNOBS)
    assert fault is None if says is None else fault is not None and says in fault, fault


def test_a_vllm_without_the_operation_has_nothing_to_dispatch(tmp_path: Path) -> None:
    write(tmp_path / "vllm/ir/ops/layernorm.py", "def rms_norm(x): ...\n")
    write(tmp_path / "vllm/model_executor/kernels/linear/__init__.py", "def choose(): ...\n")
    old = KNOBS.model_copy(update={"path": str(tmp_path / "vllm")})
    for kernel, lacks in tables.SERVES.items():
        assert f"has no {lacks}" in str(kernel_table.validate(f"{kernel}#dispatch", True, old))
    write(tmp_path / "vllm/ir/ops/layernorm.py", "def fused_add_rms_norm(x): ...\n")
    listed = "model_executor/layers/quantization/kernels/mixed_precision/__init__.py"  # where 0.16 has it
    for file in ("model_executor/kernels/linear/__init__.py", listed):
        write(tmp_path / "vllm" / file, "_POSSIBLE_KERNELS: dict = {}\n")
        assert not [kernel for kernel in tables.SERVES if kernel_table.validate(f"{kernel}#dispatch", True, old)]
        (tmp_path / "vllm" / file).unlink()


# What stands in for a card is Triton's interpreter; the dispatch is vLLM's own.
SERVE = """
import torch
from vllm import ir
from nightgate_kernels.plugin import register
register()
op = ir.ops.fused_add_rms_norm
op.set_default(["native"])
x, r, w = torch.randn(3, 96, dtype=torch.bfloat16), torch.randn(3, 96, dtype=torch.bfloat16), torch.randn(96).bfloat16()
got, native = op(x, r, w, 1e-5), op.impls["native"].impl_fn(x, r, w, 1e-5)
print("priority", op.get_priority(), "chosen", op.dispatch(x, r, w, 1e-5).provider)
print("float32 goes to", op.dispatch(x.float(), r.float(), w.float(), 1e-5).provider)
print("close", all(torch.allclose(a.float(), b.float(), atol=3e-2, rtol=2e-2) for a, b in zip(got, native)))
"""


@pytest.mark.engine_python
def test_vllm_dispatches_to_our_kernel_when_the_table_says_so(tmp_path: Path) -> None:
    from tests.real import engine_python

    rows = {"add_rms_norm#dispatch": True, "add_rms_norm#2048": {"num_warps": 2}}
    placement = place(with_entries(spec(python=engine_python()), Lever.KERNEL_TABLE, rows), tmp_path / "placed")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRITON_INTERPRET": "1"}
    path = {"PYTHONPATH": os.pathsep.join(placement.python_path)}
    done = subprocess.run([engine_python(), "-c", SERVE], env=env | path | placement.env, capture_output=True,
                          text=True, cwd=tmp_path, timeout=250, check=False)  # fmt: skip
    assert "chosen nightgate" in done.stdout, done.stderr[-2000:]
    assert "float32 goes to native" in done.stdout and "close True" in done.stdout
    assert 'table row add_rms_norm 2048 -> {"num_warps": 2} (from ' in done.stderr
    assert "add_rms_norm serves vllm.ir.ops.fused_add_rms_norm, before vLLM's own" in done.stderr
    plain = subprocess.run([engine_python(), "-c", SERVE], env=env | path, capture_output=True, text=True,
                           cwd=tmp_path, timeout=250, check=False)  # fmt: skip
    assert "chosen native" in plain.stdout, plain.stderr[-2000:]


LAYERS = CHECKOUT / "tests" / "kernels" / "inside" / "serve_w4a16.py"


@pytest.mark.engine_python
@pytest.mark.parametrize(
    ("vllm", "says"), [("as it is", ""), ("fork", "; CPUWNA16LinearKernel put behind it")], ids=["as it is", "fork"]
)
def test_real_layers_of_vllm_are_served_by_our_kernel_and_are_right(vllm: str, says: str, tmp_path: Path) -> None:
    """Layers of compressed-tensors (symmetric or not) and AWQ (as on NVIDIA and CPUs, and as on AMD cards), made,
    loaded and run by vLLM's own classes; the kernel runs in Triton's interpreter. Errors are bfloat16's: with a wrong
    layout they would be near 1."""
    from tests.real import engine_python

    rows = {"w4a16_linear#dispatch": True}
    placement = place(with_entries(spec(python=engine_python()), Lever.KERNEL_TABLE, rows), tmp_path / "placed")
    path = os.pathsep.join([*placement.python_path, str(CHECKOUT / "kernels" / "nightgate_evidence")])
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRITON_INTERPRET": "1", "NIGHTGATE_EVIDENCE": "1"}
    done = subprocess.run([engine_python(), str(LAYERS), vllm], env=env | placement.env | {"PYTHONPATH": path},
                          capture_output=True, text=True, cwd=tmp_path, timeout=250, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"w4a16_linear serves vLLM's 4-bit linear layers, before vLLM's own{says}\n" in done.stderr
    assert 'nightgate-evidence counter {"count": 8, "name": "w4a16_linear", ' in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: layer["kernel"] for name, layer in found.items()} == {
        "symmetric": "NightgateW4A16LinearKernel",
        "zero points": "NightgateW4A16LinearKernel",
        "awq": "NightgateW4A16LinearKernel",
        "awq on amd": "True",
    }
    assert all(error < 0.06 for layer in found.values() for error in layer["errors"].values()), found


STAND_BACK = CHECKOUT / "tests" / "kernels" / "inside" / "stand_back.py"
OURS, THEIRS = "NightgateW4A16LinearKernel", "CPUWNA16LinearKernel"


@pytest.mark.engine_python
@pytest.mark.parametrize(
    ("form", "env", "taken", "says"),
    [
        ("", {}, OURS, f"; {THEIRS} put behind it"),
        ("inherited", {}, OURS, "; Inherits put behind it"),
        # Nobody may stand back for a kernel that is not taken: vLLM would find none at all, and not start.
        ("", {"VLLM_DISABLED_KERNELS": OURS}, THEIRS, "; but vLLM does not take it ("),
        ("inherited", {"VLLM_DISABLED_KERNELS": OURS}, "Inherits", "; but vLLM does not take it ("),
        ("odd", {}, "Odd", "; which kernel is taken was not asked (AttributeError: "),
    ],
    ids=["as it is", "inherited", "ours disabled", "inherited, ours disabled", "another form"],
)
def test_a_forks_own_kernel_stands_back_only_where_ours_is_taken(
    form: str, env: dict[str, str], taken: str, says: str, tmp_path: Path
) -> None:
    from tests.real import engine_python

    rows = {"w4a16_linear#dispatch": True}
    placement = place(with_entries(spec(python=engine_python()), Lever.KERNEL_TABLE, rows), tmp_path / "placed")
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRITON_INTERPRET": "1"}
    path = {"PYTHONPATH": os.pathsep.join(placement.python_path)}
    done = subprocess.run([engine_python(), str(STAND_BACK), form], env=base | placement.env | path | env,
                          capture_output=True, text=True, cwd=tmp_path, timeout=250, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"w4a16_linear serves vLLM's 4-bit linear layers, before vLLM's own{says}" in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    favourite = {"": THEIRS, "inherited": "Inherits", "odd": "Odd"}[form]
    assert (found["any"], found["named"]) == (taken, favourite)  # named by --linear-backend


def test_a_vllm_that_is_not_as_expected_starts_without_our_kernel(tmp_path: Path) -> None:
    """A stand-in for the module that registers it: it fails as it would if vLLM's list were a tuple."""
    code = """
import sys, types
def serve():
    ().insert(0, None)
sys.modules["nightgate_kernels.serve_w4a16_linear"] = types.SimpleNamespace(serve=serve)
from nightgate_kernels.plugin import register
register()
"""
    table = write(tmp_path / "table.json", {"w4a16_linear": {"dispatch": True}})
    env = {"PYTHONPATH": str(CHECKOUT / "kernels"), ENV: str(table)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    said = "w4a16_linear does not serve vLLM (AttributeError: 'tuple' object has no attribute 'insert')"
    assert f"nightgate_kernels: {said}" in done.stderr.splitlines()


def test_the_kernels_folder_is_where_the_lever_says() -> None:
    assert kernel_table.KERNELS == CHECKOUT / "kernels"
