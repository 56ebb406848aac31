"""The shapes of a model, read from its config.json: what the readers walk through. No model name decides anything.

Text models in Hugging Face's format; of a multimodal one the text part (`text_config`). What a configuration does not
say is None or a documented default of that field, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contracts import Frozen

# Beyond these it is no model: the widest vocabularies have some 300,000 entries, the longest contexts ten million
# tokens, the deepest decoders a few hundred layers.
MOST = 10**9
MOST_LAYERS = 10_000


class ModelShapeError(ValueError):
    """The configuration does not describe a decoder. One line."""


class AttentionKind(Frozen):
    """Layers that attend alike. `window`: tokens, None where all earlier ones are seen."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    window: int | None = None


class Gemm(Frozen):
    """One matrix product of a layer as served, y[M, n] = x[M, k] W[n, k]^T, M the tokens of a step."""

    name: str
    n: int
    k: int
    layers: int


class Experts(Frozen):
    """Of the layers with experts: each token goes to `top_k` of `count`, each of width `intermediate`."""

    layers: int
    count: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0


class DeltaNet(Frozen):
    """Of a gated delta net, all heads together. Query, key, value and gate come from one product, two scalars for each
    value head from another (in_proj_qkvz and in_proj_ba: vLLM 0.33.0, layers/mamba/gdn/qwen_gdn_linear_attn.py:803)."""

    key_width: int
    value_width: int
    value_heads: int


