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

from collections.abc import Iterator
from typing import Any

from benchmarks.random_model import DEVIATION, asked, configuration, write


def mixture(layers: int, experts: int, width: int, expert_width: int) -> dict[str, Any]:
    """config.json of Qwen3MoeForCausalLM: 8 experts a token, 16 query and 4 KV heads."""
    return configuration(
        layers,
        width,
        architectures=["Qwen3MoeForCausalLM"],
        model_type="qwen3_moe",
        num_attention_heads=16,
        num_key_value_heads=4,
        intermediate_size=4 * width,
        moe_intermediate_size=expert_width,
        num_experts=experts,
        num_experts_per_tok=min(8, experts),
        decoder_sparse_step=1,
        mlp_only_layers=[],
        norm_topk_prob=True,
        initializer_range=DEVIATION,
        torch_dtype="bfloat16",
    )


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


def parts(config: dict[str, Any], device: str, seed: int) -> Iterator[dict[str, Any]]:
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)

    def weight(shape: tuple[int, ...]) -> Any:
        if len(shape) == 1:
            return torch.ones(shape, dtype=torch.bfloat16)
        drawn = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, DEVIATION, generator=generator)
        return drawn.cpu()

    width, vocabulary = config["hidden_size"], config["vocab_size"]
    ends = {
        "model.embed_tokens.weight": (vocabulary, width),
        "model.norm.weight": (width,),
        "lm_head.weight": (vocabulary, width),
    }
    for part in (ends, *(shapes(config, layer) for layer in range(config["num_hidden_layers"]))):
        yield {key: weight(shape) for key, shape in part.items()}


def main() -> None:
    sizes = {"layers": 12, "experts": 64, "width": 2048, "expert_width": 768}
    given = asked("random_experts_model", __doc__.splitlines()[0], **sizes)
    config = mixture(given.layers, given.experts, given.width, given.expert_width)
    size = write(given.folder, config, parts(config, given.device, given.seed))
    print(f"{given.folder}: {given.layers} layers of {given.experts} experts, {size:.1f} GiB")


if __name__ == "__main__":
    main()
