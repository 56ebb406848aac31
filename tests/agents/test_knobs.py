"""What an installed vLLM can be told, read from its source."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from agents.research.installed_vllm import find_vllm, read_knobs
from agents.research.knobs import Knob, KnobsError, near, value_problem
from agents.research.vllm_source import knobs_from_source
from cards.ask import MARK
from tests.agents import fake_vllm

REAL = Path(__file__).resolve().parents[2] / ".venv-engine" / "bin" / "python"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_vllm.plant(tmp_path_factory.mktemp("site"))


def test_flags_have_type_and_default(package: Path) -> None:
    flags = knobs_from_source(package).flags
    assert flags["enforce-eager"].kind == "bool"
    assert (flags["enforce-eager"].default_known, flags["enforce-eager"].default) == (True, False)
    assert flags["dtype"].choices == ("auto", "half", "float16")
    assert flags["dtype"].default == "auto"
    assert flags["scheduling-policy"].choices == ("fcfs", "priority")  # an alias given by name, as text
    assert flags["hf-token"].kind == "str"
    assert flags["port"].default == 8000
    assert flags["allowed-headers"].default == ["*"]
    assert flags["old-switch"].kind == "bool"
    assert flags["dtype"].source == "config/model.py:6"


def test_the_command_line_wins_over_the_configuration_class(package: Path) -> None:
    seqs = knobs_from_source(package).flags["max-num-seqs"]
    assert (seqs.default_known, seqs.default, seqs.optional, seqs.kind) == (True, None, True, "int")


def test_json_flags_know_their_keys(package: Path) -> None:
    knobs = knobs_from_source(package)
    assert "mode" in knobs.flag_keys["compilation-config"]
    assert knobs.aliases["cc"] == "compilation-config"


def test_compilation_keys(package: Path) -> None:
    keys = knobs_from_source(package).compilation
    assert keys["mode"].kind == "any"  # an enumeration that takes numbers and names
    assert keys["cudagraph_capture_sizes"].kind == "list"
    assert keys["pass_config"].kind == "json"
    assert keys["inductor_passes"].default == {}
    assert "static_forward_context" not in keys  # init=False: nothing that can be set


def test_environment(package: Path) -> None:
    env = knobs_from_source(package).env
    assert (env["VLLM_CPU_KVCACHE_SPACE"].kind, env["VLLM_CPU_KVCACHE_SPACE"].default) == ("int", 0)
    assert env["VLLM_ROCM_USE_AITER"].kind == "bool"
    assert env["VLLM_UNTYPED"].default == "x"  # read from the getter, where nothing is declared


def test_a_variables_default_is_what_its_getter_answers(package: Path) -> None:
    """What is declared is for type checkers: vLLM 0.33.0 declares VLLM_XGRAMMAR_CACHE_MB 0 and its getter says 512."""
    env = knobs_from_source(package).env
    assert (env["VLLM_CACHE_MB"].kind, env["VLLM_CACHE_MB"].default) == ("int", 512)
    assert env["VLLM_ROCM_USE_AITER"].default is False
    assert env["VLLM_DERIVED"].default == "declared"  # a getter that computes: the declaration is the best there is
    assert (env["VLLM_CHOICE"].default_known, env["VLLM_CHOICE"].default) == (True, None)
    assert env["VLLM_NAMED"].default == "13.0"


def test_knobs_that_say_they_will_go(package: Path) -> None:
    gone = knobs_from_source(package).deprecated
    assert {name: d.gone_in for name, d in gone.items()} == {
        "compilation-config.cudagraph_capture_sizes": "10.0",
        "old-switch": "9.8.0",
        "VLLM_DERIVED": "9.9",
    }
    assert gone["compilation-config.cudagraph_capture_sizes"].says == (
        "Deprecated: sizes are found by themselves, and this option will be removed in v10.0."
    )
    assert gone["old-switch"].says.startswith("--old-switch is deprecated and has no effect.")
    assert gone["VLLM_DERIVED"].source.startswith("envs.py:")


def test_a_file_that_does_not_parse_costs_its_own_knobs_only(tmp_path: Path) -> None:
    package = fake_vllm.plant(tmp_path)
    (package / "config" / "scheduler.py").write_bytes(b"class \xff(:\n")
    knobs = knobs_from_source(package)
    assert knobs.flags["max-num-seqs"].kind == "any"  # known to exist, type unknown
    assert knobs.flags["enforce-eager"].kind == "bool"
    (package / "engine" / "arg_utils.py").write_text("def (")
    with pytest.raises(KnobsError, match="cannot be parsed"):
        knobs_from_source(package)


def interpreter(folder: Path, says: str) -> str:
    """A stand-in for an interpreter: a script that answers anything with `says`."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_interpreter_is_asked_where_its_vllm_is(package: Path, tmp_path: Path) -> None:
    said = f"""echo '{MARK}{{"vllm_folder": "{package}"}}'"""
    assert read_knobs(interpreter(tmp_path, said)).version == "9.8.7"


