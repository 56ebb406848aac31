"""The entry point that vLLM calls in each of its processes (group vllm.general_plugins)."""

from __future__ import annotations

import sys

from nightgate_kernels import tables  # type: ignore[import-not-found]  # inside vLLM it is on the path


def register() -> None:
    """Replaces nothing of vLLM's unless a kernel table says `dispatch`: no kernel here has been measured inside an
    engine yet. What it then did, or why it did not, is one line on standard error."""
    if tables.dispatched("add_rms_norm"):
        from nightgate_kernels.serve_add_rms_norm import serve  # type: ignore[import-not-found]  # imports torch

        print(f"nightgate_kernels: {serve()}", file=sys.stderr, flush=True)
