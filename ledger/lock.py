"""One writer a night: an flock on `ledger.lock`, whose holder can be read.

The kernel drops the lock when its holder ends, however it ends, so a dead process never keeps a night.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
from pydantic import ValidationError

from contracts import Frozen
from ledger.errors import LedgerError, NightBusy

LOCK = "ledger.lock"
PATIENCE_S = 2.0  # for a holder that is just ending, or has not yet written its name


class Holder(Frozen):
    """Who writes a night. pid and start time together name the process."""

    pid: int
    host: str
    started: float  # of the process, seconds since the epoch
    since: str  # when it took the lock: UTC, ISO 8601


class NightLock:
    """Held from construction to release(). `took_over` is the holder before, when that one did not let go itself."""

    def __init__(self, night_dir: Path) -> None:
        path = night_dir / LOCK
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _take(self._fd, night_dir)
            self.took_over = _read(self._fd)
            me = psutil.Process()
            holder = Holder(pid=me.pid, host=socket.gethostname(), started=me.create_time(), since=_now())
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, holder.model_dump_json().encode(), 0)
        except BaseException:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """The file stays: removing it would let two processes hold two locks of one name."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def writer(night_dir: Path | str) -> Holder | None:
    """Who is writing this night now, or None. Takes no lock. A holder on another host is believed to live."""
    try:
        fd = os.open(Path(night_dir) / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        holder = _read(fd)
    finally:
        os.close(fd)
    return holder if holder and _lives(holder) else None


def _take(fd: int, night_dir: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise LedgerError(
                    f"the file system of {night_dir} has no locks ({error.strerror}): "
                    "put the night's folder on a local disk"
                ) from None
        holder = _read(fd)
        if holder and _lives(holder) or time.monotonic() > deadline:
            raise NightBusy(_busy(night_dir, holder))
        time.sleep(0.05)


def _busy(night_dir: Path, holder: Holder | None) -> str:
    if holder is None:
        return f"night {night_dir.name} is being written by another process: wait until it ends"
    where = "" if holder.host == socket.gethostname() else f" on {holder.host}"
    since = holder.since[:19].replace("T", " ")
    who = f"night {night_dir.name} is being written by pid {holder.pid}{where} since {since} UTC"
    if _lives(holder):
        return f"{who}: wait, or stop it with Ctrl+C there"
    return f"{who}; that process is gone, but a child of it still holds the night: end the child"


def _lives(holder: Holder) -> bool:
    if holder.host != socket.gethostname():
        return True
    try:
        process = psutil.Process(holder.pid)
        same = abs(process.create_time() - holder.started) < 1.0  # psutil's own clock resolution is 10 ms
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _read(fd: int) -> Holder | None:
    try:
        return Holder.model_validate_json(os.pread(fd, 4096, 0))
    except ValidationError:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
