"""A dense model with random 4-bit AWQ weights, written to disk: for a card whose machine reaches no model hub.
Shapes are Qwen3's. Its texts mean nothing: token IDs and drift can judge it, sums cannot.

Run with the engine's interpreter (it needs torch and safetensors, not vLLM):

    ENGINE_PYTHON -m benchmarks.random_awq_model FOLDER [--layers 8] [--width 5120] [--device cuda]

Values and zero points are uniform from 0 to 15, scales such that weights have a standard deviation of 0.02, which real
models begin with; all else as in benchmarks/random_experts_model.py, in float16.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.random_model import DEVIATION, asked, configuration, write

GROUP = 128
# Two independent whole numbers, each uniform from 0 to 15, differ with a standard deviation of sqrt(2 * 255 / 12).
SCALE = DEVIATION / math.sqrt(2 * 255 / 12)


def dense(layers: int, width: int, inner: int) -> dict[str, Any]:
    """config.json of Qwen3ForCausalLM: query heads for 1.6 widths and 8 KV heads, as Qwen3-32B has; fewer KV heads
    where 8 do not divide the others."""
    heads = max(1, width * 8 // 5 // 128)
    return configuration(
        layers,
        width,
        architectures=["Qwen3ForCausalLM"],
        model_type="qwen3",
        num_attention_heads=heads,
        num_key_value_heads=math.gcd(heads, 8),
        intermediate_size=inner,
        torch_dtype="float16",
        quantization_config={
            "quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": None,
        },
    )  # fmt: skip


def linears(config: dict[str, Any], layer: int) -> dict[str, tuple[int, int]]:
    """Name of each quantised layer -> (k, n)."""
    width, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    at = f"model.layers.{layer}."
    return {
        at + "self_attn.q_proj": (width, queries),
        at + "self_attn.k_proj": (width, keys),
        at + "self_attn.v_proj": (width, keys),
        at + "self_attn.o_proj": (queries, width),
        at + "mlp.gate_proj": (width, inner),
        at + "mlp.up_proj": (width, inner),
        at + "mlp.down_proj": (inner, width),
    }


def parts(config: dict[str, Any], device: str, seed: int) -> Iterator[dict[str, Any]]:
    import torch

    made = torch.Generator(device=device).manual_seed(seed)

    def words(*shape: int) -> Any:
        return torch.randint(-(2**31), 2**31, shape, device=device, generator=made).to(torch.int32).cpu()

    def normal(*shape: int) -> Any:
        drawn = torch.empty(shape, dtype=torch.float16, device=device).normal_(0, DEVIATION, generator=made)
        return drawn.cpu()

    def ones(size: int) -> Any:
        return torch.ones(size, dtype=torch.float16)

    width, vocabulary = config["hidden_size"], config["vocab_size"]
    yield {
        "model.embed_tokens.weight": normal(vocabulary, width),
        "model.norm.weight": ones(width),
        "lm_head.weight": normal(vocabulary, width),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        part = {f"{at}{norm}_layernorm.weight": ones(width) for norm in ("input", "post_attention")}
        part |= {f"{at}self_attn.{norm}_norm.weight": ones(config["head_dim"]) for norm in "qk"}
        for name, (k, n) in linears(config, layer).items():
            part[name + ".qweight"], part[name + ".qzeros"] = words(k, n // 8), words(k // GROUP, n // 8)
            part[name + ".scales"] = torch.full((k // GROUP, n), SCALE, dtype=torch.float16)
        yield part


def main() -> None:
    given = asked("random_awq_model", __doc__.splitlines()[0], layers=8, width=5120, inner=25600)
    for name in ("width", "inner"):
        if getattr(given, name) % GROUP:
            print(f"random_awq_model: --{name} must be a multiple of {GROUP}, the size of a group", file=sys.stderr)
            sys.exit(2)
    config = dense(given.layers, given.width, given.inner)
    size = write(given.folder, config, parts(config, given.device, given.seed))
    print(f"{given.folder}: {given.layers} layers of {given.width}, {size:.1f} GiB")


if __name__ == "__main__":
    main()
