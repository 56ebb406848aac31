"""A mixture-of-experts model with random weights, written to disk: for nights that measure expert kernels on a card
whose machine reaches no model hub. Shapes are Qwen3-MoE's. Its texts mean nothing: token IDs and drift can judge it,
sums cannot.

Run with the engine's interpreter (it needs torch and safetensors, not vLLM):

    ENGINE_PYTHON -m benchmarks.random_experts_model FOLDER [--layers 12] [--experts 64] [--device cuda]

Weights are normal with standard deviation 0.02 (norms 1), from a seed, in bfloat16: the logits of such a net spread by
about 0.02 * sqrt(hidden), so that the best token leads by more than bfloat16's rounding most of the time. The dummy
weights of `vllm serve --load-format dummy` (uniform, up to 0.001) do not give that.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOKENIZER = Path(__file__).resolve().parents[1] / "accuracy_gate" / "arithmetic_model"
DEVIATION = 0.02  # what Qwen and Llama configurations call initializer_range


def configuration(layers: int, experts: int, width: int, expert_width: int, vocabulary: int) -> dict[str, Any]:
    """config.json of Qwen3MoeForCausalLM: 8 experts a token, heads of 128, 16 query and 4 KV heads."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 4 * width,
        "moe_intermediate_size": expert_width,
        "num_experts": experts,
        "num_experts_per_tok": min(8, experts),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "initializer_range": DEVIATION,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def shapes(config: dict[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    """Parameter names and shapes of one decoder layer, as the checkpoint spells them."""
    width, expert, head = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    at = f"model.layers.{layer}."
    found: dict[str, tuple[int, ...]] = {
        at + "input_layernorm.weight": (width,),
        at + "post_attention_layernorm.weight": (width,),
        at + "self_attn.q_norm.weight": (head,),
        at + "self_attn.k_norm.weight": (head,),
        at + "self_attn.q_proj.weight": (queries, width),
        at + "self_attn.k_proj.weight": (keys, width),
        at + "self_attn.v_proj.weight": (keys, width),
        at + "self_attn.o_proj.weight": (width, queries),
        at + "mlp.gate.weight": (config["num_experts"], width),
    }
    for number in range(config["num_experts"]):
        mine = f"{at}mlp.experts.{number}."
        found[mine + "gate_proj.weight"] = found[mine + "up_proj.weight"] = (expert, width)
        found[mine + "down_proj.weight"] = (width, expert)
    return found


def write(folder: Path, config: dict[str, Any], device: str, seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator(device=device).manual_seed(seed)

    def weight(shape: tuple[int, ...]) -> Any:
        if len(shape) == 1:
            return torch.ones(shape, dtype=torch.bfloat16)
        drawn = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, DEVIATION, generator=generator)
        return drawn.cpu()

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    width, vocabulary = config["hidden_size"], config["vocab_size"]
    ends = {
        "model.embed_tokens.weight": (vocabulary, width),
        "model.norm.weight": (width,),
        "lm_head.weight": (vocabulary, width),
    }
    parts = [ends, *(shapes(config, layer) for layer in range(config["num_hidden_layers"]))]
    where: dict[str, str] = {}
    for number, part in enumerate(parts):
        name = f"model-{number + 1:05d}-of-{len(parts):05d}.safetensors"
        save_file({key: weight(shape) for key, shape in part.items()}, folder / name, metadata={"format": "pt"})
        where |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=1))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("folder", type=Path)
    ask.add_argument("--layers", type=int, default=12)
    ask.add_argument("--experts", type=int, default=64)
    ask.add_argument("--width", type=int, default=2048)
    ask.add_argument("--expert-width", type=int, default=768)
    ask.add_argument("--device", default="cpu")
    ask.add_argument("--seed", type=int, default=0)
    given = ask.parse_args()
    if missing := [name for name in ("torch", "safetensors") if find_spec(name) is None]:
        fix = "run it with the engine's interpreter"
        ask.exit(2, f"random_experts_model: {sys.executable} has no {', '.join(missing)}: {fix}\n")
    vocabulary = json.loads((TOKENIZER / "config.json").read_text())["vocab_size"]
    config = configuration(given.layers, given.experts, given.width, given.expert_width, vocabulary)
    write(given.folder, config, given.device, given.seed)
    size = sum(path.stat().st_size for path in given.folder.iterdir())
    print(f"{given.folder}: {given.layers} layers of {given.experts} experts, {size / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
