"""A time limit for code of ours that may run on foreign files for ever."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class TooLong(Exception):
    """The time is over."""


def at_most(seconds: float, call: Callable[[], T]) -> T:
    """What `call` returns. Raises TooLong inside it after `seconds`, and again each second after that, for code that
    catches it. By SIGALRM, so Python's own loops and regular expressions are reached, one long call into C is not.
    Without a limit outside the main thread, which alone hears signals, and where somebody else waits for SIGALRM.

    A night's own signal may raise anywhere here, in `finally` too, and the alarm then stays set: so it looks whether
    this call is still running before it raises, and otherwise takes itself away."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        return call()
    over, running = False, sys._getframe()

    def ring(_number: int, frame: FrameType | None) -> None:
        while frame is not None and frame is not running:
            frame = frame.f_back
        if frame is None:
            _quiet()
        elif not over:
            raise TooLong(f"it took more than {seconds:g} s")

    try:
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        return call()
    finally:
        over = True  # a ring may still come just before this; the next one is a second away
        _quiet()


def _quiet() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
