"""Settings with which vLLM would not start are told before anything is calculated with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.research.model_shape import model_shape
from agents.research.refused import refused
from tests.agents.examples import KNOBS, spec

MODEL = model_shape(json.loads((Path(__file__).parents[2] / "configs/models/dense_gqa_8b.json").read_text()))
NO_TREE = Knobs(version="unknown", path="")


def test_settings_that_start() -> None:
    flags: dict[str, JsonValue] = {
        "tensor-parallel-size": 8, "max-num-seqs": 64, "max-model-len": -1, "gpu-memory-utilization": 1,
        "enforce-eager": False, "dtype": "half", "kernel-config": {"a": 1}, "revision": 12, "unheard-of": "x",
        "speculative-config": {"num_speculative_tokens": 2}, "max-num-batched-tokens": None,
    }  # fmt: skip
    sizes: dict[str, JsonValue] = {"cudagraph_capture_sizes": [1, 2], "mode": 3, "custom_ops": ["none"]}
    for knobs in (KNOBS, NO_TREE):
        assert refused(spec(flags=flags, compilation=sizes), knobs, MODEL) is None
    assert refused(spec(flags={"tensor-parallel-size": 7}), KNOBS, None) is None  # no model: nothing to divide


@pytest.mark.parametrize("knobs", [KNOBS, NO_TREE])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("tensor-parallel-size", 7, "vLLM takes one that divides the model's 32 attention heads"),
        ("tensor-parallel-size", 10**26, "= 100000000000000000000000000: vLLM takes a whole number from 1 on"),
        ("tensor-parallel-size", True, "vLLM takes a whole number from 1 on"),
        ("max-num-seqs", "abc", "flag max-num-seqs = abc: vLLM takes a whole number from 1 on"),
        ("max-num-seqs", 0, "vLLM takes a whole number from 1 on"),
        ("max-model-len", "8k", "written out (8192, not 8k)"),
        ("gpu-memory-utilization", 92, "above 0 and at most 1"),
        ("speculative-config", {"num_speculative_tokens": -1}, "num_speculative_tokens is a whole number from 1 on"),
        ("kernel-config", '{"a": 1', "is not valid JSON: close its brackets"),
    ],
)
def test_flags_that_vllm_refuses(knobs: Knobs, name: str, value: JsonValue, told: str) -> None:
    said = refused(spec(flags={name: value}), knobs, MODEL)
    assert said is not None and told in said and said.startswith(f"flag {name} = ")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("enforce-eager", "True", "enforce-eager takes a value of type bool, not"),
        ("dtype", "haf", "did you mean half?"),
        ("port", "eighty", "port takes a value of type int"),
    ],
)
def test_types_are_those_of_the_tree(name: str, value: JsonValue, told: str) -> None:
    assert told in (refused(spec(flags={name: value}), KNOBS, MODEL) or "")
    assert refused(spec(flags={name: value}), NO_TREE, MODEL) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cudagraph_capture_sizes", "[1,2", "vLLM takes a list of sizes there, for example cudagraph_capture_sizes=[1"),
        ("cudagraph_capture_sizes", [1, -2], "vLLM takes a list of sizes"),
        ("pass_config", "{", "is not valid JSON"),
        ("max_cudagraph_capture_size", 10**20, "a graph has at most 1,000,000 tokens"),
    ],
)
def test_compilation_keys_that_vllm_refuses(name: str, value: JsonValue, told: str) -> None:
    assert told in (refused(spec(compilation={name: value}), NO_TREE, MODEL) or "")
