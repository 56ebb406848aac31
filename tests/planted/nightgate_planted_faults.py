"""PLANTED FAULTS, for nightgate's own tests only. Never part of a real night.

A vLLM general plugin that makes an engine wrong on purpose, so that the accuracy gate can be seen to catch it. It does
nothing at all unless the environment variable NIGHTGATE_PLANTED_FAULT names a fault. README.md lists them.

vLLM calls `register()` in each of its processes before the model is built. Faults of the model are put in by giving a
layer or module another class (weights load as ever; torch.compile traces the faulty forward). Faults of sampling are
put in outside the compiled graph. The compile cache gets a root of its own for each fault: vLLM's cache key knows
neither this plugin nor its variable, so a shared cache would serve the healthy graph to the faulty engine, and, worse,
the faulty graph to the next healthy one.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

VARIABLE = "NIGHTGATE_PLANTED_FAULT"


def register() -> None:
    """Entry point of the group vllm.general_plugins."""
    fault = os.environ.get(VARIABLE, "").strip()
    if not fault:
        return
    name, _, argument = fault.partition(":")
    if name not in FAULTS:
        raise ValueError(f"{VARIABLE}={fault}: no such planted fault; one of {', '.join(FAULTS)}")
    root = os.path.expanduser(os.environ.get("VLLM_CACHE_ROOT") or "~/.cache/vllm")
    mark = f"planted-{name}-{argument}".rstrip("-")
    if os.path.basename(root) != mark:
        os.environ["VLLM_CACHE_ROOT"] = os.path.join(root, mark)
    FAULTS[name](argument)


def _say(what: str) -> None:
    print(f"PLANTED FAULT active: {what} (pid {os.getpid()})", file=sys.stderr, flush=True)


# --- faults of the model: change the built model before weights are loaded ----------------------------------------


def _after_build(change: Callable[[Any], str]) -> None:
    """`change(model)` on each LlamaModel as soon as it is built; it returns what it did, for the log."""
    from vllm.model_executor.models import llama

    build = llama.LlamaModel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        _say(change(self))

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


# --- faults of sampling: outside the compiled graph ---------------------------------------------------------------


def _before_sampling(change: Callable[[Any, Any], None]) -> None:
    """`change(runner, logits)` in place, before each sampling step. Logits: [requests that sample, vocabulary]."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    sample = GPUModelRunner._sample

    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        if logits is not None and spec_decode_metadata is None:
            change(self, logits)
        return sample(self, logits, spec_decode_metadata)

    GPUModelRunner._sample = _sample


def _forbid_best(logits: Any, rows: list[int]) -> None:
    for row in rows:
        logits[row, int(logits[row].argmax())] = -1e4


def late_tokens(argument: str) -> None:
    """From the 40th generated token on (or the `:n`th), the best token is forbidden."""
    first = int(argument) if argument else 40

    def change(runner: Any, logits: Any) -> None:
        batch = runner.input_batch
        made = batch.num_tokens_no_spec[: logits.shape[0]] - batch.num_prompt_tokens[: logits.shape[0]]
        _forbid_best(logits, [row for row, count in enumerate(made) if count + 1 >= first])

    _before_sampling(change)
    _in_worker(f"late_tokens, wrong from generated token {first} on")


def big_batch(argument: str) -> None:
    """In batches of more than 8 requests (or `:n`), the rows beyond get a wrong token."""
    most = int(argument) if argument else 8

    def change(runner: Any, logits: Any) -> None:
        _forbid_best(logits, list(range(most, logits.shape[0])))

    _before_sampling(change)
    _in_worker(f"big_batch, wrong in rows beyond {most} of a batch")


def one_in_five(argument: str) -> None:
    """One process of five (or of `:n`), by chance, leaves out the middle layer. The others are right."""
    of = int(argument) if argument else 5
    if random.SystemRandom().randrange(of) == 0:
        skip_layer("")
    else:
        print(f"PLANTED FAULT one_in_five: not in this process (pid {os.getpid()})", file=sys.stderr, flush=True)


def not_greedy(argument: str) -> None:
    """Greedy requests are sampled at temperature 0.7 (or `:temperature`)."""
    import torch
    from vllm.v1.sample.sampler import Sampler

    temperature = float(argument) if argument else 0.7

    def greedy_sample(logits: Any) -> Any:
        probabilities = torch.softmax(logits.float() / temperature, dim=-1)
        return torch.multinomial(probabilities, 1).view(-1)

    Sampler.greedy_sample = staticmethod(greedy_sample)
    _in_worker(f"not_greedy, temperature {temperature} where 0 was asked")


def _in_worker(what: str) -> None:
    """Say so once, where a model runner is made: the process in which the fault takes effect."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    make = GPUModelRunner.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _say(what)

    GPUModelRunner.__init__ = init


FAULTS: dict[str, Callable[[str], None]] = {
    "skip_layer": skip_layer,
    "scale_layer": scale_layer,
    "rope_base": rope_base,
    "swap_heads": swap_heads,
    "rms_eps": rms_eps,
    "late_tokens": late_tokens,
    "big_batch": big_batch,
    "one_in_five": one_in_five,
    "not_greedy": not_greedy,
}
