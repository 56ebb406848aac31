"""`.reserve`: disk space kept free for the last words of a night whose disk is full."""

from __future__ import annotations

import os
from pathlib import Path

RESERVE = ".reserve"
RESERVE_BYTES = 256 << 10  # a failure with a long log tail and a finish take under 20 KiB


def hold(folder: Path) -> None:
    """Random bytes, because a compressing or sparse file system would keep none of the space for zeros. OSError."""
    path = folder / RESERVE
    try:
        if path.exists() and path.stat().st_size == RESERVE_BYTES:
            return
        with path.open("wb") as file:
            file.write(os.urandom(RESERVE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        release(folder)
        raise


def release(folder: Path) -> None:
    (folder / RESERVE).unlink(missing_ok=True)
