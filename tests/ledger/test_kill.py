"""kill -9 of a writer at random moments: the chain holds after a resume, and nothing acknowledged is missing."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from ledger.line import read_events
from ledger.log import Ledger
from ledger.schema import Warned
from ledger.verify import verify

KILLS = 25


def writer_until_killed(night: Path, acknowledge: int) -> None:
    ledger = Ledger.resume(night)
    while True:
        event = ledger.append("warned", Warned(message="x" * random.randint(0, 6000)))
        os.write(acknowledge, f"{event.seq} {event.hash}\n".encode())


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    Ledger.create(tmp_path).close()
    chance, acknowledged = random.Random(5), {}
    for _ in range(KILLS):
        reader, acknowledge = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                writer_until_killed(tmp_path, acknowledge)
            finally:
                os._exit(1)
        os.close(acknowledge)
        heard = os.read(reader, 80)  # it writes: now kill it somewhere in the lines that follow
        for _ in range(chance.randint(0, 9)):
            heard += os.read(reader, chance.randint(1, 80))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(reader, 1 << 16):
            heard += more
        os.close(reader)
        for line in heard.decode().splitlines():
            seq, digest = line.split()
            acknowledged[int(seq)] = digest
        with Ledger.resume(tmp_path) as ledger:
            ledger.append("warned", Warned(message="after the kill"))
        found = verify(tmp_path)
        assert found.ok, found.reason
    written = {event.seq: event.hash for event in read_events(tmp_path)}
    assert len(acknowledged) >= KILLS
    assert {seq: written.get(seq) for seq in acknowledged} == acknowledged
