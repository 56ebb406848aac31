"""Which arithmetic a model's linear layers are served with, by its quantization_config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from agents.research.model_shape import ModelShape

# bf16: 16-bit weights (bfloat16 or float16). fp8_block: scales for blocks of weights. fp8_token: one scale a tensor, a
# channel or a token. mxfp4: 4-bit floats, a scale for each 32. int4, int8: whole numbers. other: not recognised.
Scheme = Literal["bf16", "fp8_block", "fp8_token", "mxfp4", "int4", "int8", "other"]


def dense_scheme(model: ModelShape) -> Scheme:
    """Of the dense layers. A model of quant_method mxfp4 with experts keeps its dense layers in 16 bits (vLLM 0.33.0,
    layers/quantization/mxfp4.py: linear layers fall back to the unquantised method)."""
    if model.quantization == "mxfp4" and model.experts is not None:
        return "bf16"
    return expert_scheme(model)


def expert_scheme(model: ModelShape) -> Scheme:
    """Of the expert layers."""
    method, held = model.quantization, model.quantization_config
    if method is None:
        return "bf16"
    if method == "mxfp4":
        return "mxfp4"
    if method == "fp8":
        return "fp8_block" if held.get("weight_block_size") else "fp8_token"
    if method in ("gptq", "awq", "auto-round", "moe_wna16"):
        return "int8" if held.get("bits") == 8 else "int4"
    if method in ("compressed-tensors", "quark"):
        return _of_weights(method, held)
    return "other"


def block_shape(model: ModelShape) -> tuple[int, int] | None:
    """[n, k] of a scale's block where the configuration says it."""
    held = model.quantization_config.get("weight_block_size")
    if not held:
        weights = _weights("compressed-tensors", model.quantization_config)
        held = weights.get("block_structure")
    if isinstance(held, list) and len(held) == 2 and all(isinstance(v, int) for v in held):
        return int(held[0]), int(held[1])
    return None


def group_size(model: ModelShape) -> int | None:
    """Weights that share a scale along k, of int4 and int8."""
    for held in (model.quantization_config, _weights("compressed-tensors", model.quantization_config)):
        size = held.get("group_size", held.get("q_group_size"))
        if isinstance(size, int) and size > 0:
            return size
    return None


def _of_weights(method: str, held: Mapping[str, Any]) -> Scheme:
    weights = _weights(method, held)
    words = " ".join(str(weights.get(k, "")) for k in ("dtype", "type", "num_bits", "strategy")).lower()
    if "fp4" in words or ("float" in words and weights.get("num_bits") == 4):
        return "mxfp4" if weights.get("group_size") in (None, 32) else "other"
    if "fp8" in words or ("float" in words and weights.get("num_bits") == 8):
        return "fp8_block" if "block" in words else "fp8_token"
    if weights.get("num_bits") == 4 or "int4" in words:
        return "int4"
    return "int8" if weights.get("num_bits") == 8 or "int8" in words else "other"


def _weights(method: str, held: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of the weights: of the first group, or of all layers."""
    outer = held.get("global_quant_config")
    if method != "quark":
        groups = held.get("config_groups")
        outer = next((g for g in groups.values() if isinstance(g, dict)), None) if isinstance(groups, dict) else None
    inner = outer.get("weights", outer.get("weight")) if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else {}
