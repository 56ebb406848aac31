"""Which `timeout` ends a night: real ones, with real processes in between, and what they are told as."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cards.timeouts import Process, ancestors, asked, duration_s, own_pid, reaches, timeouts
from tests.cards.trees import write

CHECKOUT = Path(__file__).parents[2]
CODE = """
from pathlib import Path
from cards.timeouts import Process, ancestors, own_pid, timeouts
chain = [Process(Path("/"), own_pid()), *ancestors(Path("/"), own_pid())]
print(list(timeouts(Path("/"), chain)), flush=True)
"""


def told_beneath(command: str, tmp_path: Path, then: str = "", shell: str = "/bin/sh") -> str:
    """What a process says that `command`, a shell's line, runs as NIGHT. It begins in a session of its own."""
    night = tmp_path / "night"
    write(night, f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(CHECKOUT)!r})\n{CODE}{then}")
    night.chmod(0o755)
    line = command.replace("NIGHT", str(night)) + "; true"  # so that the shell does not become its last command
    done = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "SHELL": shell},  # script's
    )
    return done.stdout + done.stderr


def test_a_timeout_above_us_for_real(tmp_path: Path) -> None:
    said = told_beneath("timeout -k 1 90s NIGHT", tmp_path)
    assert "`timeout 90s` (pid " in said  # and not the 1 of -k
    assert ancestors(Path("/"), os.getpid())[0].pid == os.getppid()


REACHED = {
    "timeout 90s sh -c 'NIGHT; true'": True,
    "timeout 90s sh -c 'setsid --wait NIGHT; true'": False,
    "timeout 90s setsid NIGHT": True,  # its child, whatever the session
    "timeout 90s bash -c 'set -m; NIGHT; true'": False,  # a job of its own, as an interactive shell makes them
    "timeout --foreground 90s sh -c 'NIGHT; true'": False,  # "children of COMMAND will not be timed out"
    "timeout --foreground 90s NIGHT": True,
    "timeout 90s timeout inf sh -c 'NIGHT; true'": True,  # passes it on to a group of its own
    "timeout 90s timeout 0 sh -c 'setsid -w NIGHT; true'": False,
    "timeout 90s sh -c 'timeout --foreground 0 setsid NIGHT; true'": True,
    # script ends its shell. Where that was the first of its terminal's session, the kernel hangs up its foreground.
    "timeout 90s script -qec NIGHT /dev/null": True,
    "timeout 90s script -qec 'NIGHT; true' /dev/null": True,
    "timeout 90s script -qec 'timeout --foreground 0 NIGHT; true' /dev/null": True,
    "timeout 90s script -qec 'timeout 0 NIGHT; true' /dev/null": False,  # not in the foreground
    "timeout 90s script -qec 'nohup NIGHT | cat; true' /dev/null": False,
    "script -qec \"exec timeout 90s sh -c 'timeout --foreground 0 NIGHT; true'\" /dev/null": True,
    "script -qec \"exec timeout 90s sh -c 'timeout 0 NIGHT; true'\" /dev/null": False,
    "script -qec \"exec timeout 90s bash -c 'set -m; NIGHT; true'\" /dev/null": True,  # hung up by timeout's own end
    "script -qec \"timeout 90s bash -c 'set -m; NIGHT; true'; true\" /dev/null": False,
    # An interactive shell sends the hang-up on to its jobs, in the background too.
    "timeout 90s script -qec \"bash --norc -ic 'NIGHT & wait; true'\" /dev/null": True,
    "timeout 90s script -qec \"bash --norc -ic 'NIGHT | cat & wait; true'\" /dev/null": True,
    "timeout 90s script -qec \"bash --norc -ic '(NIGHT; true) & wait; true'\" /dev/null": True,
    "timeout 90s script -qec \"bash --norc -ic 'nohup NIGHT | cat & wait; true'\" /dev/null": False,
    "timeout 90s script -qec \"bash -c 'set -m; NIGHT & wait; true'\" /dev/null": False,
    # Whoever made the terminal: with it the terminal goes.
    f'timeout 90s {sys.executable} -c \'import pty; pty.spawn(["sh", "-c", "NIGHT; true"])\'': True,
    f'timeout 90s {sys.executable} -c \'import pty; pty.spawn(["sh", "-c", "nohup NIGHT | cat; true"])\'': False,
}
SHELLS = [shell for shell in ("/bin/sh", "/bin/bash") if shutil.which(shell)]  # bash becomes its last command
CASES = [
    pytest.param(
        command,
        reached,
        shell,
        id=f"{command.replace(sys.executable, 'python')}-{reached}-{shell}",
        marks=pytest.mark.skipif("script" in command and shutil.which("script") is None, reason="no script here"),
    )
    for command, reached in REACHED.items()
    for shell in (SHELLS if "script -qec NIGHT" in command else SHELLS[:1])
]


@pytest.mark.parametrize(("command", "reached", "shell"), CASES)
def test_a_timeout_is_told_when_it_can_reach_us(command: str, reached: bool, shell: str, tmp_path: Path) -> None:
    said = told_beneath(command, tmp_path, shell=shell)
    assert ("`timeout 90s` (pid " in said) == reached and "[" in said, said


