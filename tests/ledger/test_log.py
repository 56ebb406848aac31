"""Writing a ledger: what append promises, what resume repairs, who may write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from contracts import LaunchRecord
from ledger import log
from ledger.errors import LedgerBroken, LedgerError, NightBusy, NightExists, NoNight
from ledger.line import read_events
from ledger.lock import writer
from ledger.log import Ledger
from ledger.schema import LaunchReady, StageEntered, Warned
from ledger.verify import verify

CHECKOUT = Path(__file__).resolve().parents[2]


def warned(text: str = "made up", **data: object) -> Warned:
    return Warned(message=text, data=data)


def night_of(folder: Path, lines: int) -> Path:
    with Ledger.create(folder) as ledger:
        for number in range(lines):
            ledger.append("warned", warned(f"line {number}"))
    return folder


def test_each_line_is_numbered_chained_and_on_disk_when_append_returns(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "night") as ledger:
        first = ledger.append("warned", warned("grüße \u2028 \x1b[31m"))
        second = ledger.append("stage_entered", StageEntered(stage="baseline"))
        on_disk = ledger.path.read_bytes().split(b"\n")
        assert (first.seq, second.seq) == (1, 2)
        assert second.prev == first.hash and first.prev == "0" * 64
        assert json.loads(on_disk[0]) == first.model_dump() and on_disk[2] == b""
        assert ledger.events == (first, second)
        assert first.at.endswith("+00:00")
    assert list(read_events(tmp_path / "night")) == [first, second]


def test_data_of_another_kind_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Ledger.create(tmp_path) as ledger:
        with pytest.raises(TypeError, match="holds StageEntered, not Warned"):
            ledger.append("stage_entered", warned())
        with pytest.raises(TypeError, match=r"add it to ledger/schema\.py"):
            ledger.append("no_such_kind", warned())
        launch = LaunchRecord(
            launch_id="L", spec_id="s", pid=1, pid_started=float("inf"), port=1, nonce="n", log_path="x"
        )
        with pytest.raises(ValueError, match=r"launch_ready: .*without bound is None"):
            ledger.append("launch_ready", LaunchReady(launch=launch))
        with pytest.raises(ValueError, match="stage"), pytest.warns(UserWarning):
            ledger.append("stage_entered", StageEntered.model_construct(stage=7))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="too long"):
            ledger.append("warned", warned("x" * (17 << 20)))
        assert ledger.path.read_bytes() == b"" and ledger.append("warned", warned()).seq == 1


def test_create_refuses_a_folder_that_holds_a_night(tmp_path: Path) -> None:
    night_of(tmp_path, 1)
    with pytest.raises(NightExists, match="go on with it by --resume"):
        Ledger.create(tmp_path)
    assert writer(tmp_path) is None, "the refusal let go of the lock"


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "night", Path("/proc/night")):
        with pytest.raises(LedgerError, match="choose a folder that you may write to"):
            Ledger.create(folder)


def test_resume_goes_on_where_the_night_stopped(tmp_path: Path) -> None:
    night_of(tmp_path, 3)
    with Ledger.resume(tmp_path) as ledger:
        assert len(ledger.events) == 3 and ledger.notes == ()
        assert ledger.append("warned", warned()).seq == 4
    assert verify(tmp_path).ok
    with pytest.raises(NoNight, match="leave out --resume"):
        Ledger.resume(tmp_path / "nothing")


@pytest.mark.parametrize("torn", [b'{"at":"2026', b"\0" * 5000, b"{" * 20000, "grü".encode()[:-1]])
def test_a_torn_last_line_is_moved_aside_with_its_bytes_and_said(tmp_path: Path, torn: bytes) -> None:
    night_of(tmp_path, 2)
    for number in (1, 2):
        with (tmp_path / "ledger.jsonl").open("ab") as file:
            file.write(torn)
        with Ledger.resume(tmp_path) as ledger:
            assert f"ledger.torn-{number}" in ledger.notes[0]
            assert ledger.events[-1].data["message"] == ledger.notes[0]
        assert (tmp_path / f"ledger.torn-{number}").read_bytes() == torn
    assert verify(tmp_path).lines == 4


def test_a_damaged_last_line_that_was_never_acknowledged_counts_as_torn(tmp_path: Path) -> None:
    """A power loss may leave a line's end on the disk and not its middle."""
    night_of(tmp_path, 2)
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'{"at":"\0\0\0\0"}\n')
    with Ledger.resume(tmp_path) as ledger:
        assert ledger.notes


