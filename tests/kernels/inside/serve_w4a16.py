"""Run by the engine's interpreter, with Triton's interpreter in place of a card: real layers of vLLM, made as its model
code makes them, with and without nightgate's kernel. Prints one JSON object.

With the argument `fork`, vLLM takes a kernel of its own before all that are listed, as ai-infos/vllm-gfx906-mobydick
does on gfx906: a stand-in for such a fork."""

from __future__ import annotations

import json
import sys

import torch
from vllm.model_executor.kernels import linear as kernels
from vllm.platforms import current_platform

if "fork" in sys.argv:  # before others take the function by its name
    listed = kernels._POSSIBLE_KERNELS[current_platform._enum]
    (favourite,) = [kernel for kernel in listed if kernel.__name__ == "CPUWNA16LinearKernel"]
    by_the_list = kernels.choose_mp_linear_kernel

    def choose(config, compute_capability=None):  # type: ignore[no-untyped-def]
        return favourite if favourite.can_implement(config)[0] else by_the_list(config, compute_capability)

    kernels.choose_mp_linear_kernel = choose

from nightgate_kernels.plugin import register  # type: ignore[import-not-found]
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.layers.quantization import auto_awq
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsWNA16

K, N, GROUP = 256, 48, 32
torch.manual_seed(0)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31, shape).to(torch.int32)


def loaded(layer: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> torch.nn.Module:
    for name, tensor in tensors.items():
        getattr(layer, name).data.copy_(tensor)
    return layer


def nibble(word: torch.Tensor, at: int) -> torch.Tensor:
    return (word >> (4 * at)) & 15


def relative(got: torch.Tensor, weights: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> float:
    """The largest difference to float64, over the size of the numbers that were summed."""
    exact = x.double() @ weights.T + bias.double()
    size = (x.double().square() @ weights.square().T).sqrt() + bias.double().abs()
    return float(((got.double() - exact).abs() / size).max())


def compressed(symmetric: bool) -> dict[str, object]:
    """weight_packed [n, k / 8], weight_scale [n, k / group], weight_zero_point [n / 8, k / group]."""
    scheme = CompressedTensorsWNA16(num_bits=4, strategy="group", group_size=GROUP, symmetric=symmetric)
    layer = torch.nn.Module()
    scheme.create_weights(
        layer, output_size=N, input_size=K, output_partition_sizes=[N], input_size_per_partition=K,
        params_dtype=torch.bfloat16, weight_loader=lambda *_: None,
    )  # fmt: skip
    packed, scales, zeros = words(N, K // 8), (torch.rand(N, K // GROUP) + 0.1).bfloat16(), words(N // 8, K // GROUP)
    loaded(layer, {"weight_packed": packed, "weight_scale": scales})
    if not symmetric:
        loaded(layer, {"weight_zero_point": zeros})
    whole = torch.stack([nibble(packed, j) for j in range(8)], dim=-1).reshape(N, K).double()
    zero = torch.stack([nibble(zeros, j) for j in range(8)], dim=1).reshape(N, K // GROUP).double()
    weights = (whole - (8 if symmetric else zero.repeat_interleave(GROUP, 1))) * scales.double().repeat_interleave(
        GROUP, 1
    )
    scheme.process_weights_after_loading(layer)
    return {"kernel": type(scheme.kernel).__name__, **told(lambda x, b: scheme.apply_weights(layer, x, b), weights)}


def awq(method: LinearMethodBase) -> dict[str, object]:
    """qweight [k, n / 8], qzeros [k / group, n / 8], scales [k / group, n], the values of a word in AWQ's order."""
    layer = torch.nn.Module()
    method.create_weights(layer, K, [N], K, N, torch.bfloat16, weight_loader=lambda *_: None)
    qweight, qzeros, scales = words(K, N // 8), words(K // GROUP, N // 8), (torch.rand(K // GROUP, N) + 0.1).bfloat16()
    loaded(layer, {"qweight": qweight, "qzeros": qzeros, "scales": scales})
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    whole = torch.stack([nibble(qweight, at) for at in order], dim=-1).reshape(K, N).double()
    zero = torch.stack([nibble(qzeros, at) for at in order], dim=-1).reshape(K // GROUP, N).double()
    weights = ((whole - zero.repeat_interleave(GROUP, 0)) * scales.double().repeat_interleave(GROUP, 0)).T
    method.process_weights_after_loading(layer)
    kernel = getattr(method, "kernel", None)
    found = told(lambda x, b: method.apply(layer, x, b), weights)
    return {"kernel": type(kernel).__name__ if kernel else str(hasattr(layer, "nightgate_group")), **found}


def told(run, weights: torch.Tensor) -> dict[str, object]:  # type: ignore[no-untyped-def]
    errors = {}
    for rows in (1, 7, 65):  # 65: the weights are unpacked
        x, bias = torch.randn(rows, K).bfloat16(), torch.randn(N).bfloat16()
        errors[str(rows)] = relative(run(x, bias), weights, x, bias)
    return {"errors": errors}


def main() -> None:
    register()
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "tcp://127.0.0.1:0", 0, "gloo")
        initialize_model_parallel(1, 1)
        config = auto_awq.AutoAWQConfig(4, GROUP, True, False, None, {})
        found = {
            "symmetric": compressed(True),
            "zero points": compressed(False),
            "awq": awq(auto_awq.AutoAWQMarlinLinearMethod(config)),
            "awq on amd": awq(auto_awq.AutoAWQLinearMethod(config)),
        }
    print(json.dumps(found))


main()