@pytest.mark.parametrize(("command", "reached", "shell"), CASES)
def test_it_does_what_is_told(command: str, reached: bool, shell: str, tmp_path: Path) -> None:
    """The same lines, and the timeout rings (SIGALRM is what its timer sends it): does the night hear anything?"""
    then = f"""
import os, signal, time
def hear(number, frame):
    open({str(tmp_path / "heard")!r}, "w")
    os._exit(0)
signal.signal(signal.SIGTERM, hear)
if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as a night does
    signal.signal(signal.SIGHUP, hear)
[rings] = [p.pid for p in chain if p.name == "timeout" and "90s" in p.command]
open({str(tmp_path / "up")!r}, "w")
os.kill(rings, signal.SIGALRM)
time.sleep({10 if reached else 1})
open({str(tmp_path / "lived")!r}, "w")
"""
    told_beneath(command, tmp_path, then, shell)
    within = time.monotonic() + 30  # beneath script nothing of the night holds our pipe: it may outlive that
    while not (there := {name for name in ("heard", "lived") if (tmp_path / name).exists()}):
        assert (tmp_path / "up").exists() and time.monotonic() < within
        time.sleep(0.05)
    assert there == {"heard" if reached else "lived"}


def test_in_a_pid_namespace_that_kept_the_outer_proc(tmp_path: Path) -> None:
    """getpid() is 1 there, which is somebody else in /proc, and a process has two numbers for its group."""
    if subprocess.run(["unshare", "-Urpf", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    assert "`timeout 90s` (pid " in told_beneath("timeout 90s unshare -Urpf sh -c 'NIGHT; true'", tmp_path)
    assert own_pid() == os.getpid()


@pytest.mark.parametrize(
    ("command", "word", "foreground"),
    [
        ("timeout 90 night", "90", False),
        ("timeout inf night 8", "inf", False),  # and not the 8
        ("timeout -k 10 300 night", "300", False),
        ("timeout -k10 -sKILL 300 night", "300", False),
        ("timeout -vk 10 300 night", "300", False),
        ("timeout -vfs 9 300 night", "300", True),
        ("timeout --kill-after=10 300 night", "300", False),
        ("timeout --kill 10 --sig 9 300 night", "300", False),  # cut short, as getopt_long allows
        ("timeout --fore --preserve-status 300 night", "300", True),
        ("timeout -- 300 night", "300", False),
        ("timeout 300 night --foreground", "300", False),
        ("timeout", "", False),
        ("timeout -k", "", False),
    ],
)
def test_the_command_line_of_a_timeout(command: str, word: str, foreground: bool) -> None:
    assert asked(command.split()) == (word, foreground)


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        ("90", 90),
        ("1.5h", 5400),
        (".5d", 43200),
        ("5.m", 300),
        ("1e3", 1000),
        ("+300s", 300),
        ("0", None),  # it never rings
        ("0.0h", None),
        ("inf", None),
        ("infinityd", None),
        ("1e999", None),
        ("1_000", None),
        ("five", None),
        ("", None),
    ],
)
def test_durations(word: str, seconds: float | None) -> None:
    assert duration_s(word) == seconds


def tree(root: Path, uptime: str, started_ticks: int) -> list[tuple[str, float]]:
    """A night, 7, below a `timeout 8h` (made-up /proc)."""
    for pid, parent, name, command in ((7, 6, "python", "python"), (6, 1, "timeout", "timeout\0008h\0night")):
        write(root / f"proc/{pid}/status", f"Name:\t{name}\nPPid:\t{parent}\nNSpgid:\t6\n")
        write(root / f"proc/{pid}/comm", f"{name}\n")
        write(root / f"proc/{pid}/cmdline", f"{command}\0")
        before = " ".join(["S", str(parent), *["0"] * 17])
        write(root / f"proc/{pid}/stat", f"{pid} (odd) name) {before} {started_ticks} 0 0\n")
    write(root / "proc/uptime", uptime)
    return list(timeouts(root, [Process(root, 7), *ancestors(root, 7)]))


def test_what_is_gone_of_a_timeout_is_not_left(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    hour = 3600
    assert tree(tmp_path, f"{10 * hour}.00 5.00\n", 3 * hour * ticks) == [
        ("`timeout 8h` (pid 6) above this shell", hour)
    ]
    assert tree(tmp_path, f"{12 * hour}.00 5.00\n", 3 * hour * ticks) == []  # it has rung, and we are here
    assert tree(tmp_path, "5.00 5.00\n", 3 * hour * ticks)[0][1] == 8 * hour  # a container's own uptime
    assert tree(tmp_path, "soon\n", 3 * hour * ticks)[0][1] == 8 * hour


def test_many_timeouts_do_not_take_long(tmp_path: Path) -> None:
    for pid in range(2, 66):
        write(tmp_path / f"proc/{pid}/status", f"PPid:\t{pid - 1}\nNSpgid:\t{pid}\n")
        write(tmp_path / f"proc/{pid}/comm", "python\n" if pid == 65 else "sh\n" if pid == 64 else "timeout\n")
        write(tmp_path / f"proc/{pid}/cmdline", "timeout\0009d\0night\0")
    chain = [Process(tmp_path, 65), *ancestors(tmp_path, 65)]
    assert list(timeouts(tmp_path, chain)) == []  # each ends the one below it; the last ends sh, which keeps it
    assert reaches(chain[1:], 1, False, set())
