"""The append-only ledger of a night: one writer, one synced line an event, each chained to the line before."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from contracts import Event, Frozen
from ledger import reserve
from ledger.errors import BadLine, LedgerBroken, LedgerError, LedgerFull, NightBusy, NightExists, NoNight
from ledger.head import Head, open_head, read_head, write_head
from ledger.line import GENESIS, LEDGER, decode, encode, raw_lines
from ledger.lock import NightLock
from ledger.schema import Warned

__all__ = ["Ledger", "LedgerBroken", "LedgerError", "LedgerFull", "NightBusy", "NightExists", "NoNight"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Ledger:
    """Made by create() or resume(). append() returns when the event is on disk; when it raises, the event is not in
    the ledger and all events before it are. Threads may share one; a forked child may not."""

    def __init__(self, folder: Path, lock: NightLock, written: list[tuple[Event, int]]) -> None:
        """Use create() or resume(). `written` holds each event with the file's length after it."""
        self.folder, self.path = folder, folder / LEDGER
        self.notes: tuple[str, ...] = ()  # what resume() found and repaired, in words
        self._lock, self._written = lock, written
        self._pid, self._mutex, self._writing = os.getpid(), threading.RLock(), False
        self._fd: int | None = None
        with _as_ledger_error(folder, len(written)):
            reserve.hold(folder)
            self._head_fd = open_head(folder, self._head())
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            _sync_folder(folder)

    @classmethod
    def create(cls, night_dir: Path | str) -> Ledger:
        """A new night's ledger; the folder is made if need be. Raises NightExists, NightBusy, LedgerFull,
        LedgerError (unwritable)."""
        folder = Path(night_dir)
        with _as_ledger_error(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)
            lock = NightLock(folder)
        try:
            if (folder / LEDGER).exists() and (folder / LEDGER).stat().st_size:
                raise NightExists(
                    f"{folder} already holds a night: go on with it by --resume, or start one in another folder"
                )
            return cls(folder, lock, [])
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume(cls, night_dir: Path | str) -> Ledger:
        """Goes on with a night, after checking every line. What a crash left of an unfinished line is moved aside to
        `ledger.torn-<n>` and said in a `warned` line and in `notes`. Raises NoNight, NightBusy, LedgerBroken,
        LedgerFull, LedgerError."""
        folder = Path(night_dir)
        if not (folder / LEDGER).is_file():
            raise NoNight(f"{folder} holds no night to go on with: leave out --resume to start one")
        with _as_ledger_error(folder, 0):
            lock = NightLock(folder)
        try:
            written, torn = _load(folder)
            if torn:
                with _as_ledger_error(folder, len(written)):
                    aside = _move_aside(folder, written[-1][1] if written else 0, torn)
            ledger = cls(folder, lock, written)
        except BaseException:
            lock.release()
            raise
        if torn:
            message = f"an unfinished line of {len(torn)} bytes (a crash or a full disk) was moved aside to {aside}"
            ledger.notes = (message,)
            try:
                ledger.append("warned", Warned(message=message, data={"file": aside, "bytes": len(torn)}))
            except BaseException:
                ledger.close()
                raise
        return ledger

    def append(self, kind: str, data: Frozen) -> Event:
        """Writes one event and syncs it. Raises TypeError or ValueError on data that this kind does not hold,
        LedgerFull (the reserve is then free, so that a failure and a finish still fit), LedgerError."""
        with self._mutex:
            if self._fd is None:
                raise LedgerError(f"the ledger of {self.folder.name} is closed: nothing more can be written")
            if os.getpid() != self._pid:
                raise LedgerError("a forked child may not write its parent's ledger")
            if self._writing:  # a signal handler inside append(); a second line now would break the chain
                raise LedgerError("append() was called from inside append(): let the signal handler raise instead")
            self._writing = True
            try:
                event, raw = encode(len(self._written) + 1, _now(), kind, data, self._head().hash)
                self._write(raw)
                self._written.append((event, self._size() + len(raw)))  # one step: no signal can come between
                with suppress(OSError):  # the line is safe already; a head that lags is allowed
                    write_head(self._head_fd, self._head())
                return event
            finally:
                self._writing = False

    @property
    def events(self) -> tuple[Event, ...]:
        """All events of the night so far, those before a resume included."""
        return tuple(event for event, _ in self._written)

    def close(self) -> None:
        """Lets go of the night. Safe to call twice."""
        with self._mutex:
            if self._fd is None or os.getpid() != self._pid:
                return
            with suppress(OSError, LedgerBroken):
                self._cut_back()
            os.close(self._fd)
            os.close(self._head_fd)
            self._fd = None
            with suppress(OSError):
                reserve.release(self.folder)
            self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _head(self) -> Head:
        return Head(len(self._written), self._written[-1][0].hash) if self._written else Head(0, GENESIS)

    def _size(self) -> int:
        return self._written[-1][1] if self._written else 0

    def _write(self, raw: bytes) -> None:
        assert self._fd is not None
        self._cut_back()  # what a signal left of an append that never returned
        try:
            done = os.write(self._fd, raw)
            while done < len(raw):  # short only on a full disk: the next write says which
                done += os.write(self._fd, raw[done:])
            os.fsync(self._fd)
        except OSError as error:
            with suppress(OSError):
                self._cut_back()
            said = _explain(error, self.folder, len(self._written))  # before the reserve changes what is left
            if isinstance(said, LedgerFull):
                reserve.release(self.folder)
            raise said from None

    def _cut_back(self) -> None:
        """The file ends with the last acknowledged line again. Raises LedgerBroken when it is shorter than that."""
        assert self._fd is not None
        found = os.fstat(self._fd)
        if found.st_nlink == 0 or found.st_size < self._size():
            raise LedgerBroken(
                f"{self.path} was deleted or cut while the night was writing it: "
                f"{len(self._written)} lines were safe before that; start a new night"
            )
        if found.st_size > self._size():
            os.ftruncate(self._fd, self._size())
            os.fsync(self._fd)


