"""A dense model with random 4-bit AWQ weights, written to disk: for a card whose machine reaches no model hub.
Shapes are Qwen3's. Its texts mean nothing: token IDs and drift can judge it, sums cannot.

Run with the engine's interpreter (it needs torch and safetensors, not vLLM):

    ENGINE_PYTHON -m benchmarks.random_awq_model FOLDER [--layers 8] [--width 5120] [--device cuda]

Values and zero points are uniform from 0 to 15, scales such that weights have a standard deviation of 0.02, which real
models begin with; all else as in benchmarks/random_experts_model.py, in float16.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.random_experts_model import DEVIATION, TOKENIZER

GROUP = 128
# Two independent whole numbers, each uniform from 0 to 15, differ with a standard deviation of sqrt(2 * 255 / 12).
SCALE = DEVIATION / math.sqrt(2 * 255 / 12)


def configuration(layers: int, width: int, inner: int, vocabulary: int) -> dict[str, Any]:
    """config.json of Qwen3ForCausalLM: heads of 128, query heads for 1.6 widths and 8 KV heads, as Qwen3-32B has; fewer
    KV heads where 8 do not divide the others."""
    heads = max(1, width * 8 // 5 // 128)
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": math.gcd(heads, 8),
        "head_dim": 128,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "quantization_config": {
            "quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": None,
        },
    }  # fmt: skip


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


def write(folder: Path, config: dict[str, Any], device: str, seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    made = torch.Generator(device=device).manual_seed(seed)

    def words(*shape: int) -> Any:
        return torch.randint(-(2**31), 2**31, shape, device=device, generator=made).to(torch.int32).cpu()

    def normal(*shape: int) -> Any:
        drawn = torch.empty(shape, dtype=torch.float16, device=device).normal_(0, DEVIATION, generator=made)
        return drawn.cpu()

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    width, vocabulary, ones = config["hidden_size"], config["vocab_size"], torch.ones
    parts: list[dict[str, Any]] = [
        {
            "model.embed_tokens.weight": normal(vocabulary, width),
            "model.norm.weight": ones(width, dtype=torch.float16),
            "lm_head.weight": normal(vocabulary, width),
        }
    ]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        part = {f"{at}{norm}_layernorm.weight": ones(width, dtype=torch.float16)
                for norm in ("input", "post_attention")}  # fmt: skip
        part |= {f"{at}self_attn.{norm}_norm.weight": ones(config["head_dim"], dtype=torch.float16) for norm in "qk"}
        for name, (k, n) in linears(config, layer).items():
            part[name + ".qweight"], part[name + ".qzeros"] = words(k, n // 8), words(k // GROUP, n // 8)
            part[name + ".scales"] = torch.full((k // GROUP, n), SCALE, dtype=torch.float16)
        parts.append(part)
    where: dict[str, str] = {}
    for number, part in enumerate(parts):
        name = f"model-{number + 1:05d}-of-{len(parts):05d}.safetensors"
        save_file(part, folder / name, metadata={"format": "pt"})
        where |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=1))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("folder", type=Path)
    ask.add_argument("--layers", type=int, default=8)
    ask.add_argument("--width", type=int, default=5120)
    ask.add_argument("--inner", type=int, default=25600)
    ask.add_argument("--device", default="cpu")
    ask.add_argument("--seed", type=int, default=0)
    given = ask.parse_args()
    if missing := [name for name in ("torch", "safetensors") if find_spec(name) is None]:
        fix = "run it with the engine's interpreter"
        ask.exit(2, f"random_awq_model: {sys.executable} has no {', '.join(missing)}: {fix}\n")
    vocabulary = json.loads((TOKENIZER / "config.json").read_text())["vocab_size"]
    config = configuration(given.layers, given.width, given.inner, vocabulary)
    write(given.folder, config, given.device, given.seed)
    size = sum(path.stat().st_size for path in given.folder.iterdir())
    print(f"{given.folder}: {given.layers} layers of {given.width}, {size / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
