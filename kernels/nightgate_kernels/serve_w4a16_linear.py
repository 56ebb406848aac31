"""w4a16_linear as a linear layer of vLLM for 4-bit weights, asked first.

Two places, since vLLM has two for such layers, each of which has moved (read in 0.26 to 0.33, and in two forks for
gfx906: ai-infos/vllm-gfx906-mobydick, 0.16 to 0.23.1, and nlzy/vllm-gfx906, 0.12):

- the list of mixed-precision linear kernels, from which compressed-tensors, GPTQ and, on NVIDIA, AWQ layers take the
  first that can compute them: ours is put in front. A fork may take one of its own before the list's first
  (mobydick, on gfx906): that one then stands back where ours can compute the layer;
- the method which AWQ layers have on AMD cards and which asks no such list: its weights are laid out anew after
  loading, and its apply() calls the kernel.

What the kernel cannot compute (other widths than 4 bits, activations reordered by GPTQ, odd group sizes) goes on to
vLLM's own. Many rows at once, a prefill, are multiplied by a library, with weights that are unpacked for it.

A real engine of vLLM 0.32.0 on a CPU was served so, in Triton's interpreter, and layers of mobydick's own classes
(ff063e44e, 2026-12-01), there with an amdsmi that was made up to say gfx906. For AMD cards it was compiled
(compile_for_amd.py). It was never run on a card.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch

from nightgate_kernels.counted import count  # type: ignore[import-not-found]
from nightgate_kernels.tables import W4A16_MOST_ROWS  # type: ignore[import-not-found]
from nightgate_kernels.w4a16_linear import unpack, w4a16_linear  # type: ignore[import-not-found]

NAME = "w4a16_linear"
# Newest first; tables.py's SERVES and the lever's WHERE name the same places.
LISTS = ("vllm.model_executor.kernels.linear", "vllm.model_executor.layers.quantization.kernels.mixed_precision")
AWQ_METHODS = (
    "vllm.model_executor.layers.quantization.auto_awq",
    "vllm.model_executor.layers.quantization.awq",
)
# Column 8 i + j of an AWQ word i is the nibble at 4 * AWQ_ORDER[j] (AutoAWQ's packing, vLLM's _REVERSE_AWQ_PACK_ORDER).
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def linear(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, group: int
) -> torch.Tensor:
    """[rows, n] of x's dtype, from x [rows, k] and weights as w4a16_linear takes them."""
    count(NAME)
    if x.stride(-1) != 1:
        x = x.contiguous()
    if x.shape[0] > W4A16_MOST_ROWS:
        return x @ unpack(packed, scales, group, zeros).T
    out = torch.empty(x.shape[0], packed.shape[0], dtype=x.dtype, device=x.device)
    w4a16_linear(x, packed, scales, out, group, zeros)
    return out


_SCHEMA = "(Tensor x, Tensor packed, Tensor scales, Tensor? zeros, int group) -> Tensor"
# torch.compile calls it and does not look inside: the number of rows decides what runs.
_op = torch.library.custom_op("nightgate::w4a16_linear", linear, mutates_args=(), schema=_SCHEMA)


@_op.register_fake
def _(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, group: int
) -> torch.Tensor:
    return torch.empty(x.shape[0], packed.shape[0], dtype=x.dtype, device=x.device)