class ModelShape(Frozen):
    """A decoder's sizes. Widths are elements."""

    architecture: str
    hidden: int
    layers: int
    vocabulary: int
    attention: tuple[AttentionKind, ...]
    linear_attention_layers: int = 0  # Mamba, gated delta nets: no KV cache that grows
    linear_attention_weights: int = 0  # of one such layer's projections, where `delta_net` does not say them
    delta_net: DeltaNet | None = None  # what all linear-attention layers are
    output_gate: bool = False  # attention layers make a gate for each query head beside it
    intermediate: int = 0  # of dense feed-forward layers
    dense_layers: int = 0
    gated: bool = True  # gate and up projection, fused
    experts: Experts | None = None
    dtype: str = "bfloat16"
    quantization: str | None = None  # quant_method of quantization_config
    quantization_config: dict[str, Any] = {}
    tied_embeddings: bool = False
    max_positions: int | None = None

    def gemms(self, tensor_parallel: int = 1) -> tuple[Gemm, ...]:
        """The dense linear layers as vLLM serves them: QKV fused, gate and up fused, columns or rows split over
        `tensor_parallel` ranks (KV heads are repeated where there are fewer than ranks)."""
        found: list[Gemm] = []
        for kind in self.attention:
            heads, kv = kind.heads // tensor_parallel, max(1, kind.kv_heads // tensor_parallel)
            wide = (heads * (2 if self.output_gate else 1) + 2 * kv) * kind.head_size
            found.append(Gemm(name="qkv", n=wide, k=self.hidden, layers=kind.layers))
            found.append(Gemm(name="attention out", n=self.hidden, k=heads * kind.head_size, layers=kind.layers))
        if self.delta_net:
            net, layers = self.delta_net, self.linear_attention_layers
            qkvz, scalars = 2 * (net.key_width + net.value_width), 2 * net.value_heads
            found.append(Gemm(name="delta net qkvz", n=qkvz // tensor_parallel, k=self.hidden, layers=layers))
            found.append(Gemm(name="delta net ba", n=scalars // tensor_parallel, k=self.hidden, layers=layers))
            value = net.value_width // tensor_parallel
            found.append(Gemm(name="delta net out", n=self.hidden, k=value, layers=layers))
        forward = [("", self.intermediate, self.dense_layers)]
        if self.experts:  # outside the experts' kernel, unless VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS is on
            forward.append(("shared ", self.experts.shared_intermediate, self.experts.layers))
        for which, width, layers in forward:
            wide, up = width // tensor_parallel, "gate+up" if self.gated else "up"
            if width and layers:
                found.append(Gemm(name=which + up, n=wide * (2 if self.gated else 1), k=self.hidden, layers=layers))
                found.append(Gemm(name=which + "down", n=self.hidden, k=wide, layers=layers))
        found.append(Gemm(name="lm head", n=self.vocabulary // tensor_parallel, k=self.hidden, layers=1))
        return tuple(found)

    @property
    def kv_bytes_per_token(self) -> float:
        """Of the KV cache in 16 bits, all layers that see every earlier token."""
        return float(sum(2 * 2 * k.layers * k.kv_heads * k.head_size for k in self.attention if k.window is None))

    @property
    def active_parameters(self) -> float:
        """Weights that one token is multiplied with, the embedding table left out."""
        weights = float(sum(g.n * g.k * g.layers for g in self.gemms()))
        if self.experts:
            wide = self.experts.top_k * self.experts.intermediate
            weights += 3.0 * self.hidden * wide * self.experts.layers
        return weights + float(self.linear_attention_weights * self.linear_attention_layers)

    @property
    def parameters(self) -> float:
        """All weights that have to lie in memory."""
        more = 0.0
        if self.experts:
            idle = self.experts.count - self.experts.top_k
            more = 3.0 * self.hidden * self.experts.intermediate * idle * self.experts.layers
        return self.active_parameters + more + (0 if self.tied_embeddings else self.vocabulary * self.hidden)


def model_shape(config: Mapping[str, Any]) -> ModelShape:
    """From the parsed config.json. Raises ModelShapeError."""
    text = config.get("text_config")
    c: dict[str, Any] = {**config, **text} if isinstance(text, dict) else dict(config)
    hidden, heads = (_whole(c, key) for key in ("hidden_size", "num_attention_heads"))
    layers = _whole(c, "num_hidden_layers", most=MOST_LAYERS)
    for key in _READ_ELSEWHERE:
        _whole(c, key, 0)
    kinds, linear = _attention(c, layers, hidden, heads)
    net = _delta_net(c) if linear else None
    experts = _experts(c, layers)
    quantization = c.get("quantization_config")
    quantization = quantization if isinstance(quantization, dict) else {}
    _bounded(quantization, "quantization_config")
    names = config.get("architectures") or c.get("architectures") or ["unknown"]
    if not isinstance(names, list):
        raise ModelShapeError(f"config.json has architectures = {_shown(names)}; a list of names belongs there")
    return ModelShape(
        architecture=str(names[0]),
        hidden=hidden,
        layers=layers,
        vocabulary=_whole(c, "vocab_size"),
        attention=kinds,
        linear_attention_layers=linear,
        linear_attention_weights=4 * hidden**2 if linear and net is None else 0,  # as attention of this width
        delta_net=net,
        output_gate=_output_gate(c),
        intermediate=_whole(c, "intermediate_size", 0),
        dense_layers=layers - (experts.layers if experts else 0),
        gated=c.get("hidden_act", c.get("hidden_activation", "silu")) not in ("relu", "gelu_new"),
        experts=experts,
        dtype=str(c.get("dtype") or c.get("torch_dtype") or "bfloat16").removeprefix("torch."),
        quantization=str(quantization["quant_method"]) if quantization.get("quant_method") else None,
        quantization_config=quantization,
        tied_embeddings=bool(c.get("tie_word_embeddings", False)),
        max_positions=_whole(c, "max_position_embeddings", 0) or None,
    )


_MISSING = object()
# step_work.latent_of takes them from the same file.
_READ_ELSEWHERE = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")


def _whole(c: Mapping[str, Any], key: str, default: Any = _MISSING, most: int = MOST) -> int:
    value = c.get(key)
    if value is None and default is not _MISSING:
        return int(default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ModelShapeError(f"config.json has {key} = {_shown(value)}; a decoder needs a whole number there")
    if value > most:
        raise ModelShapeError(f"config.json has {key} = {_shown(value)}; a decoder has at most {most:,}")
    return value


def _bounded(value: Any, where: str) -> None:
    """Numbers anywhere in it, as far as they can be calculated with."""
    if isinstance(value, dict):
        for key, held in value.items():
            _bounded(held, f"{where}.{key[:40]}")
    elif isinstance(value, list):
        for held in value:
            _bounded(held, where)
    elif isinstance(value, int | float) and not abs(value) <= MOST:  # NaN is not
        raise ModelShapeError(f"config.json has {where} = {_shown(value)}; at most {MOST:,} makes sense there")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:30]}... ({len(text)} characters)"


def _attention(c: Mapping[str, Any], layers: int, hidden: int, heads: int) -> tuple[tuple[AttentionKind, ...], int]:
    """Kinds of attention layers and the number of linear-attention layers. `layer_types` says which layer is what;
    without it, sliding_window_pattern p (every p-th layer is full) or one window for all."""
    size = _whole(c, "head_dim", hidden // max(heads, 1))
    kv = _whole(c, "num_key_value_heads", heads)
    window = c.get("sliding_window") if c.get("use_sliding_window", True) else None
    seen = isinstance(window, int) and not isinstance(window, bool) and window > 0
    window = _whole(c, "sliding_window") if seen else None
    types = c.get("layer_types")
    if not isinstance(types, list) or len(types) != layers:
        pattern, every = c.get("sliding_window_pattern"), c.get("full_attention_interval")
        if isinstance(every, int) and every > 0:
            types = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
        elif isinstance(pattern, int) and pattern > 0 and window:
            types = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(layers)]
        else:
            types = ["sliding_attention" if window else "full_attention"] * layers
    sliding = sum(t in ("sliding_attention", "chunked_attention") for t in types)
    linear = sum(t in ("linear_attention", "mamba", "recurrent") for t in types)
    # Gemma's newer ones have wider heads and fewer KV heads where everything is seen.
    full = AttentionKind(
        layers=layers - sliding - linear,
        heads=heads,
        kv_heads=_whole(c, "num_global_key_value_heads", kv),
        head_size=_whole(c, "global_head_dim", size),
    )
    near = AttentionKind(layers=sliding, heads=heads, kv_heads=kv, head_size=size, window=window)
    return tuple(kind for kind in (full, near) if kind.layers), linear


def _delta_net(c: Mapping[str, Any]) -> DeltaNet | None:
    """None for other kinds of linear attention, which name their sizes otherwise."""
    names = ("linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim")
    if any(c.get(name) is None for name in names):
        return None
    key_heads, key_size, value_heads, value_size = (_whole(c, name) for name in names)
    return DeltaNet(key_width=key_heads * key_size, value_width=value_heads * value_size, value_heads=value_heads)


def _output_gate(c: Mapping[str, Any]) -> bool:
    """As configured; where it is not, the models with gated delta nets have one (vLLM 0.33.0, models/qwen3_next.py:315:
    attn_output_gate, True by default), but not those with negative eigenvalues (models/olmo_hybrid.py:109)."""
    default = c.get("linear_num_value_heads") is not None and c.get("linear_allow_neg_eigval") is None
    return bool(c.get("attn_output_gate", default))


def _experts(c: Mapping[str, Any], layers: int) -> Experts | None:
    count = next((c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if c.get(k)), None)
    if not isinstance(count, int):
        return None
    count = _whole({"num_experts": count}, "num_experts")
    step = _whole(c, "decoder_sparse_step", 1) or 1
    dense_first = _whole(c, "first_k_dense_replace", 0)
    dense = c.get("mlp_only_layers")
    with_experts = sum(
        i >= dense_first and (i + 1) % step == 0 and i not in (dense if isinstance(dense, list) else [])
        for i in range(layers)
    )
    wide = _whole(c, "moe_intermediate_size", _whole(c, "intermediate_size", 0))
    shared = _whole(c, "shared_expert_intermediate_size", _whole(c, "n_shared_experts", 0) * wide)
    top_k = _whole(c, "num_experts_per_tok", _whole(c, "top_k_experts", 1))
    if top_k > count:
        raise ModelShapeError(f"config.json sends a token to {top_k} of {count} experts; num_experts_per_tok is less")
    return Experts(
        layers=with_experts,
        count=count,
        top_k=top_k,
        intermediate=wide,
        shared_intermediate=shared,
    )
