"""What every planted fault needs: the variable's name, and one line in the engine's log."""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "NIGHTGATE_PLANTED_FAULT"


def say(what: str) -> None:
    print(f"PLANTED FAULT active: {what} (pid {os.getpid()})", file=sys.stderr, flush=True)


def in_worker(what: str) -> None:
    """Say so once, where a model runner is made: the process in which the fault takes effect."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    make = GPUModelRunner.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        say(what)

    GPUModelRunner.__init__ = init


def whole_number(argument: str, default: int, what: str) -> int:
    """A whole number of at least 1. Raises ValueError naming the variable."""
    if not argument:
        return default
    if not argument.isdecimal() or int(argument) < 1:
        raise ValueError(f"{VARIABLE}: {what} must be a whole number of at least 1, not {argument!r}")
    return int(argument)
