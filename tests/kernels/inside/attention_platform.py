"""Asks a real vLLM's own AMD platform which attention back end it takes, with the plugin nightgate_attention loaded.
Run in the engine's interpreter: attention_platform.py ARCH HEAD_SIZE [broken], prints one line of JSON.

Stand-ins, and nothing else: a module `amdsmi` that reports one card of ARCH; the platform object is vLLM's own
RocmPlatform, put where vLLM keeps the one that it detects; a back end whose module fails for want of Triton counts as
not installed. platforms/rocm.py, the registry, the back ends' classes and their validation are the installed ones. No
card is there, and none is asked.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import torch


def amdsmi(arch: str) -> types.ModuleType:
    found: Any = types.ModuleType("amdsmi")
    found.AmdSmiException = type("AmdSmiException", (Exception,), {})
    found.AmdSmiMemoryType = types.SimpleNamespace(VRAM=0)
    nothing = {name: lambda *_: None for name in ("amdsmi_init", "amdsmi_shut_down", "amdsmi_topo_get_link_type")}
    nothing |= {name: lambda *_: 0 for name in ("amdsmi_get_gpu_memory_total", "amdsmi_topo_get_numa_node_number")}
    for name, function in nothing.items():
        setattr(found, name, function)
    found.amdsmi_get_processor_handles = lambda: ["card 0"]
    found.amdsmi_get_gpu_device_uuid = lambda _: "0"
    found.amdsmi_get_gpu_asic_info = lambda _: {
        "target_graphics_version": arch,
        "device_id": "0x0",
        "market_name": arch,
    }
    return found


def without_triton() -> None:
    """vLLM skips a back end that raises ImportError; without Triton some of them raise something else."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    own = AttentionBackendEnum.get_class

    def get_class(self: Any) -> Any:
        try:
            return own(self)
        except (AttributeError, NameError, TypeError) as error:
            raise ImportError(str(error)) from error

    AttentionBackendEnum.get_class = get_class


def main(arch: str, head_size: int, broken: str = "") -> None:
    sys.modules["amdsmi"] = amdsmi(arch)
    from vllm import platforms
    from vllm.platforms import rocm

    platforms._current_platform = rocm.RocmPlatform()
    without_triton()
    if broken:  # another version, in which the method asks somebody else
        rocm.RocmPlatform.get_valid_backends = classmethod(lambda cls, *_, **__: ([], {}))

    import nightgate_attention

    nightgate_attention.register()
    nightgate_attention.register()  # vLLM may load plugins again
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.v1.attention.selector import AttentionSelectorConfig

    asked = AttentionSelectorConfig(head_size=head_size, dtype=torch.float16, kv_cache_dtype="auto", block_size=None)
    with set_current_vllm_config(VllmConfig()):
        path = rocm.RocmPlatform.get_attn_backend_cls(None, asked)
        order = [backend.name for backend in rocm._get_backend_priorities(False, False)]
    print(json.dumps({"path": path, "order": order, "arch": rocm._GCN_ARCH, "file": rocm.__file__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
