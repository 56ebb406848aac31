"""A full disk: the ledger stays valid, and the failure and the finish still fit."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import LedgerError, LedgerFull
from ledger.line import read_events
from ledger.log import Ledger
from ledger.report import write_report
from ledger.schema import NightFinished, Warned
from ledger.verify import verify
from ledger.view import fold


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root; the size limit below tests the same code")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(ledger: Ledger) -> int:
    written = 0
    with pytest.raises(LedgerFull, match="is full.*free at least 1 MiB, then go on with --resume"):
        for _ in range(2000):
            ledger.append("warned", Warned(message="x" * 3000))
            written += 1
    return written


def last_words(ledger: Ledger) -> None:
    ledger.append("warned", Warned(message="the disk is full", data={"tail": ["x" * 200] * 100}))
    ledger.append("night_finished", NightFinished(outcome="problem", reason="the disk is full", exit_code=1))


def test_a_full_disk(small_disk: Path) -> None:
    night, filler = small_disk / "night", small_disk / "filler"
    filler.write_bytes(b"x" * 300_000)
    with Ledger.create(night) as ledger:
        written = fill(ledger)
        assert written > 50
        assert verify(night).lines == written, "the partial line was taken back"
        last_words(ledger)
        write_report(fold(ledger.events), night)
    assert verify(night).ok and verify(night).lines == written + 2

    with pytest.raises(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    report = (night / "report.md").read_text()
    with pytest.raises(LedgerError, match="cannot write .*report"):
        write_report(fold(read_events(night)), night)
    assert (night / "report.md").read_text() == report, "the old report is whole"
    with pytest.raises(LedgerFull):
        Ledger.resume(night)
    filler.unlink()
    with Ledger.resume(night) as ledger:
        ledger.append("warned", Warned(message="space again"))
    assert verify(night).lines == written + 3


def test_no_space_for_a_new_night(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 900_000)
    with pytest.raises(LedgerFull):
        Ledger.create(small_disk / "night")
    (small_disk / "filler").unlink()
    Ledger.create(small_disk / "night").close()


def test_a_torn_line_on_a_full_disk_waits_for_space(small_disk: Path) -> None:
    with Ledger.create(small_disk) as ledger:
        ledger.append("warned", Warned(message="whole"))
    torn = b"y" * 500_000
    with (small_disk / "ledger.jsonl").open("ab") as file:
        file.write(torn)
    (small_disk / "filler").write_bytes(b"x" * 400_000)
    with pytest.raises(LedgerFull):
        Ledger.resume(small_disk)
    assert (small_disk / "ledger.jsonl").read_bytes().endswith(torn), "nothing is cut before its copy is safe"
    (small_disk / "filler").unlink()
    with Ledger.resume(small_disk) as ledger:
        assert ledger.notes
    assert max((small_disk.glob("ledger.torn-*")), key=lambda p: p.stat().st_size).read_bytes() == torn


def test_a_size_limit_in_place_of_a_full_disk(tmp_path: Path) -> None:
    """Stands in for the full disk where no small file system can be mounted: a real EFBIG, without the reserve."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger.create(tmp_path) as ledger:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
            written = fill(ledger)
            assert verify(tmp_path).lines == written
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        last_words(ledger)
    assert verify(tmp_path).ok and verify(tmp_path).lines == written + 2
