"""A class of one's own for vLLM's attention: the CPU's back end, word for word, and a line in the log when a layer
takes it. For the tests of the plugin nightgate_attention; runs in the engine's interpreter only."""

from __future__ import annotations

import os
import sys
from typing import Any

from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend


class OwnAttention(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls() -> Any:
        print(f"OWN ATTENTION: a layer is made (pid {os.getpid()})", file=sys.stderr, flush=True)
        return CPUAttentionBackend.get_impl_cls()
