"""The entry point that vLLM calls in each of its processes (group vllm.general_plugins)."""

from __future__ import annotations

import importlib
import sys

from nightgate_kernels import tables  # type: ignore[import-not-found]  # inside vLLM it is on the path


def register() -> None:
    """Replaces nothing of vLLM's unless a kernel table says `dispatch`: no kernel here has been measured inside an
    engine yet. What it then did, or why it did not, is one line on standard error; a vLLM that is not as ours expects
    starts without it."""
    for kernel in tables.SERVES:
        if tables.dispatched(kernel):
            try:
                said = importlib.import_module(f"nightgate_kernels.serve_{kernel}").serve()  # imports torch
            except Exception as problem:
                said = f"{kernel} does not serve vLLM ({type(problem).__name__}: {' '.join(str(problem).split())})"
            print(f"nightgate_kernels: {said}", file=sys.stderr, flush=True)
