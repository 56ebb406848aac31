"""add_rms_norm as an implementation of vLLM's fused_add_rms_norm (vllm.ir, 0.30.0 to 0.33.0), asked first.

vLLM keeps a list of providers for such an operation and takes the first whose conditions on the arguments hold. Here
one more is registered, and put in front of whatever list vLLM sets: what it does not take goes on to vLLM's own.
A custom operation of torch stands around the kernel, so that torch.compile calls it and does not look inside.

Tried on a CPU in Triton's interpreter, through vLLM 0.32.0's own dispatch. Never run inside an engine on a card.
"""

import os  # no "from __future__ import annotations" here: torch and vLLM make schemas of the annotations
from typing import Any

import torch

from nightgate_kernels.add_rms_norm import LONGEST_ROW, add_rms_norm  # type: ignore[import-not-found]
from nightgate_kernels.counted import count  # type: ignore[import-not-found]

PROVIDER = "nightgate"


@torch.library.custom_op("nightgate::add_rms_norm", mutates_args=())
def _op(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    count("add_rms_norm")
    shape = x.shape
    rows, others = x.reshape(-1, shape[-1]), residual.reshape(-1, shape[-1])
    out, residual_out = torch.empty_like(rows), torch.empty_like(others)
    add_rms_norm(rows, others, weight, out, residual_out, epsilon)
    return out.view(shape), residual_out.view(shape)


@_op.register_fake
def _(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty(x.shape, dtype=x.dtype, device=x.device)


def takes(
    x: torch.Tensor, x_residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float, variance_size: Any = None
) -> bool:
    """Whether the kernel computes this call: 16-bit rows that fit, of one dtype, with a weight."""
    return (
        variance_size is None
        and weight is not None
        and x.dtype in (torch.float16, torch.bfloat16)
        and x.dtype == x_residual.dtype == weight.dtype
        and x.shape == x_residual.shape
        and x.shape[-1] <= LONGEST_ROW
        and weight.is_contiguous()
        and x.stride(-1) == x_residual.stride(-1) == 1
    )


def serve() -> str:
    """Registers the kernel and puts it first. In one line, what was done."""
    from vllm import ir

    if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
        return "add_rms_norm does not serve vllm.ir.ops.fused_add_rms_norm: Triton needs a GPU"
    op = ir.ops.fused_add_rms_norm
    if PROVIDER in op.impls:
        return "add_rms_norm serves vllm.ir.ops.fused_add_rms_norm already"

    def run(
        x: torch.Tensor, x_residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float,
        variance_size: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        assert weight is not None and variance_size is None  # takes() said so
        found: tuple[torch.Tensor, torch.Tensor] = torch.ops.nightgate.add_rms_norm(x, x_residual, weight, epsilon)
        return found

    op.register_impl(PROVIDER, supports_args=takes)(run)
    theirs = op.set_default

    def ours_first(priority: list[str]) -> None:
        theirs([PROVIDER, *(name for name in priority if name != PROVIDER)])

    op.set_default = ours_first  # the worker calls it with the configured list (vllm/config/kernel.py)
    return "add_rms_norm serves vllm.ir.ops.fused_add_rms_norm, before vLLM's own"
