"""How a model is served: the width of its weights and of its KV cache, and what the card multiplies.

From config.json's `quantization_config` and the engine's flags. A method that is not understood is None, not a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from agents.research.model_shape import ModelShape
from cards.sheet import CardSheet
from contracts import Frozen

# Which peak stands in for one that the card has not: the next wider format that can hold the values.
STAND_INS: dict[str, tuple[str, ...]] = {
    "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "fp16", "bf16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "fp32": ("fp32",),
}
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_SCALE_BITS = 16.0  # of a group's scale, where the method does not say another


class Served(Frozen):
    """`bits` and `expert_bits`: a weight of a linear layer and of an expert, its share of the scales included. `math`:
    what is multiplied, a key of CardSheet.tflops. Embedding and lm head stay at `plain_bits`."""

    bits: float
    expert_bits: float
    math: str
    plain: str  # the 16-bit (or 32-bit) dtype of what is not quantised
    plain_bits: float
    words: str  # "weights of 4.25 bits (quark), multiplied as fp4"


def served(model: ModelShape, flags: Mapping[str, JsonValue]) -> Served | None:
    """None where the quantisation is not understood."""
    plain = plain_dtype(model, flags)
    plain_bits = 32.0 if plain == "fp32" else 16.0
    if model.quantization is None:
        words = f"weights of {plain_bits:g} bits ({plain})"
        return Served(
            bits=plain_bits, expert_bits=plain_bits, math=plain, plain=plain, plain_bits=plain_bits, words=words
        )
    found = _quantised(model.quantization, model.quantization_config, plain)
    if found is None:
        return None
    bits, math = found
    only_experts = model.quantization in ("mxfp4", "gpt_oss_mxfp4") and model.experts is not None
    words = f"weights of {bits:g} bits ({model.quantization}), multiplied as {math}"
    return Served(
        bits=plain_bits if only_experts else bits,
        expert_bits=bits,
        math=math,
        plain=plain,
        plain_bits=plain_bits,
        words=words.replace("weights", "expert weights") if only_experts else words,
    )


def peak(sheet: CardSheet, math: str) -> tuple[float, str] | None:
    """(FLOP/s, the dtype whose peak it is): the dtype's own, else of the next wider one that the card has."""
    for name in STAND_INS.get(math, ()):
        if name in sheet.tflops:
            return sheet.tflops[name].value * 1e12, name
    return None


def kv_dtype(model: ModelShape, flags: Mapping[str, JsonValue]) -> str:
    """The value of --kv-cache-dtype in force. A checkpoint with a kv_cache_scheme turns "auto" into "fp8" (vLLM 0.33.0,
    model_executor/layers/attention/attention.py)."""
    held = str(flags.get("kv-cache-dtype") or "auto")
    return "fp8" if held == "auto" and model.quantization_config.get("kv_cache_scheme") else held


def kv_bits(value: str, plain: str, head_size: int) -> float:
    """Bits of one element of the cache. Per-token-head formats keep a 32-bit scale for each token, head, K and V
    (INT4: a 16-bit scale and zero point)."""
    if value in ("auto", "bfloat16", "float16", "half", "float32", "float"):
        return 32.0 if (plain if value == "auto" else _SHORT[value]) == "fp32" else 16.0
    scale = 32.0 / head_size if value.endswith("per_token_head") else 0.0
    if value.startswith("nvfp4"):
        scale = 8.0 / 16  # an FP8 scale for every 16 values
    if "8" in value.split("_")[0]:  # fp8, fp8_e4m3, int8_per_token_head
        return 8.0 + scale
    if value == "turboquant_k8v4":
        return 6.0
    if any(word in value for word in ("int4", "4bit", "fp4")):
        return 4.0 + scale
    if any(word in value for word in ("k3v4", "k3v3", "3bit")):
        return 3.5 if "k3v4" in value else 3.0
    return 16.0


def plain_dtype(model: ModelShape, flags: Mapping[str, JsonValue]) -> str:
    """Of what is not quantised, "bf16", "fp16" or "fp32". vLLM's "auto" serves a float32 checkpoint in 16 bits."""
    asked = str(flags.get("dtype") or "auto")
    if asked != "auto":
        return _SHORT.get(asked, "bf16")
    held = _SHORT.get(model.dtype, "bf16")
    return "bf16" if held == "fp32" else held


def _quantised(method: str, config: Mapping[str, Any], plain: str) -> tuple[float, str] | None:
    """(bits a weight with its scales, what is multiplied) of a quant_method."""
    if method in ("fp8", "fbgemm_fp8", "deepseek_v4_fp8"):
        return 8.0, "fp8"
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return 4.25, plain  # an 8-bit scale for every 32 values
    if method == "mxfp8":
        return 8.25, "fp8"
    if method in ("awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "moe_wna16"):
        bits = config.get("bits") or config.get("w_bit") or 4
        return _grouped(bits, config.get("group_size") or config.get("q_group_size")), plain
    if method == "bitsandbytes":
        return (8.0 if config.get("load_in_8bit") else 4.5), plain
    if method == "compressed-tensors":
        groups = config.get("config_groups")
        group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
        return _pair(group, "weights", "input_activations", plain)
    if method == "quark":
        return _pair(config.get("global_quant_config"), "weight", "input_tensors", plain)
    if method.startswith("modelopt"):
        inner = config.get("quantization")
        said = {**config, **inner} if isinstance(inner, dict) else config
        known = {"FP8": (8.0, "fp8"), "NVFP4": (4.5, "fp4"), "MXFP8": (8.25, "fp8")}
        return known.get(str(said.get("quant_algo")).upper())
    return None


def _pair(group: Any, weights: str, inputs: str, plain: str) -> tuple[float, str] | None:
    """Of a description of weights and of activations, each with bits or a dtype."""
    if not isinstance(group, dict) or not isinstance(group.get(weights), dict):
        return None
    weight, given = group[weights], group.get(inputs)
    bits, kind = _width(weight)
    if bits is None:
        return None
    scale = 8.0 if kind == "fp" and bits <= 4 else _SCALE_BITS  # microscaled formats have an 8-bit exponent
    wide = _grouped(bits, weight.get("group_size"), scale)
    width, family = _width(given) if isinstance(given, dict) else (None, "")
    return wide, f"{family}{width}" if width in (4, 8) and f"{family}{width}" in STAND_INS else plain


def _width(described: Mapping[str, Any]) -> tuple[int | None, str]:
    """(bits, "int" or "fp")."""
    dtype = str(described.get("dtype") or "")
    if dtype:
        digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
        return (int(digits) if 0 < len(digits) < 3 else None), "int" if "int" in dtype else "fp"
    bits = described.get("num_bits")
    return (bits if isinstance(bits, int) else None), "int" if described.get("type") == "int" else "fp"


def _grouped(bits: Any, group: Any, scale: float = _SCALE_BITS) -> float:
    wide = float(bits) if isinstance(bits, int | float) else 4.0
    return wide + (scale / group if isinstance(group, int) and group > 0 else 0.0)
