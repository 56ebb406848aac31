"""From config.json to shapes: four families of public models, and what a broken configuration is told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from agents.research.model_shape import (
    AttentionKind,
    DeltaNet,
    Experts,
    Gemm,
    ModelShape,
    ModelShapeError,
    model_shape,
)
from agents.research.served import served
from agents.research.step_work import Load, step_work, weight_bytes

MODELS = Path(__file__).parents[2] / "configs" / "models"


def shape(name: str) -> ModelShape:
    return model_shape(json.loads((MODELS / f"{name}.json").read_text()))


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        # in 1e9 weights, norms left out; as published: 8.03; 32.5; 30.7; 30.5 and 3.3; 79.7 and about 3.9
        ("dense_gqa_8b", 8.03, 7.50),
        ("dense_gqa_32b", 32.76, 31.98),
        ("windows_256_512_31b", 30.7, 30.7),
        ("experts_30b_a3b", 30.5, 3.0),
        ("hybrid_80b_a3b", 79.7, 3.5),
    ],
)
def test_sizes_of_public_families(name: str, total: float, active: float) -> None:
    found = shape(name)
    assert found.parameters / 1e9 == pytest.approx(total, rel=0.02)
    assert found.active_parameters / 1e9 == pytest.approx(active, rel=0.05)


def test_layers_with_a_window_have_heads_of_their_own() -> None:
    full, near = shape("windows_256_512_31b").attention
    assert (full.layers, full.head_size, full.kv_heads, full.window) == (10, 512, 4, None)
    assert (near.layers, near.head_size, near.kv_heads, near.window) == (50, 256, 16, 1024)


def test_a_hybrid_has_few_layers_whose_cache_grows() -> None:
    found = shape("hybrid_80b_a3b")
    assert [(k.layers, k.head_size) for k in found.attention] == [(12, 256)]
    assert found.linear_attention_layers == 36
    assert found.kv_bytes_per_token == 2 * 2 * 12 * 2 * 256
    assert found.experts is not None
    assert (found.experts.layers, found.experts.count, found.experts.top_k) == (48, 512, 10)


def test_the_matrix_products_as_they_are_served() -> None:
    assert shape("dense_gqa_8b").gemms() == (
        Gemm(name="qkv", n=6144, k=4096, layers=32),
        Gemm(name="attention out", n=4096, k=4096, layers=32),
        Gemm(name="gate+up", n=28672, k=4096, layers=32),
        Gemm(name="down", n=4096, k=14336, layers=32),
        Gemm(name="lm head", n=128256, k=4096, layers=1),
    )
    split = {g.name: (g.n, g.k) for g in shape("dense_gqa_8b").gemms(tensor_parallel=16)}
    assert split["qkv"] == (256 + 2 * 128, 4096)  # 8 KV heads on 16 ranks: each rank has one
    assert split["down"] == (4096, 896)


def test_the_products_of_a_hybrid_with_gates_delta_nets_and_a_shared_expert() -> None:
    """16 query heads and as many gates, 2 KV heads, of 256; 16 key heads and 32 value heads of 128."""
    assert shape("hybrid_80b_a3b").gemms() == (
        Gemm(name="qkv", n=(2 * 16 + 2 * 2) * 256, k=2048, layers=12),
        Gemm(name="attention out", n=2048, k=16 * 256, layers=12),
        Gemm(name="delta net qkvz", n=2 * 16 * 128 + 2 * 32 * 128, k=2048, layers=36),
        Gemm(name="delta net ba", n=64, k=2048, layers=36),
        Gemm(name="delta net out", n=2048, k=32 * 128, layers=36),
        Gemm(name="shared gate+up", n=2 * 512, k=2048, layers=48),
        Gemm(name="shared down", n=2048, k=512, layers=48),
        Gemm(name="lm head", n=151936, k=2048, layers=1),
    )
    split = {g.name: (g.n, g.k) for g in shape("hybrid_80b_a3b").gemms(tensor_parallel=2)}
    assert (split["qkv"], split["delta net ba"]) == (((16 + 2) * 256, 2048), (32, 2048))
    assert (split["delta net out"], split["shared down"]) == ((2048, 2048), (2048, 256))


def test_a_delta_net_and_a_shared_expert_are_counted_once_and_as_dense_products() -> None:
    """A net: (2 * (4 + 6) + 2 * 3) * 8 and 8 * 6 weights, 256. A shared expert in 2 layers: 3 * 8 * 5, 120 each."""
    experts = Experts(layers=2, count=4, top_k=2, intermediate=5)
    plain = ModelShape(
        architecture="Small",
        hidden=8,
        layers=2,
        vocabulary=10,
        attention=(AttentionKind(layers=2, heads=2, kv_heads=1, head_size=4),),
        experts=experts,
    )
    how = served(plain, {})
    assert how is not None
    more = {
        "linear_attention_layers": 3,
        "delta_net": DeltaNet(key_width=4, value_width=6, value_heads=3),
        "experts": experts.model_copy(update={"shared_intermediate": 5}),
    }
    held = plain.model_copy(update=more)
    added = 3 * 256 + 2 * 120
    assert held.active_parameters - plain.active_parameters == added
    assert weight_bytes(held, how) - weight_bytes(plain, how) == 2 * added
    load = Load(sequences=3, tokens=1, context=7, logits=1, decode=True)
    before, after = (step_work(model, how, load, "auto", "bf16") for model in (plain, held))
    assert after["gemm"].flops - before["gemm"].flops == 2 * added * 3
    assert after["moe"] == before["moe"]


def test_a_gate_only_where_the_model_has_one() -> None:
    config = json.loads((MODELS / "hybrid_80b_a3b.json").read_text())
    assert model_shape(config | {"attn_output_gate": False}).gemms()[0].n == (16 + 2 * 2) * 256
    assert model_shape(config | {"linear_allow_neg_eigval": True}).gemms()[0].n == (16 + 2 * 2) * 256
    assert not shape("dense_gqa_8b").output_gate


def test_a_linear_attention_of_another_kind_counts_as_attention_of_its_width() -> None:
    config = json.loads((MODELS / "hybrid_80b_a3b.json").read_text())
    other = model_shape({k: v for k, v in config.items() if not k.startswith("linear_")})
    assert (other.delta_net, other.linear_attention_weights) == (None, 4 * 2048**2)


def test_no_window_where_the_model_says_not_to_use_it() -> None:
    assert [k.window for k in shape("dense_gqa_32b").attention] == [None]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden_size": "4096"}, "hidden_size = '4096'"),
        ({"num_hidden_layers": None}, "num_hidden_layers = None"),
        ({"num_attention_heads": -1}, "num_attention_heads = -1"),
        ({"hidden_size": 10**3999}, r"hidden_size = 10+\.\.\. \(4000 characters\); a decoder has at most 1,000,0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000; a decoder has at most 10,000"),
        ({"kv_lora_rank": 10**300}, "kv_lora_rank = 10"),
        ({"sliding_window": 10**300}, "sliding_window = 10"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings = 'long'"),
        ({"num_experts": 10**300}, "num_experts = 10"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "sends a token to 8 of 4 experts"),
        ({"quantization_config": {"bits": math.nan}}, "quantization_config.bits = nan; at most"),
        ({"quantization_config": {"groups": [{"bits": 10**300}]}}, "quantization_config.groups.bits = 10"),
        ({"architectures": {"a": 1}}, "architectures = {'a': 1}; a list of names belongs there"),
    ],
)
def test_what_is_no_decoder_is_said_in_one_line(change: dict[str, Any], told: str) -> None:
    config = json.loads((MODELS / "dense_gqa_8b.json").read_text()) | change
    with pytest.raises(ModelShapeError, match=told):
        model_shape(config)
