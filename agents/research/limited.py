"""A time limit for code of ours that may run on foreign files for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLong(Exception):
    """The time is over."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TooLong inside the block after `seconds`, and again each second after that, for code that catches it. By
    SIGALRM, so Python's own loops and regular expressions are reached, one long call into C is not. Without a limit
    outside the main thread, which alone hears signals, and where somebody else waits for SIGALRM."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    over = False

    def ring(_number: int, _frame: FrameType | None) -> None:
        if not over:
            raise TooLong(f"it took more than {seconds:g} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            yield
        finally:
            over = True  # a ring may still come just before this; the next one is a second away
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
