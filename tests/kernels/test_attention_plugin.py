"""The plugin nightgate_attention inside a real vLLM: the AMD platform's own functions without a card, and a whole
engine on the CPU whose attention is a registered class."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.tuning.probes import ArmSeen, judge_path, probe_for
from contracts import Change, EngineSpec, Lever
from engine.own_plugins import ATTENTION, CLASS, PRIORITY
from engine.server import Engine
from tests.agents.examples import KNOBS
from tests.real import LIMITS, ROOT, engine_python, real_spec

INSIDE = ROOT / "tests" / "kernels" / "inside"
# Unpacked sdists of other versions, in folders of their names (0.30.0, 0.33.0); what the loop was read against.
TREES = os.environ.get("NIGHTGATE_VLLM_TREES", "")


def ask(arch: str, head_size: int, *more: str, tree: str = "", **env: str) -> tuple[dict[str, Any], str]:
    """(what the platform says, the log) with this environment."""
    path = [*([tree] if tree else []), str(ATTENTION)]
    done = subprocess.run(
        [engine_python(), str(INSIDE / "attention_platform.py"), arch, str(head_size), *more],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": ":".join(path)} | env,
        check=False,
        timeout=240,
    )
    last = done.stdout.strip().splitlines()[-1:] or [""]
    return (json.loads(last[0]) if last[0].startswith("{") else {}), done.stderr


# --- the order of priorities, in the real rocm.py with stand-ins (named in attention_platform.py) ---


@pytest.mark.engine_python
def test_without_its_variables_the_plugin_touches_nothing() -> None:
    answer, log = ask("gfx950", 128)
    assert answer["order"][0] == "ROCM_ATTN" and "TRITON_ATTN" in answer["order"][1:]
    assert answer["path"].endswith("rocm_attn.RocmAttentionBackend")
    assert "nightgate_attention" not in log


@pytest.mark.engine_python
def test_named_back_ends_come_first_and_the_log_says_what_that_changed() -> None:
    answer, log = ask("gfx950", 128, **{PRIORITY: "TRITON_ATTN,TURBOQUANT"})
    assert answer["order"][:3] == ["TRITON_ATTN", "TURBOQUANT", "ROCM_ATTN"]
    assert len(answer["order"]) == len(set(answer["order"]))
    assert answer["path"].endswith("triton_attn.TritonAttentionBackend")
    assert f"{PRIORITY}=TRITON_ATTN,TURBOQUANT: layers take TRITON_ATTN, by vLLM's own order they take ROCM_ATTN" in log
    assert log.count("layers take") == 1


@pytest.mark.engine_python
def test_an_order_that_changes_nothing_says_so_and_is_no_evidence() -> None:
    """Heads of 512 are not ROCM_ATTN's: TRITON_ATTN serves them anyway."""
    answer, log = ask("gfx906", 512, **{PRIORITY: "TRITON_ATTN"})
    assert answer["path"].endswith("triton_attn.TritonAttentionBackend")
    assert "changes nothing here, TRITON_ATTN is the first valid one either way" in log
    change = Change(lever=Lever.ENVIRONMENT, key=PRIORITY, after="TRITON_ATTN")
    assert judge_path(change, probe_for(change, KNOBS), ArmSeen("INFO started"), ArmSeen(log)).outcome == "absent"


@pytest.mark.engine_python
@pytest.mark.parametrize(
    ("more", "env", "words"),
    [
        ((), {PRIORITY: "TRITON_ATN"}, "this vLLM has no attention back end TRITON_ATN; it has FLASH_ATTN, "),
        (("broken",), {PRIORITY: "TRITON_ATTN"}, "does not ask _get_backend_priorities: another version?"),
        ((), {CLASS: "TRITON_ATTN=nowhere.at_all:Own"}, "there is no module nowhere.at_all on this engine's path"),
        ((), {CLASS: "TRITON_ATTN"}, "'TRITON_ATTN' is not of the form NAME=package.module:Class"),
    ],
)
def test_what_is_not_as_expected_ends_the_start_with_a_line(more: Any, env: dict[str, str], words: str) -> None:
    answer, log = ask("gfx950", 128, *more, **env)
    assert answer == {}
    refused = next(line for line in log.splitlines() if line.startswith("nightgate_attention: refused: "))
    assert words in refused
    assert "NotAsExpected" in log.splitlines()[-1]


@pytest.mark.engine_python
@pytest.mark.parametrize("version", ["0.30.0", "0.33.0"])
def test_other_versions_are_made_the_same(version: str) -> None:
    tree = Path(TREES) / version
    if not TREES or not (tree / "vllm").is_dir():
        pytest.skip("set NIGHTGATE_VLLM_TREES to a folder with unpacked sdists of vLLM, 0.30.0 and 0.33.0")
    answer, log = ask("gfx942", 128, tree=str(tree), **{PRIORITY: "TRITON_ATTN"})
    assert answer["file"].startswith(str(tree))
    assert answer["order"][:2] == ["TRITON_ATTN", "ROCM_ATTN"]
    assert "layers take TRITON_ATTN, by vLLM's own order they take ROCM_ATTN" in log


# --- a registered class, in a whole engine on the CPU ---


def with_class(value: str) -> EngineSpec:
    """The shared engine's configuration with the plugin and the class's folder on its path."""
    spec = real_spec()
    env = {**spec.env, **({CLASS: value} if value else {})}
    paths = (*spec.plugin_paths, str(INSIDE))
    return spec.model_copy(update={"env": env, "plugin_paths": paths})


def answers(engine: Engine) -> list[list[int]]:
    """Token IDs of greedy answers, one request at a time."""
    found = []
    for sum_ in ("17+25=", "8+9=", "61+12="):
        body = {"prompt": f"Altogether there are {sum_}", "temperature": 0, "max_tokens": 8, "return_token_ids": True}
        asked = {"model": engine.served_name, "ignore_eos": True, **body}
        answer = httpx.post(engine.base_url + "/v1/completions", json=asked, trust_env=False, timeout=120)
        found.append(answer.json()["choices"][0]["token_ids"])
    return found


@pytest.mark.real_engine
@pytest.mark.timeout(400)
def test_a_registered_class_is_what_every_layer_takes(real: Engine, tmp_path: Path) -> None:
    """The same arithmetic in a class of our own: other code, the same token IDs."""
    value = "CPU_ATTN=own_attention:OwnAttention"
    with Engine.start(with_class(value), "L002", tmp_path, LIMITS) as engine:
        engine.wait_ready()
        ours, theirs = answers(engine), answers(real)
        log = engine.log_since(0)
    assert "OWN ATTENTION: a layer is made" in log
    assert ours == theirs
    change = Change(lever=Lever.ENVIRONMENT, key=CLASS, after=value)
    evidence = judge_path(change, probe_for(change, KNOBS), ArmSeen(real.log_since(0)), ArmSeen(log))
    assert evidence.outcome == "proven", evidence.reason
    assert "layers take own_attention.OwnAttention for CPU_ATTN" in str(evidence.seen_in_b)
