"""Has this code object run? Asked without changing it, so that nothing that reads or compiles it sees a difference.

Python 3.12 and later: sys.monitoring tells the start of the one code object, once, and is off for it after that; an
earlier run shows in the counters of its bytecode. CPython 3.11 has no such thing, but counts the first eight runs of
each code object for its own use; a thread reads these numbers five times a second until all have moved (15 us for 60
functions, x86, 2026-11-30). An older Python says nothing.

torch.compile does not run what it compiles: Dynamo reads the bytecode, which is the original here, and the functions
that it read count as seen. Triton gives a kernel its hash when it is first compiled or looked up, its own or as a part
of another one.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from .say import problem

Tell = Callable[[str], None]
EVERY_S = 0.2
_TOOL = 4  # of sys.monitoring; 0, 1, 2 and 5 are a debugger's, coverage's, a profiler's and an optimiser's
_codes: dict[int, tuple[CodeType, Tell]] = {}  # by id; the code is held, so the id stays its own


def watch(code: CodeType, tell: Tell) -> bool:
    """`tell` is called when it runs for the first time, or has run already. False: this Python does not show it."""
    _codes[id(code)] = code, tell
    if sys.version_info >= (3, 12):
        return _monitor(code, tell)
    count = _counter()
    if count is None:
        return False
    _until(lambda: count(code) != _UNTOUCHED, lambda: tell("called"), code.co_name)
    return True


def watch_kernel(kernel: Any, tell: Tell) -> bool:
    """The same for a JITFunction of Triton."""
    if not hasattr(kernel, "hash"):
        return False
    _until(lambda: bool(kernel.hash), lambda: tell("compiled by Triton"), str(getattr(kernel, "__name__", "kernel")))
    return True


def hear_dynamo(module: ModuleType) -> None:
    """torch._dynamo.symbolic_convert: one of its translators is made for each function that is traced."""
    base: Any = module.InstructionTranslatorBase
    original = base.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            found = _codes.get(id(self.f_code))
            if found:
                found[1]("traced by torch.compile")
        except Exception as error:
            problem("torch._dynamo", error)

    base.__init__ = __init__


# --- Python 3.12 ---


@functools.cache
def _tool() -> bool:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    if monitoring.get_tool(_TOOL) is not None:
        problem("sys.monitoring", f"tool {_TOOL} is in use by {monitoring.get_tool(_TOOL)}")
        return False
    monitoring.use_tool_id(_TOOL, "nightgate-evidence")
    monitoring.register_callback(_TOOL, monitoring.events.PY_START, _started)
    return True


def _monitor(code: CodeType, tell: Tell) -> bool:
    if _has_run(code):
        tell("called")
    elif _tool():
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        monitoring.set_local_events(_TOOL, code, monitoring.events.PY_START)
    else:
        return False
    return True


def _started(code: CodeType, _: int) -> Any:
    try:
        _codes[id(code)][1]("called")
    except Exception as error:
        problem(f"start of {code.co_name}", error)
    return sys.monitoring.DISABLE  # type: ignore[attr-defined]


def _has_run(code: Any) -> bool:
    """Most instructions count their runs inside the bytecode; a copy of the code begins afresh."""
    return bool(code._co_code_adaptive != code.replace()._co_code_adaptive)


# --- CPython 3.11 ---

_UNTOUCHED = -8  # QUICKENING_INITIAL_WARMUP_VALUE (Include/internal/pycore_code.h); RESUME and loops count up to 0


@functools.cache
def _counter() -> Callable[[CodeType], int] | None:
    """Reads co_warmup: a short behind the head, three pointers and an int (Include/cpython/code.h, 3.11). Tried on a
    function of our own first; None where that does not count as it should."""
    if sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython":
        return None
    import ctypes

    offset = tuple.__basicsize__ + 3 * ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_int)

    def count(code: CodeType) -> int:
        return ctypes.c_short.from_address(id(code) + offset).value

    names: dict[str, Any] = {}
    exec("def first(): pass\ndef second(): pass", names)
    first, second = names["first"], names["second"]
    before = count(first.__code__), count(second.__code__)
    first()
    if (*before, count(first.__code__), count(second.__code__)) != (-8, -8, -7, -8):
        problem("co_warmup", "does not count as in CPython 3.11")
        return None
    return count


# --- what is looked at again and again ---

_lock = threading.Lock()
_waiting: list[tuple[Callable[[], bool], Callable[[], None], str]] = []
_thread: threading.Thread | None = None


def _until(ready: Callable[[], bool], then: Callable[[], None], where: str) -> None:
    with _lock:
        _at_the_ends()
        _waiting.append((ready, then, where))
        _start()


@functools.cache
def _at_the_ends() -> None:
    atexit.register(_look)
    os.register_at_fork(after_in_child=_forked)


def _start() -> None:
    global _thread
    if _waiting and _thread is None:
        thread = threading.Thread(target=_run, name="nightgate-evidence", daemon=True)
        thread.start()
        _thread = thread


def _forked() -> None:
    """A thread does not live on in a fork."""
    global _lock, _thread
    _lock, _thread = threading.Lock(), None
    _start()


def _run() -> None:
    global _thread
    while True:
        time.sleep(EVERY_S)
        _look()
        with _lock:
            if not _waiting:
                _thread = None
                return


def _look() -> None:
    for entry in list(_waiting):
        ready, then, where = entry
        try:
            if not ready():
                continue
            then()
        except Exception as error:
            problem(f"looking at {where}", error)
        _waiting.remove(entry)
