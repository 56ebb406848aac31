"""From a spec to what is run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue

from contracts import Container, EngineSpec, Lever
from engine.aiter_modules import copy_prebuilt
from engine.caches import cache_environment
from engine.command import command_line, dropped, environment, own_environment
from engine.own_plugins import FOLDERS, PRIORITY, plugin_names
from engine.placement import Placement
from engine.running import EngineFailure
from tests.real import engine_python

OWN = ":".join(map(str, FOLDERS))
ENTRY = (
    "[vllm.general_plugins]\nnightgate_kernels = nightgate_kernels.plugin:register\n"  # as the kernel lever writes it
)
SPEC = EngineSpec(
    python="/venv/bin/python",
    model="/models/small",
    flags={
        "enforce-eager": True,
        "enable-prefix-caching": False,
        "max-num-seqs": 8,
        "dtype": "auto",
        "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
        "block-size": None,
    },
    env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    compilation={"mode": 3},
    plugin_paths=("/plugins/a", "/plugins/b"),
)


def test_flags_become_vllm_arguments() -> None:
    line = command_line(SPEC, 20001, "nightgate-L1-0a1b2c3d")
    assert line[:5] == ["/venv/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "/models/small"]
    assert "--enforce-eager" in line and "--no-enable-prefix-caching" in line
    assert line[line.index("--max-num-seqs") + 1] == "8"
    assert json.loads(line[line.index("--speculative-config") + 1]) == SPEC.flags["speculative-config"]
    assert json.loads(line[line.index("--compilation-config") + 1]) == {"mode": 3}
    assert "--block-size" not in line  # null: the engine's own default
    assert line[-6:] == ["--host", "127.0.0.1", "--port", "20001", "--served-model-name", "nightgate-L1-0a1b2c3d"]


def test_equal_specs_give_equal_lines_whatever_the_order_of_their_flags() -> None:
    turned = SPEC.model_copy(update={"flags": dict(reversed(SPEC.flags.items()))})
    assert command_line(turned, 1, "n") == command_line(SPEC, 1, "n")


@pytest.mark.parametrize("name", ["port", "host", "served-model-name", "compilation-config"])
def test_what_belongs_to_the_launch_is_no_flag(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        command_line(SPEC.model_copy(update={"flags": {name: "x"}}), 1, "n")


INHERITED = {
    "PATH": "/loop/.venv/bin:/usr/bin",
    "VIRTUAL_ENV": "/loop/.venv",
    "PYTHONPATH": "/loop",
    "VLLM_USE_V1": "0",
    "VLLM_CPU_KVCACHE_SPACE": "40",
    "OMP_NUM_THREADS": "1",
    "TRITON_CACHE_DIR": "/home/me/.triton",
    "HIP_VISIBLE_DEVICES": "1",
    "LD_LIBRARY_PATH": "/rocm/lib",
}


def test_the_environment_is_the_specs_and_the_machines_not_the_loops() -> None:
    env = environment(SPEC, Path("/night/cache/abc"), INHERITED)
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"  # the spec's, not the inherited 40
    assert env["PYTHONPATH"] == f"/plugins/a:/plugins/b:{OWN}" and env["NIGHTGATE_EVIDENCE"] == "1"
    assert env["PATH"] == "/venv/bin:/usr/bin"
    assert env["VLLM_CACHE_ROOT"].startswith("/night/cache/abc/") and env["TRITON_CACHE_DIR"].startswith("/night/")
    assert env["HIP_VISIBLE_DEVICES"] == "1" and env["LD_LIBRARY_PATH"] == "/rocm/lib"  # they find the card
    assert not {"VIRTUAL_ENV", "VLLM_USE_V1", "OMP_NUM_THREADS"} & set(env)
    assert env["HF_HUB_OFFLINE"] == env["VLLM_NO_USAGE_STATS"] == "1"


def test_the_card_is_the_night_s_whatever_the_shell_hides_and_the_spec_wins() -> None:
    card = {"ROCR_VISIBLE_DEVICES": "GPU-21501edcba987654", "HIP_VISIBLE_DEVICES": "0", "VLLM_CPU_KVCACHE_SPACE": "9"}
    hidden = {**INHERITED, "HSA_VISIBLE_DEVICES": "1", "GPU_DEVICE_ORDINAL": "1"}
    assert environment(SPEC, Path("/c"), hidden)["HSA_VISIBLE_DEVICES"] == "1"  # nobody chose a card: the shell's count
    env = environment(SPEC, Path("/night/cache/abc"), hidden, card_env=card)
    assert not {"HSA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"} & set(env)
    assert (env["ROCR_VISIBLE_DEVICES"], env["HIP_VISIBLE_DEVICES"]) == ("GPU-21501edcba987654", "0")
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_what_was_dropped_is_told() -> None:
    assert dropped(SPEC, INHERITED) == (
        "OMP_NUM_THREADS", "PYTHONPATH", "TRITON_CACHE_DIR", "VIRTUAL_ENV", "VLLM_USE_V1",
    )  # fmt: skip


def test_a_shim_comes_first_and_our_own_plugins_last_in_every_engine() -> None:
    bare = SPEC.model_copy(update={"plugin_paths": ()})
    assert environment(bare, Path("/c"), INHERITED)["PYTHONPATH"] == OWN
    shimmed = environment(SPEC, Path("/c"), INHERITED, (Path("/shim"),))
    assert shimmed["PYTHONPATH"] == f"/shim:/plugins/a:/plugins/b:{OWN}"


def test_what_our_plugins_read_comes_from_the_spec_alone() -> None:
    """A variable of the shell that starts the night would be in both arms, unseen."""
    env = environment(SPEC, Path("/c"), {**INHERITED, PRIORITY: "TRITON_ATTN"})
    assert PRIORITY not in env


@pytest.mark.parametrize(
    ("listed", "then"),
    [
        ("hcu,hcu_model,hcu_ops", "hcu,hcu_model,hcu_ops,nightgate_evidence,nightgate_attention"),  # Hygon's README
        ("mine,nightgate_evidence", "mine,nightgate_evidence,nightgate_attention"),
        ("", "nightgate_evidence,nightgate_attention"),  # by which vLLM loads none
        ("mine, nightgate_evidence", "mine, nightgate_evidence,nightgate_evidence,nightgate_attention"),  # " x" is no x
    ],
)
def test_a_list_of_plugins_does_not_switch_ours_off(listed: str, then: str) -> None:
    env = environment(changed(env={"VLLM_PLUGINS": listed}), Path("/c"), INHERITED)
    assert env["VLLM_PLUGINS"] == then


@pytest.mark.engine_python
def test_the_installed_vllm_finds_ours_beside_what_the_list_holds(tmp_path: Path) -> None:
    """Its own loader in a real process; `hcu` is not installed here. Without the names that are added it finds none."""
    spec = EngineSpec(python=engine_python(), model="m", env={"VLLM_PLUGINS": "hcu"})
    code = "from vllm.plugins import load_plugins_by_group as load; print(sorted(load('vllm.general_plugins')))"
    found = []
    for env in (environment(spec, tmp_path, os.environ), environment(spec, tmp_path, os.environ) | spec.env):
        done = subprocess.run(
            [spec.python, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        found.append(done.stdout.splitlines()[-1])
    assert found == ["['nightgate_attention', 'nightgate_evidence']", "[]"]


def test_without_a_list_vllm_loads_all_and_none_is_made(tmp_path: Path) -> None:
    assert "VLLM_PLUGINS" not in environment(SPEC, Path("/c"), {**INHERITED, "VLLM_PLUGINS": "of_the_shell"})
    of_image = own_environment(changed(env={}), Path("/c"), of_image={"VLLM_PLUGINS": "hcu"})
    assert of_image["VLLM_PLUGINS"] == "hcu,nightgate_evidence,nightgate_attention"


def test_a_plugin_that_a_lever_lays_out_is_listed_too(tmp_path: Path) -> None:
    info = tmp_path / "nightgate_kernels-0.1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(ENTRY)
    laid = Placement(python_path=(str(tmp_path),))
    env = environment(changed(env={"VLLM_PLUGINS": "hcu"}), Path("/c"), INHERITED, placement=laid)
    assert env["VLLM_PLUGINS"] == "hcu,nightgate_kernels,nightgate_evidence,nightgate_attention"


def test_every_plugin_of_ours_has_a_name_that_a_list_can_hold() -> None:
    assert [plugin_names(folder) for folder in FOLDERS] == [("nightgate_evidence",), ("nightgate_attention",)]


# --- compile caches -----------------------------------------------------------------------------------------------


def changed(**update: object) -> EngineSpec:
    return SPEC.model_copy(update=update)


def caches(spec: EngineSpec) -> dict[str, str]:
    """As a launch has them: the spec's own folder is named after it."""
    return cache_environment(spec, Path("/night/cache") / spec.id)


