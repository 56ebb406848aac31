"""Faults of the model: a layer or module of the built model gets another class, or another number, before weights load.

torch.compile traces the faulty forward, so each of these works eager and compiled.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

from .common import VARIABLE, say, whole_number


def _after_build(change: Callable[[Any], str]) -> None:
    """`change(model)` on each LlamaModel as soon as it is built; it returns what it did, for the log."""
    from vllm.model_executor.models import llama

    build = llama.LlamaModel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        say(change(self))

    llama.LlamaModel.__init__ = init


def _middle(model: Any, argument: str) -> int:
    number = int(argument) if argument else len(model.layers) // 2
    if not 0 <= number < len(model.layers):
        raise ValueError(f"{VARIABLE}: layer {number} does not exist; the model has {len(model.layers)}")
    return number


def skip_layer(argument: str) -> None:
    """Leave out one decoder layer (the middle one, or `:n`)."""
    from vllm.model_executor.models.llama import LlamaDecoderLayer

    class SkippedLayer(LlamaDecoderLayer):
        def forward(self, positions: Any, hidden_states: Any, residual: Any) -> Any:
            return hidden_states, residual

    def change(model: Any) -> str:
        number = _middle(model, argument)
        model.layers[number].__class__ = SkippedLayer
        return f"skip_layer, decoder layer {number} of {len(model.layers)} is left out"

    _after_build(change)


def scale_layer(argument: str) -> None:
    """Multiply the output of the middle decoder layer by 1.01 (or `:factor`)."""
    from vllm.model_executor.models.llama import LlamaDecoderLayer

    factor = float(argument) if argument else 1.01

    class ScaledLayer(LlamaDecoderLayer):
        def forward(self, positions: Any, hidden_states: Any, residual: Any) -> Any:
            hidden_states, residual = super().forward(positions, hidden_states, residual)
            return hidden_states * factor, residual * factor  # the output is their sum

    def change(model: Any) -> str:
        number = _middle(model, "")
        model.layers[number].__class__ = ScaledLayer
        return f"scale_layer, output of decoder layer {number} times {factor}"

    _after_build(change)


def rope_base(argument: str) -> None:
    """Rotate with a base that is off by 1 % (or times `:factor`)."""
    from vllm.model_executor.models import llama

    factor = float(argument) if argument else 1.01
    make = llama.get_rope

    def get_rope(*args: Any, rope_parameters: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        wrong = dict(rope_parameters or {})
        wrong["rope_theta"] = wrong.get("rope_theta", 10000) * factor
        return make(*args, rope_parameters=wrong, **kwargs)

    llama.get_rope = get_rope
    _after_build(lambda model: f"rope_base, rotary base times {factor}")


def swap_heads(argument: str) -> None:
    """Swap the outputs of the first two attention heads of the middle layer (or `:n`)."""
    import torch
    from vllm.model_executor.models.llama import LlamaAttention

    class SwappedHeads(LlamaAttention):
        def forward(self, positions: Any, hidden_states: Any) -> Any:
            qkv, _ = self.qkv_proj(hidden_states)
            q, k, v = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
            q, k = self.rotary_emb(positions, q, k)
            out = self.attn(q, k, v)
            first, second, rest = out.split([self.head_dim, self.head_dim, out.shape[-1] - 2 * self.head_dim], dim=-1)
            output, _ = self.o_proj(torch.cat([second, first, rest], dim=-1))
            return output

    def change(model: Any) -> str:
        number = _middle(model, argument)
        model.layers[number].self_attn.__class__ = SwappedHeads
        return f"swap_heads, heads 0 and 1 of decoder layer {number}"

    _after_build(change)


def rms_eps(argument: str) -> None:
    """Every RMSNorm with epsilon 1e-2 (or `:epsilon`)."""
    from vllm.model_executor.layers.layernorm import RMSNorm

    epsilon = float(argument) if argument else 1e-2

    def change(model: Any) -> str:
        norms = [module for module in model.modules() if isinstance(module, RMSNorm)]
        for norm in norms:
            norm.variance_epsilon = epsilon
        return f"rms_eps, epsilon {epsilon} in {len(norms)} RMSNorms"

    _after_build(change)


def fp16_sums(argument: str) -> None:
    """Every linear layer inside the decoder layers sums in float16, rounded after every 4 products (or every `:n`).

    As a kernel whose accumulators are float16 does; vLLM's own sums these in float32. The products are exact, and a
    partial sum over 65504 becomes infinite. In one custom operator: the loop is not traced.
    """
    import torch
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod

    products = whole_number(argument, 4, "the products between two roundings")

    def sums(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x [tokens, in], weight [in, out] in float32; the result [tokens, out] in x's dtype."""
        wide, total = x.float(), torch.zeros(len(x), weight.shape[1], dtype=torch.float16, device=x.device)
        for start in range(0, weight.shape[0], products):
            part = wide[:, start : start + products] @ weight[start : start + products]
            total = (total.float() + part).half()
        return total.to(x.dtype)

    operator = torch.library.custom_op(
        "nightgate_planted::fp16_sums", sums, mutates_args=(), schema="(Tensor x, Tensor weight) -> Tensor"
    )
    operator.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[1]))

    class HalfSums(UnquantizedLinearMethod):
        def process_weights_after_loading(self, layer: Any) -> None:
            layer.register_buffer("wide_weight", layer.weight.data.float().t().contiguous(), persistent=False)

        def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
            out = torch.ops.nightgate_planted.fp16_sums(x, layer.wide_weight)
            return out if bias is None else out + bias

    def change(model: Any) -> str:
        linears = [module for module in model.layers.modules() if isinstance(module, LinearBase)]
        for linear in linears:
            if type(linear.quant_method) is not UnquantizedLinearMethod:
                raise ValueError(f"{VARIABLE}: fp16_sums needs unquantised linear layers")
            linear.quant_method.__class__ = HalfSums
        return f"fp16_sums, {len(linears)} linear layers round their sums to float16 after every {products} products"

    _after_build(change)


def one_in_five(argument: str) -> None:
    """One process of five (or of `:n`), by chance, leaves out the middle layer. The others are right."""
    of = whole_number(argument, 5, "the processes")
    os.environ["VLLM_DISABLE_COMPILE_CACHE"] = "1"  # a right process must not load a wrong one's graph
    if random.SystemRandom().randrange(of) == 0:
        skip_layer("")
    else:
        print(f"PLANTED FAULT one_in_five: not in this process (pid {os.getpid()})", file=sys.stderr, flush=True)
