"""Opens regular files and nothing else: a pipe would be waited for, a device never ends, and a tree or a cache that
somebody else made may hold either under any name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

# Where a pipe is opened this way, nobody is waited for; a regular file does not notice.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def open_regular(path: str | Path) -> BinaryIO:
    """For reading. Raises OSError, for all that is no regular file too."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # asked first: to open a device may already do something
        raise OSError(None, "not a regular file", str(path))
    number = os.open(path, os.O_RDONLY | _AT_ONCE)
    file = os.fdopen(number, "rb")
    if not stat.S_ISREG(os.fstat(number).st_mode):  # put there in between
        file.close()
        raise OSError(None, "not a regular file", str(path))
    return file


def read_regular(path: str | Path, most: int) -> bytes:
    """All of it. Raises OSError, for more than `most` bytes too: what it says it has and what comes may differ."""
    with open_regular(path) as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise OSError(None, f"more than the {most:,} bytes that are read", str(path))
    return raw