def test_nothing_of_vllm_is_imported(package: Path, tmp_path: Path) -> None:
    """The stand-in's __init__ ends the process that imports it."""
    (tmp_path / "site.pth").write_text("")
    asked = interpreter(tmp_path, f'PYTHONPATH={package.parent} exec {sys.executable} "$@"')
    assert find_vllm(asked) == package


@pytest.mark.parametrize("says", ["{}", '{"vllm_folder": "/nowhere"}', '{"vllm_folder": null}'])
def test_an_interpreter_without_vllm(tmp_path: Path, says: str) -> None:
    with pytest.raises(KnobsError, match="has no vLLM; install one there"):
        read_knobs(interpreter(tmp_path, f"echo '{MARK}{says}'"))


def test_no_interpreter_at_all(tmp_path: Path) -> None:
    with pytest.raises(KnobsError, match="does not exist; set engine.python"):
        read_knobs(str(tmp_path / "missing"))
    with pytest.raises(KnobsError, match="is no Python that answers .exit code 3: .*; set engine.python"):
        read_knobs(interpreter(tmp_path, "exit 3"))


def test_near_names() -> None:
    assert near("max_num_seq", ["max-num-seqs", "max-num-batched-tokens"]) == "max-num-seqs"
    assert near("banana", ["max-num-seqs"]) is None


def test_values() -> None:
    assert value_problem(Knob(name="x", kind="float"), 1) is None
    assert "type float" in str(value_problem(Knob(name="x", kind="float"), True))
    assert value_problem(Knob(name="x", kind="list"), [1, 2]) is None
    assert value_problem(Knob(name="x", kind="any"), {"a": 1}) is None


@pytest.mark.skipif(not REAL.exists(), reason="no .venv-engine here; `make setup` installs the engine")
def test_the_real_tree() -> None:
    """vLLM's CPU build, as set-up installs it. Facts of 0.32.0 that other versions share."""
    knobs = read_knobs(str(REAL))
    assert knobs.version[0].isdigit()
    assert {"max-num-seqs", "enforce-eager", "block-size", "port", "served-model-name"} <= set(knobs.flags)
    assert knobs.flags["enforce-eager"].kind == "bool"
    assert knobs.flags["enforce-eager"].default is False
    assert "bfloat16" in knobs.flags["dtype"].choices
    assert {"mode", "cudagraph_capture_sizes", "pass_config"} <= set(knobs.compilation)
    assert knobs.env["VLLM_CPU_OMP_THREADS_BIND"].default == "auto"
    assert len(knobs.flags) > 200
    assert len(knobs.env) > 200
    untyped = [name for name, knob in knobs.flags.items() if knob.kind == "any"]
    assert len(untyped) < 0.1 * len(knobs.flags), untyped
