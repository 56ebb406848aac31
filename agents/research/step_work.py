"""What one step of a decoder has to compute and to move, by category: formulas of shapes, and no machine in them.

Counted: attention, the linear layers with shared experts (gemm), routed experts (moe), norms, the lm head (sampling),
all-reduces (communication).
Not counted: rotary embedding, activations between layers, the state of linear attention, a multimodal tower, a
drafting model. What is left out makes the bounds looser, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from agents.research.model_shape import AttentionKind, ModelShape
from agents.research.served import Served, kv_bits
from contracts import Frozen

ACTIVATION_BYTES = 2  # 16-bit activations
LOGIT_BYTES = 4 * 2  # float32 logits, written and read once


class Work(Frozen):
    """Of one card, one step. `wire`: bytes that the card sends to its peers."""

    math: str  # key of CardSheet.tflops
    flops: float = 0
    bytes: float = 0
    wire: float = 0


class Load(Frozen):
    """`sequences` that each bring `tokens` new tokens on top of `context` earlier ones; `logits` of them need the lm
    head. Means, so they need not be whole."""

    sequences: float
    tokens: float
    context: float
    logits: float
    decode: bool


class Latent(Frozen):
    """Multi-head latent attention: the cache holds rank + rope values a token and layer for all heads together."""

    rank: int
    rope: int
    nope: int
    value: int

    @property
    def width(self) -> int:
        """Of the vector that the cache holds: what vLLM calls the head size of such a layer."""
        return self.rank + self.rope

    def flops_a_pair(self, decode: bool) -> int:
        """Of one head, one query and one key. Decode works on the latent vectors, prefill on the expanded ones."""
        if decode:
            return 2 * self.width + 2 * self.rank
        return 2 * (self.nope + self.rope) + 2 * self.value


def latent_of(config: Mapping[str, JsonValue]) -> Latent | None:
    """From config.json, None for other kinds of attention."""
    text = config.get("text_config")
    said = {**config, **text} if isinstance(text, dict) else config
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    found = [said.get(n) for n in names]
    whole = [v for v in found if isinstance(v, int) and not isinstance(v, bool)]
    if len(whole) != len(names):
        return None
    return Latent(rank=whole[0], rope=whole[1], nope=whole[2], value=whole[3])


def pairs(tokens: float, context: float, window: int | None) -> float:
    """(query, key) pairs of one sequence under a causal mask: new token i of 1..tokens sees context + i keys, or
    `window` of them. tokens (tokens + 1) / 2 for a prompt without context."""
    full = tokens if window is None else max(0.0, min(tokens, window - context))
    return full * context + full * (full + 1) / 2 + (tokens - full) * (window or 0)


def keys_read(tokens: float, context: float, window: int | None) -> float:
    """Distinct keys that one sequence's new tokens see."""
    reach = context + tokens
    return reach if window is None else min(reach, window + tokens - 1)


