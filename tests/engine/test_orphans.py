"""Ending what outlived loop and keeper: by pid and start time, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from contracts import LaunchRecord
from engine import keeper
from engine.orphans import alive, end_orphans, remains, wait_gone

# A leader with one child in its session; both ignore SIGTERM.
TREE = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if len(sys.argv) > 1: subprocess.Popen([sys.executable, __file__])\n"
    "print('up', flush=True)\n"
    "time.sleep(600)\n"
)


def record(pid: int, started: float) -> LaunchRecord:
    return LaunchRecord(
        launch_id="L9", spec_id="s", pid=pid, pid_started=started, port=1, nonce="n", log_path="engine.log"
    )


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[psutil.Process]:
    cwd = tmp_path / "launches" / "L9" / "cwd"
    cwd.mkdir(parents=True)
    (tmp_path / "tree.py").write_text(TREE)
    started = subprocess.Popen(
        [sys.executable, str(tmp_path / "tree.py"), "with-child"], cwd=cwd, start_new_session=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() and started.stdout.readline()  # both are up and ignore SIGTERM
    process = psutil.Process(started.pid)
    tree = [process, *process.children()]
    yield process
    for one in tree:
        if one.is_running():
            one.kill()
    started.wait()
    started.stdout.close()


def test_the_whole_tree_is_ended_even_when_it_ignores_being_asked(leader: psutil.Process) -> None:
    child = leader.children()[0]
    assert end_orphans([record(leader.pid, leader.create_time())], grace_s=0.3) == (leader.pid,)
    assert not alive(child) and not alive(leader)


def test_another_start_time_means_another_process_and_it_is_left_alone(leader: psutil.Process) -> None:
    assert end_orphans([record(leader.pid, leader.create_time() - 60)], grace_s=0.3) == ()
    assert leader.is_running() and leader.children()


def test_what_the_leader_left_behind_is_found_by_its_session(leader: psutil.Process) -> None:
    child, was = leader.children()[0], record(leader.pid, leader.create_time())
    leader.kill()
    wait_gone([leader], 5)
    assert [process.pid for process in remains(was)] == [child.pid]
    assert end_orphans([was], grace_s=0.3) == (leader.pid,)
    assert not alive(child)


def test_a_record_of_nothing_ends_nothing() -> None:
    assert end_orphans([record(2**22 - 1, 1.0)], grace_s=0.1) == ()
    assert end_orphans([]) == ()


def test_processes_whose_names_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel cuts a name after 15 bytes, in the middle of a Chinese character too. Such a process anywhere on the
    machine must not end the keeper: its engine would be left behind. Written down as a folder: a real one would stop
    every keeper on this machine that reads names as text."""
    cut = "模型-模型模".encode()[:15]
    with pytest.raises(UnicodeDecodeError):
        cut.decode()
    for pid, parent in ((50, 1), (51, 50), (52, 51)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/stat").write_bytes(b"%d (" % pid + cut + b") S %d" % parent + b" 0" * 17 + b" 77 0\n")
        (tmp_path / f"{pid}/comm").write_bytes(cut + b"\n")
        (tmp_path / f"{pid}/maps").write_bytes(b"7f00-7f01 rw-s 0 00:19 5   /dev/shm/" + cut + b"\n")
    (tmp_path / "60").mkdir()
    (tmp_path / "60/stat").write_bytes(b"")  # it ended between two looks
    monkeypatch.setattr(keeper, "PROC", str(tmp_path))
    assert keeper.status(51) == ("S", 50, 77)
    assert keeper.status(60) is None
    assert keeper.descendants(50) == {51: 77, 52: 77}
    assert keeper.name(51).startswith("模型-模型")
    assert [os.fsencode(path) for path in keeper.mapped_segments([51])] == [b"/dev/shm/" + cut]
