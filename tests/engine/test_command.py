"""From a spec to what is run."""

import json
from pathlib import Path

import pytest

from contracts import EngineSpec
from engine.command import command_line, dropped, environment
from engine.watcher import FOLDER

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
    assert env["PYTHONPATH"] == f"/plugins/a:/plugins/b:{FOLDER}" and env["NIGHTGATE_EVIDENCE"] == "1"
    assert env["PATH"] == "/venv/bin:/usr/bin"
    assert env["VLLM_CACHE_ROOT"].startswith("/night/cache/abc/") and env["TRITON_CACHE_DIR"].startswith("/night/")
    assert env["HIP_VISIBLE_DEVICES"] == "1" and env["LD_LIBRARY_PATH"] == "/rocm/lib"  # they find the card
    assert not {"VIRTUAL_ENV", "VLLM_USE_V1", "OMP_NUM_THREADS"} & set(env)
    assert env["HF_HUB_OFFLINE"] == env["VLLM_NO_USAGE_STATS"] == "1"


def test_the_card_is_the_night_s_whatever_the_shell_hides_and_the_spec_wins() -> None:
    card = {"ROCR_VISIBLE_DEVICES": "GPU-21501edcba987654", "HIP_VISIBLE_DEVICES": "0", "VLLM_CPU_KVCACHE_SPACE": "9"}
    env = environment(SPEC, Path("/night/cache/abc"), INHERITED, card_env=card)
    assert (env["ROCR_VISIBLE_DEVICES"], env["HIP_VISIBLE_DEVICES"]) == ("GPU-21501edcba987654", "0")
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_what_was_dropped_is_told() -> None:
    assert dropped(SPEC, INHERITED) == (
        "OMP_NUM_THREADS", "PYTHONPATH", "TRITON_CACHE_DIR", "VIRTUAL_ENV", "VLLM_USE_V1",
    )  # fmt: skip


def test_a_shim_comes_first_and_the_watcher_of_every_engine_last() -> None:
    bare = SPEC.model_copy(update={"plugin_paths": ()})
    assert environment(bare, Path("/c"), INHERITED)["PYTHONPATH"] == str(FOLDER)
    shimmed = environment(SPEC, Path("/c"), INHERITED, (Path("/shim"),))
    assert shimmed["PYTHONPATH"] == f"/shim:/plugins/a:/plugins/b:{FOLDER}"
