"""Run by the engine's interpreter: which kernel vLLM's own choice takes for a 4-bit layer, once nightgate's is served.
A stand-in for ai-infos/vllm-gfx906-mobydick, which moves a kernel of its own to the list's front before it chooses.
Arguments: "inherited" and "odd" give that one's can_implement another form. Prints one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from nightgate_kernels.plugin import register  # type: ignore[import-not-found]
from vllm.config import KernelConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.kernels import linear as kernels
from vllm.platforms import current_platform
from vllm.scalar_type import scalar_types

listed = kernels._POSSIBLE_KERNELS[current_platform._enum]
(theirs,) = [kernel for kernel in listed if kernel.__name__ == "CPUWNA16LinearKernel"]
favourite: Any = theirs
if "inherited" in sys.argv:
    favourite = type("Inherits", (theirs,), {})
elif "odd" in sys.argv:
    favourite = type("Odd", (theirs,), {"can_implement": staticmethod(lambda c: theirs.can_implement(c))})
listed[listed.index(theirs)] = favourite
by_the_list = kernels.choose_mp_linear_kernel
kernels._LINEAR_BACKEND_KERNEL_MAP["triton"] = {favourite}  # --linear-backend triton: that one and no other


def choose(config: Any, compute_capability: int | None = None) -> type:
    whole = kernels._POSSIBLE_KERNELS[current_platform._enum]
    kernels._POSSIBLE_KERNELS[current_platform._enum] = [favourite, *(k for k in whole if k is not favourite)]
    try:
        taken: type = by_the_list(config, compute_capability)
        return taken
    finally:
        kernels._POSSIBLE_KERNELS[current_platform._enum] = whole


kernels.choose_mp_linear_kernel = choose


def layer() -> Any:
    shape = (256, 64)
    return kernels.MPLinearLayerConfig(shape, shape, scalar_types.uint4b8, torch.bfloat16, 128, False)


def taken(settings: VllmConfig) -> str:
    with set_current_vllm_config(settings):
        try:
            return choose(layer()).__name__
        except ValueError as problem:
            return str(problem)


register()
named = VllmConfig(kernel_config=KernelConfig(linear_backend="triton"))
print(json.dumps({"any": taken(VllmConfig()), "named": taken(named)}))