@pytest.mark.parametrize("name", ["VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
def test_no_graph_or_triton_kernel_of_one_arm_reaches_the_other(name: str) -> None:
    assert caches(SPEC)[name] != caches(changed(flags={"max-num-seqs": 16}))[name]
    assert caches(SPEC)[name] == caches(SPEC.model_copy())[name]


PATCH = {"aiter/k": "--- a/aiter/ops/x.py\n+++ b/aiter/ops/x.py\n@@ -1 +1 @@\n-1\n+2\n"}


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (changed(flags={"max-num-seqs": 16}), True),
        (changed(env={"VLLM_ROCM_USE_AITER": "1"}), True),  # which kernels run, not what they are built from
        (changed(overlay={Lever.AITER_JSON: {"gfx950-GEMM.json#any": {"BLOCK_SIZE_M": 32}}}), True),  # Triton's
        (changed(overlay={Lever.SOURCE_PATCH: PATCH}), False),
        (changed(overlay={Lever.AITER_CSV: {"a8w8_tuned_gemm.csv#1": {"kernelId": 7}}}), False),
        (changed(env={"GPU_ARCHS": "gfx950"}), False),
        (changed(container=Container(image="rocm/vllm:1")), False),
    ],
)
def test_what_takes_an_hour_to_build_is_shared_where_it_comes_out_the_same(other: EngineSpec, shared: bool) -> None:
    for name in ("AITER_JIT_DIR", "AITER_ROOT_DIR", "FLYDSL_RUNTIME_CACHE_DIR", "MIOPEN_USER_DB_PATH"):
        assert (caches(SPEC)[name] == caches(other)[name]) is shared, name
        assert caches(other)[name].startswith("/night/cache/build-")


