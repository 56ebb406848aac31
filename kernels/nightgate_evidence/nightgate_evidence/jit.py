"""Tells every Triton kernel that is compiled while the engine serves: a run with one inside its window is void.

vLLM's own monitor (utils/jit_monitor.py) warns once a kernel's name and says nothing of later variants of it, and
(0.32) nothing at all in eager engines. On an H200 (0.26, 2026-11-30) a run nearly stood still for 8 of its 19 seconds,
just after fused_moe_kernel was first asked for another tile; no line told of it, and it passed as clean. So Triton's
own `compile` is heard, once a variant and process.

    nightgate-evidence compiled {"kernel": "fused_moe_kernel", "seconds": 1.42}
"""

from __future__ import annotations

import functools
import time
from types import ModuleType
from typing import Any

from .hooks import after_import
from .say import line, problem
from .watch import replace

# A variant that lies in the cache on disk is loaded in a few milliseconds, which no window notices; a small kernel
# compiles in 30 (a 2-core x86 machine, for gfx942, Triton 3.9).
LEAST_S = 0.01


def watch() -> None:
    after_import("triton.compiler.compiler", _hear)


def _hear(module: ModuleType) -> None:
    replace(module, "compile", _timed)


def _timed(original: Any) -> Any:
    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return original(*args, **kwargs)
        finally:
            _tell(args[0] if args else kwargs.get("src"), time.monotonic() - began)

    return compile


def _tell(source: Any, seconds: float) -> None:
    try:
        if seconds >= LEAST_S:
            name = getattr(source, "name", None) or getattr(getattr(source, "fn", None), "__name__", None)
            line("compiled", {"kernel": str(name or type(source).__name__), "seconds": round(seconds, 3)})
    except Exception as error:  # an engine never fails for want of evidence
        problem("compiled", error)