def test_resume_refuses_a_ledger_that_was_changed(tmp_path: Path) -> None:
    whole = (night_of(tmp_path, 3) / "ledger.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    for changed in (whole.replace(b"line 1", b"line 9"), lines[0] + lines[2], lines[0] + lines[1], whole[:-1], b""):
        (tmp_path / "ledger.jsonl").write_bytes(changed)
        with pytest.raises(LedgerBroken, match=r"run_night\.py verify"):
            Ledger.resume(tmp_path)
        assert (tmp_path / "ledger.jsonl").read_bytes() == changed, "a refused ledger is left as it was found"
    (tmp_path / "ledger.jsonl").write_bytes(whole)
    Ledger.resume(tmp_path).close()


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "n7"):
        with pytest.raises(NightBusy, match=rf"night n7 is being written by pid {os.getpid()} since .* UTC: wait, or "):
            Ledger.resume(tmp_path / "n7")
        holder = writer(tmp_path / "n7")
        assert holder and holder.pid == os.getpid()
        code = f"from ledger.log import Ledger; Ledger.resume({str(tmp_path / 'n7')!r})"
        other = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert f"written by pid {os.getpid()} since" in other.stderr
    assert writer(tmp_path / "n7") is None
    Ledger.resume(tmp_path / "n7").close()


def test_the_lock_of_a_killed_writer_is_taken_over(tmp_path: Path) -> None:
    reader, ready = os.pipe()
    child = os.fork()
    if child == 0:
        Ledger.create(tmp_path).append("warned", warned())
        os.write(ready, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(reader, 1)
    with pytest.raises(NightBusy, match=f"pid {child} "):
        Ledger.resume(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with Ledger.resume(tmp_path) as ledger:
        assert ledger.append("warned", warned()).seq == 2


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    with Ledger.create(tmp_path) as ledger:
        threads = [
            threading.Thread(target=lambda: [ledger.append("warned", warned()) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert verify(tmp_path).lines == 80 and verify(tmp_path).ok


class Stop(BaseException):
    """What a signal handler of the night raises."""


def test_a_signal_anywhere_inside_append_leaves_a_chain_that_goes_on(tmp_path: Path) -> None:
    """The handler raises, as the night's does for Ctrl+C, at whatever byte code append happens to be."""

    def stop(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    acknowledged: list[str] = []
    cut_short = 0
    try:
        with Ledger.create(tmp_path) as ledger:
            for attempt in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 + (attempt % 40) * 1e-5)
                    while True:
                        acknowledged.append(ledger.append("warned", warned(f"attempt {attempt}")).hash)
                except Stop:
                    cut_short += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            ledger.append("warned", warned("the last words"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert cut_short == 300
    assert verify(tmp_path).ok
    written = [event.hash for event in read_events(tmp_path)]
    assert [h for h in written if h in set(acknowledged)] == acknowledged


def test_append_inside_append_is_refused_not_written_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.create(tmp_path) as ledger:
        real = os.fsync

        def handler_that_writes(fd: int) -> None:
            with pytest.raises(LedgerError, match="let the signal handler raise"):
                ledger.append("warned", warned("from inside"))
            real(fd)

        monkeypatch.setattr(log.os, "fsync", handler_that_writes)
        ledger.append("warned", warned())
        monkeypatch.undo()
    assert verify(tmp_path).lines == 1


def test_a_forked_child_a_closed_ledger_and_a_deleted_night_are_refused(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.append("warned", warned())
    child = os.fork()
    if child == 0:
        try:
            ledger.append("warned", warned())
        except LedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(LedgerBroken, match="deleted or cut while the night was writing it"):
        ledger.append("warned", warned())
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.append("warned", warned())
    assert not (tmp_path / ".reserve").exists()


def test_half_a_surrogate_pair_in_an_engine_log_does_not_stop_the_night(tmp_path: Path) -> None:
    with Ledger.create(tmp_path) as ledger:
        ledger.append("warned", Warned.model_construct(message="a \ud800 b", data={}))
    assert verify(tmp_path).ok and next(read_events(tmp_path)).data["message"] == "a ? b"