def kv_bytes_per_token(
    kind: AttentionKind, value: str, plain: str, tensor_parallel: int, latent: Latent | None
) -> float:
    """Bytes of K and V that a layer of this kind keeps of one token on one card. KV heads are repeated where there are
    fewer than cards, and a latent vector lies whole on each card."""
    if latent is not None:
        return latent.width * kv_bits(value, plain, latent.rank) / 8
    heads = max(1, kind.kv_heads // tensor_parallel)
    return 2 * heads * kind.head_size * kv_bits(value, plain, kind.head_size) / 8


def attention(
    model: ModelShape, load: Load, kv_value: str, plain: str, math: str, tensor_parallel: int, latent: Latent | None
) -> Work:
    """FLOPs: 4 * head size * heads * pairs a layer (two products of 2 FLOPs an element). Bytes: each sequence's keys
    and values once, the new ones written, queries read and outputs written."""
    flops = moved = 0.0
    for kind in model.attention:
        heads = max(1, kind.heads // tensor_parallel)
        each = 4 * kind.head_size if latent is None else latent.flops_a_pair(load.decode)
        flops += each * heads * pairs(load.tokens, load.context, kind.window) * kind.layers
        kept = kv_bytes_per_token(kind, kv_value, plain, tensor_parallel, latent)
        rows = keys_read(load.tokens, load.context, kind.window) + load.tokens
        moved += (kept * rows + 2 * ACTIVATION_BYTES * heads * kind.head_size * load.tokens) * kind.layers
    return Work(math=math, flops=flops * load.sequences, bytes=moved * load.sequences)


def experts_touched(count: int, top_k: int, tokens: float) -> float:
    """Expected number of experts that at least one of `tokens` goes to, each to top_k of `count` evenly."""
    return count * (1.0 - float((1.0 - top_k / count) ** tokens))


def step_work(
    model: ModelShape,
    how: Served,
    load: Load,
    kv_value: str,
    kv_math: str,
    tensor_parallel: int = 1,
    latent: Latent | None = None,
) -> dict[str, Work]:
    """By category, of one card of `tensor_parallel`. A category that the model has not is absent."""
    tokens = load.sequences * load.tokens
    found = {"attention": attention(model, load, kv_value, how.plain, kv_math, tensor_parallel, latent)}
    flops = moved = 0.0
    for gemm in model.gemms(tensor_parallel):
        if gemm.name == "lm head":
            rows = load.sequences * load.logits
            weight = gemm.n * gemm.k * how.plain_bits / 8
            moved_here = weight + rows * (gemm.k * ACTIVATION_BYTES + gemm.n * LOGIT_BYTES)
            found["sampling"] = Work(math=how.plain, flops=2 * gemm.n * gemm.k * rows, bytes=moved_here)
            continue
        flops += 2 * gemm.n * gemm.k * gemm.layers * tokens
        moved += (gemm.n * gemm.k * how.bits / 8 + (gemm.n + gemm.k) * ACTIVATION_BYTES * tokens) * gemm.layers
    linear = model.linear_attention_weights * model.linear_attention_layers / tensor_parallel
    found["gemm"] = Work(math=how.math, flops=flops + 2 * linear * tokens, bytes=moved + linear * how.bits / 8)
    if model.experts:
        e = model.experts
        each = 3 * model.hidden * e.layers / tensor_parallel
        wide = e.top_k * e.intermediate
        read = experts_touched(e.count, e.top_k, tokens) * e.intermediate
        inputs = 2 * model.hidden * ACTIVATION_BYTES * tokens * e.layers * e.top_k
        found["moe"] = Work(
            math=how.math, flops=2 * each * wide * tokens, bytes=each * read * how.expert_bits / 8 + inputs
        )
    # Two fused add-and-norms a layer and the last: input and residual, read and written.
    norms = (2 * model.layers + 1) * 4 * model.hidden * ACTIVATION_BYTES * tokens
    found["norm"] = Work(math="fp32", bytes=norms)
    if tensor_parallel > 1:
        # Two all-reduces a layer; each card of n sends 2 (n - 1) / n of the tensor, whatever the algorithm.
        share = 2 * (tensor_parallel - 1) / tensor_parallel
        wire = 2 * model.layers * share * model.hidden * ACTIVATION_BYTES * tokens
        found["communication"] = Work(math=how.plain, wire=wire)
    return found


def weight_bytes(model: ModelShape, how: Served, tensor_parallel: int = 1) -> float:
    """Bytes of all weights that lie on one card."""
    linear = float(sum(g.n * g.k * g.layers for g in model.gemms(tensor_parallel) if g.name != "lm head"))
    linear += model.linear_attention_weights * model.linear_attention_layers / tensor_parallel
    experts = 0.0
    if model.experts:
        wide = model.experts.count * model.experts.intermediate
        experts = 3 * model.hidden * wide * model.experts.layers / tensor_parallel
    tables = model.vocabulary * model.hidden * (1 if model.tied_embeddings else 2) / tensor_parallel
    return (linear * how.bits + experts * how.expert_bits + tables * how.plain_bits) / 8
