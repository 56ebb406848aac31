"""Following a ledger that another process is writing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from contracts import Event
from ledger.errors import BadLine, LedgerBroken, NoNight
from ledger.line import GENESIS, decode, ledger_path
from ledger.lock import writer
from ledger.view import NightView

POLL_S = 0.5
GONE_AFTER = 4  # polls without a writer, so that one who is only just starting is not called gone


class Follower:
    """poll() returns what was written since the last call; `view` holds all of it."""

    def __init__(self, night: Path | str) -> None:
        """Raises NoNight."""
        self.path = ledger_path(night)
        if not self.path.is_file():
            raise NoNight(f"no ledger at {self.path}: give the folder of a night, for example logs/NIGHT")
        self.view = NightView()
        self._offset, self._prev, self._told = 0, GENESIS, 0

    def poll(self) -> list[Event]:
        """New events, oldest first. Raises LedgerBroken."""
        try:
            return self._read()
        except BadLine:  # a line that its writer took back (a signal in the middle of it): read all of it again
            self.view, self._offset, self._prev = NightView(), 0, GENESIS
            try:
                return self._read()
            except BadLine as error:
                raise LedgerBroken(f"{self.path}: line {self.view.lines + 1}: {error}") from None

    def _read(self) -> list[Event]:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            if not data and file.seek(0, 2) < self._offset:
                raise BadLine("it was taken back")
        fresh: list[Event] = []
        for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            event = decode(raw, self.view.lines + 1, self._prev)
            self.view = self.view.after(event)
            self._offset, self._prev = self._offset + len(raw), event.hash
            if event.seq > self._told:
                fresh.append(event)
        self._told = max(self._told, self.view.lines)
        return fresh


def follow(night: Path | str, poll_s: float = POLL_S) -> Iterator[Event]:
    """Every event, then new ones as they come, until the night has ended (not an end that it was resumed after) or
    its writer is gone without one. Raises NoNight, LedgerBroken."""
    follower, quiet = Follower(night), 0
    while quiet < GONE_AFTER:
        alone = writer(follower.path.parent) is None  # asked first: one that ends now has written all we read next
        fresh = follower.poll()
        yield from fresh
        if follower.view.finish and (alone or not fresh):
            return
        quiet = quiet + 1 if alone and not fresh else 0
        time.sleep(poll_s)