def apply(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    group: int,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """x: [..., k]. [..., n]."""
    out = torch.ops.nightgate.w4a16_linear(x.reshape(-1, x.shape[-1]), packed, scales, zeros, group)
    if bias is not None:
        out = out + bias
    return out.reshape(*x.shape[:-1], packed.shape[0])


def nibbles(words: torch.Tensor, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """[a, b] int32 -> [a, 8 b] of the words' values from 0 to 15, column 8 i + j from the bits 4 * order[j] of i."""
    shifts = torch.tensor([4 * at for at in order], dtype=torch.int32, device=words.device)
    return ((words.unsqueeze(-1) >> shifts) & 15).reshape(words.shape[0], -1)


def from_awq(qweight: torch.Tensor) -> torch.Tensor:
    """[k, n / 8] int32 of an AWQ checkpoint -> [n, k / 8] as w4a16_linear takes it. A strip of columns at a time: the
    unpacked values take 4 bytes each."""
    k, strips = qweight.shape[0], []
    for strip in qweight.split(64, dim=1):
        values = nibbles(strip, AWQ_ORDER).T.reshape(-1, k // 8, 8)
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=qweight.device)
        strips.append((values << shifts).sum(dim=-1, dtype=torch.int32))
    return torch.cat(strips).contiguous()


def group_of(k: int, said: int) -> int:
    """A configuration's group size; -1 says one group over all of k."""
    return k if said == -1 else said


def fits(k: int, group: int, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot compute a layer, or None."""
    if dtype not in (torch.float16, torch.bfloat16):
        return f"activations of {dtype}; it takes float16 and bfloat16"
    if group <= 0 or group % 8 or k % group:
        return f"groups of {group} in rows of {k}; it takes a multiple of 8 that divides the row"
    return None


def _kernel_class(base: type) -> type:
    from vllm.model_executor.parameter import permute_param_layout_
    from vllm.scalar_type import scalar_types

    class NightgateW4A16LinearKernel(base):
        """One of vLLM's MPLinearKernels."""

        @classmethod
        def get_min_capability(cls) -> int:
            return 0

        @classmethod
        def can_implement(cls, c: Any) -> tuple[bool, str | None]:
            wanted = scalar_types.uint4 if c.zero_points else scalar_types.uint4b8
            if c.weight_type != wanted:
                return False, f"nightgate's kernel takes {wanted} here, not {c.weight_type}"
            if getattr(c, "has_g_idx", False):
                return False, "nightgate's kernel does not reorder activations (GPTQ's act-order)"
            if getattr(c, "out_type", None) not in (None, c.act_type):
                return False, "nightgate's kernel writes the activations' dtype"
            k = c.partition_weight_shape[0]
            why = fits(k, group_of(k, c.group_size), c.act_type)
            return why is None, why and f"nightgate's kernel: {why}"

        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            def weights(param: Any) -> Any:
                permute_param_layout_(param, input_dim=1, output_dim=0, packed_dim=1)
                param.data = param.data.contiguous()  # [n, k / 8]
                return param

            def scales(param: Any) -> Any:
                permute_param_layout_(param, input_dim=1, output_dim=0)
                param.data = param.data.contiguous()  # [n, k / group]
                return param

            def zeros(param: Any) -> Any:
                permute_param_layout_(param, input_dim=1, output_dim=0, packed_dim=0)
                param.data = nibbles(param.data.T).T.to(self.config.act_type).contiguous()  # [n, k / group]
                return param

            self._transform_param(layer, self.w_q_name, weights)
            self._transform_param(layer, self.w_s_name, scales)
            if self.config.zero_points:
                self._transform_param(layer, self.w_zp_name, zeros)

        def apply_weights(
            self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
        ) -> torch.Tensor:
            group = group_of(self.config.partition_weight_shape[0], self.config.group_size)
            zeros = getattr(layer, self.w_zp_name) if self.config.zero_points else None
            packed, scales = getattr(layer, self.w_q_name), getattr(layer, self.w_s_name)
            return apply(x, packed, scales, zeros, group, bias)

    return NightgateW4A16LinearKernel


def _serve_awq(method: Any) -> None:
    """AWQ's own method: after loading, weights as the kernel takes them where it can compute the layer."""
    theirs_load, theirs_apply = method.process_weights_after_loading, method.apply

    def load(self: Any, layer: torch.nn.Module) -> None:
        k = layer.qweight.shape[0]
        group = group_of(k, self.quant_config.group_size)
        plain = self.quant_config.weight_bits == 4 and self.quant_config.zero_point
        if not plain or fits(k, group, layer.scales.dtype):
            theirs_load(self, layer)
            return
        frozen = {"requires_grad": False}
        zeros = nibbles(layer.qzeros.data, AWQ_ORDER).to(layer.scales.dtype).T.contiguous()
        layer.qweight = torch.nn.Parameter(from_awq(layer.qweight.data), **frozen)
        layer.scales = torch.nn.Parameter(layer.scales.data.T.contiguous(), **frozen)
        layer.qzeros = torch.nn.Parameter(zeros, **frozen)
        layer.nightgate_group = group

    def run(self: Any, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        group = getattr(layer, "nightgate_group", None)
        if group is None:
            out: torch.Tensor = theirs_apply(self, layer, x, bias)
            return out
        return apply(x, layer.qweight, layer.scales, layer.qzeros, group, bias)

    method.process_weights_after_loading, method.apply = load, run


def serve() -> str:
    """Registers the kernel and puts it first. In one line, what was done."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not (torch.cuda.is_available() or interpreted):
        return "w4a16_linear does not serve vLLM's linear layers: Triton needs a GPU"
    try:
        from vllm.platforms import current_platform

        kernels = _first_there(LISTS)
    except ImportError as problem:
        return f"w4a16_linear does not serve vLLM's linear layers: {problem}"
    listed = kernels._POSSIBLE_KERNELS
    if isinstance(listed, dict):  # one list a platform, as in 0.16 and later
        listed = listed.setdefault(current_platform._enum, [])
    if any(kernel.__name__ == "NightgateW4A16LinearKernel" for kernel in listed):
        return "w4a16_linear serves vLLM's 4-bit linear layers already"
    ours = _kernel_class(kernels.MPLinearKernel)
    listed.insert(0, ours)
    told = _stand_back(kernels, ours, len(listed))
    if current_platform.is_rocm() or interpreted:
        try:
            methods = _first_there(AWQ_METHODS)
            _serve_awq(getattr(methods, "AutoAWQLinearMethod", None) or methods.AWQLinearMethod)
        except (ImportError, AttributeError) as problem:  # elsewhere in this one, or without what its import needs
            told += f"; AWQ's own method is not served ({problem})"
    return f"w4a16_linear serves vLLM's 4-bit linear layers, before vLLM's own{told}"


def _first_there(names: tuple[str, ...]) -> Any:
    """The first of these modules that is there. Raises ImportError, the first one's."""
    problems = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as problem:
            problems.append(problem)
    raise problems[0]


def _stand_back(kernels: Any, ours: Any, most: int) -> str:
    """Asks vLLM which kernel it takes for a usual layer. While that is not ours, the one that it takes is made to say
    no where ours can compute. At most `most` times. What to add to the line that tells what was done. Where ours is not
    taken at last (VLLM_DISABLED_KERNELS names it), all are as they were: else nobody would compute such a layer."""
    stood_back: dict[str, Callable[[], None]] = {}
    while True:
        try:
            # A capability is given, because vLLM would ask the card for it, and this may be a process that forks later.
            taken = kernels.choose_mp_linear_kernel(_usual(kernels.MPLinearLayerConfig), compute_capability=90)
            if taken is ours:
                return f"; {', '.join(stood_back)} put behind it" if stood_back else ""
            if taken.__name__ in stood_back or len(stood_back) >= most:
                said = f"; but {taken.__name__} is taken first"
                break
            stood_back[taken.__name__] = _say_no(taken, ours)
        except Exception as problem:  # a guest's question: whatever it raises, vLLM starts
            why = " ".join(str(problem).split())
            said = (
                f"; but vLLM does not take it ({why})"
                if stood_back
                else (f"; which kernel is taken was not asked ({type(problem).__name__}: {why})")
            )
            break
    for put_back in stood_back.values():
        put_back()
    return said


def _usual(config: Any) -> Any:
    """A layer of 4096 by 4096, symmetric in groups of 128."""
    from vllm.scalar_type import scalar_types

    shapes = {"full_weight_shape": (4096, 4096), "partition_weight_shape": (4096, 4096)}
    told = {"weight_type": scalar_types.uint4b8, "act_type": torch.float16, "group_size": 128, "zero_points": False}
    more = {"has_g_idx": False} if "has_g_idx" in inspect.signature(config).parameters else {}  # up to 0.26
    return config(**shapes, **told, **more)


def _say_no(theirs: Any, ours: Any) -> Callable[[], None]:
    """And how to undo it."""
    own = vars(theirs).get("can_implement")  # None: a parent's
    asked = theirs.can_implement.__func__

    def can_implement(cls: Any, c: Any) -> tuple[bool, str | None]:
        if not _another_is_asked_for() and ours.can_implement(c)[0]:
            return False, "nightgate's kernel computes this layer"
        answer: tuple[bool, str | None] = asked(cls, c)
        return answer

    def put_back() -> None:
        if own is None:
            del theirs.can_implement
        else:
            theirs.can_implement = own

    theirs.can_implement = classmethod(can_implement)
    return put_back


def _another_is_asked_for() -> bool:
    """--linear-backend leaves only kernels of vLLM's own in the list: none of them may stand back then."""
    from vllm import config

    asked = getattr(config, "get_current_vllm_config_or_none", lambda: None)()
    settings = getattr(asked, "kernel_config", None)
    kinds = getattr(settings, "linear_backend_per_quant", None) or {}
    backend = kinds.get("mixed_precision") or getattr(settings, "linear_backend", "auto")
    return bool(backend != "auto")