def _load(folder: Path) -> tuple[list[tuple[Event, int]], bytes]:
    """The acknowledged lines, and the bytes of an unfinished one after them. Raises LedgerBroken."""
    head, path = read_head(folder), folder / LEDGER
    written: list[tuple[Event, int]] = []
    end, prev = 0, GENESIS
    advice = (
        "`.venv/bin/python run_night.py verify NIGHT` says more; restore the file from a copy, or start a new night"
    )
    with path.open("rb") as file:
        for number, raw in enumerate(raw_lines(file), start=1):
            try:
                event = decode(raw, number, prev)
            except BadLine as error:
                acknowledged = head is not None and head.seq >= number
                if acknowledged or file.readline(1):
                    raise LedgerBroken(f"{path}: line {number}: {error}; {advice}") from None
                if raw.endswith(b"\n") and head is None:
                    raise LedgerBroken(f"{path}: line {number}: {error}; {advice}") from None
                return written, raw  # the last line, never acknowledged
            end, prev = end + len(raw), event.hash
            written.append((event, end))
    if head is not None and (len(written) < head.seq or head.seq and written[head.seq - 1][0].hash != head.hash):
        raise LedgerBroken(
            f"{path}: {len(written)} lines, but line {head.seq} was written and is not there: "
            f"lines were dropped at the end; {advice}"
        )
    return written, b""


def _move_aside(folder: Path, end: int, torn: bytes) -> str:
    """Keeps the bytes, then cuts them from the ledger. Returns the name of the file that has them. Raises OSError."""
    reserve.release(folder)  # its space holds them when the disk is full
    number = 1
    while (folder / f"ledger.torn-{number}").exists():
        number += 1
    name = f"ledger.torn-{number}"
    try:
        with (folder / name).open("xb") as file:
            file.write(torn)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        (folder / name).unlink(missing_ok=True)  # half a copy would only take the space that is missing
        raise
    with (folder / LEDGER).open("r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())
    return name


@contextmanager
def _as_ledger_error(folder: Path, lines: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explain(error, folder, lines) from None


def _explain(error: OSError, folder: Path, lines: int) -> LedgerError:
    if error.errno in _FULL:
        try:
            left = f", {shutil.disk_usage(folder).free >> 10} KiB left"
        except OSError:
            left = ""
        return LedgerFull(
            f"the disk of {folder} is full{left}: free at least 1 MiB, then go on with --resume; "
            f"all {lines} lines so far are safe"
        )
    return LedgerError(f"cannot write in {folder} ({error.strerror}): choose a folder that you may write to")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