def test_flashinfers_warm_kernels_are_used_until_a_patch_could_be_in_them() -> None:
    assert "FLASHINFER_WORKSPACE_BASE" not in caches(SPEC)
    for spec in (changed(overlay={Lever.SOURCE_PATCH: PATCH}), changed(container=Container(image="i"))):
        assert caches(spec)["FLASHINFER_WORKSPACE_BASE"].startswith("/night/cache/build-")


@pytest.fixture
def with_aiter(tmp_path: Path) -> str:
    """An interpreter that finds a tree of AITER's layout. Its Python must not be run, or the card would be opened."""
    jit = tmp_path / "site/aiter/jit"
    (jit / "flydsl_cache").mkdir(parents=True)
    (jit / "build/module_x").mkdir(parents=True)
    (jit.parent / "__init__.py").write_text("raise SystemExit('aiter was imported')")
    for name in ("module_rope.so", "flydsl_cache/k.bin", "core.py", "build/module_x/x.o"):
        (jit / name).write_text(name)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_prebuilt_modules_are_copied_once_and_the_installed_ones_never_written(with_aiter: str, tmp_path: Path) -> None:
    spec, build = EngineSpec(python=with_aiter, model="m"), tmp_path / "cache/build-1"
    copy_prebuilt(spec, build)
    copied = {str(p.relative_to(build)) for p in build.rglob("*") if p.is_file()}
    assert copied == {"aiter_jit/module_rope.so", "aiter_jit/flydsl_cache/k.bin"}
    (build / "aiter_jit/module_rope.so").write_text("built again by this arm")
    copy_prebuilt(spec, build)
    assert (build / "aiter_jit/module_rope.so").read_text() == "built again by this arm"
    assert (tmp_path / "site/aiter/jit/module_rope.so").read_text() == "module_rope.so"


@pytest.mark.parametrize(
    ("patch", "copied"),
    [
        (PATCH, True),
        ({"aiter/k": "--- a/csrc/kernels/rope.cu\n+++ b/csrc/kernels/rope.cu\n"}, False),
        ({"aiter/k": {"sha256": "0123"}}, False),  # nobody can tell what it reaches
        ({"vllm/k": "--- a/csrc/x.cu\n+++ b/csrc/x.cu\n"}, True),
    ],
)
def test_a_patch_of_compiled_sources_is_not_hidden_by_prebuilt_modules(
    with_aiter: str, tmp_path: Path, patch: dict[str, JsonValue], copied: bool
) -> None:
    spec = EngineSpec(python=with_aiter, model="m", overlay={Lever.SOURCE_PATCH: patch})
    copy_prebuilt(spec, tmp_path / "build")
    assert (tmp_path / "build/aiter_jit").is_dir() is copied


def test_an_interpreter_that_cannot_copy_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineFailure, match="could not be copied"):
        copy_prebuilt(EngineSpec(python=str(tmp_path / "none"), model="m"), tmp_path / "build")
