"""What the benchmarks that an engine's interpreter runs ask of a command line and of that interpreter."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec


def count(text: str) -> int:
    """For argparse. Raises ArgumentTypeError, which it prints in one line."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 20):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to a million")
    return int(text)


def lacking(*names: str) -> str:
    """Which of these packages this interpreter has not, in words, or ""."""
    missing = [name for name in names if find_spec(name) is None]
    return f"{sys.executable} has no {', '.join(missing)}" if missing else ""
