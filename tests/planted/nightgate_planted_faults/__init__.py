"""PLANTED FAULTS, for nightgate's own tests only. Never part of a real night.

A vLLM general plugin that makes an engine wrong on purpose, so that the accuracy gate can be seen to catch it. It does
nothing at all unless the environment variable NIGHTGATE_PLANTED_FAULT names a fault. ../README.md lists them.

vLLM calls `register()` in each of its processes before the model is built. Faults of the model (model.py) are put in by
giving a layer or module another class (weights load as ever; torch.compile traces the faulty forward). Faults of the KV
cache (kv_cache.py), of sampling and of stopping (sampling.py) are put in outside the compiled graph. The compile cache
gets a root of its own for each fault: vLLM's cache key knows neither this plugin nor its variable, so a shared cache
would serve the healthy graph to the faulty engine, and, worse, the faulty graph to the next healthy one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from . import kv_cache, model, sampling
from .common import VARIABLE


def register() -> None:
    """Entry point of the group vllm.general_plugins."""
    fault = os.environ.get(VARIABLE, "").strip()
    if not fault:
        return
    name, _, argument = fault.partition(":")
    if name not in FAULTS:
        raise ValueError(f"{VARIABLE}={fault}: no such planted fault; one of {', '.join(FAULTS)}")
    _own_cache(f"planted-{name}-{argument}".rstrip("-"))
    FAULTS[name](argument)


def _own_cache(mark: str) -> None:
    """A cache root of its own. What vLLM found out about model classes holds no graph, so that alone stays shared."""
    root = os.path.expanduser(os.environ.get("VLLM_CACHE_ROOT") or "~/.cache/vllm")
    if os.path.basename(root) == mark:
        return  # a child process of one that has it
    own, facts = os.path.join(root, mark), os.path.join(root, "modelinfos")
    os.makedirs(own, exist_ok=True)
    os.makedirs(facts, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(facts, os.path.join(own, "modelinfos"))
    os.environ["VLLM_CACHE_ROOT"] = own


FAULTS: dict[str, Callable[[str], None]] = {
    "skip_layer": model.skip_layer,
    "scale_layer": model.scale_layer,
    "rope_base": model.rope_base,
    "swap_heads": model.swap_heads,
    "rms_eps": model.rms_eps,
    "fp16_sums": model.fp16_sums,
    "one_in_five": model.one_in_five,
    "drop_last_kv_block": kv_cache.drop_last_kv_block,
    "stale_kv_block": kv_cache.stale_kv_block,
    "kv_8bit": kv_cache.kv_8bit,
    "late_tokens": sampling.late_tokens,
    "big_batch": sampling.big_batch,
    "not_greedy": sampling.not_greedy,
    "stop_token": sampling.stop_token,
}
