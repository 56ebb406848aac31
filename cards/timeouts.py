"""coreutils' `timeout` above this process: which of them can reach it, and what is left of each.

Pure over /proc of a root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM

from cards.kernel_files import read_fields, read_line

TICKS = os.sysconf("SC_CLK_TCK")  # a second, in /proc/PID/stat
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"\s*\+?((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity)([smhd]?)", re.ASCII | re.IGNORECASE)
# A signal that ends one of these ends its child too, whatever group that is in. Seen of timeout, script, su and runuser
# (coreutils 9.1, util-linux 2.38); of the others their manuals say so.
PASS_ON = ("timeout", "script", "su", "runuser", "sudo", "dumb-init", "tini", "docker-init", "catatonit")


class Process:
    """This process or one above it. `group`, `session`: its process group and session, None where the kernel does not
    tell them. `foreground`: is that group the one that its terminal's keys (and hang-ups) go to? SIGHUP, number 1, is
    the lowest bit of SigIgn (proc_pid_status(5)); nohup starts its command so. `terminal`: a number, "0" for none."""

    def __init__(self, root: Path, pid: int) -> None:
        self.pid, folder = pid, root / f"proc/{pid}"
        self.name = read_line(folder / "comm") or ""
        self.command = [part for part in (read_line(folder / "cmdline") or "").split("\0") if part]
        # One number for each pid namespace, from that of this /proc inwards (proc_pid_status(5)).
        status = read_fields(folder / "status")
        self.group = next(iter(status.get("NSpgid", "").split()), None)
        self.session = next(iter(status.get("NSsid", "").split()), None)
        self.leads = self.session == str(pid)
        ignored = status.get("SigIgn", "")
        bits = int(ignored, 16) if re.fullmatch(r"[0-9a-f]+", ignored) else 0
        self.ignores_hangup, self.ignores_end = bits & 1 == 1, bits >> (SIGTERM - 1) & 1 == 1
        # Fields 7, 8 and 22 of proc_pid_stat(5), counted from behind the name, which may hold anything.
        later = (read_line(folder / "stat") or "").rpartition(")")[2].split()
        self.terminal = later[4] if len(later) > 4 else "0"
        self.foreground = len(later) > 5 and self.group == later[5]  # of its terminal
        self.started_s = int(later[19]) / TICKS if len(later) > 19 and later[19].isdigit() else None


def own_pid(root: Path = Path("/")) -> int:
    """This process as /proc counts it: another number than getpid() in a pid namespace that kept the outer /proc."""
    told = read_fields(root / "proc/self/status").get("Pid", "")
    return int(told) if told.isdigit() else os.getpid()


def ancestors(root: Path, pid: int) -> list[Process]:
    """The parents of `pid`, nearest first, up to init; what may not be read ends the list."""
    found: list[Process] = []
    for _ in range(64):
        parent = read_fields(root / f"proc/{pid}/status").get("PPid", "0")
        if not parent.isdigit() or int(parent) == 0:
            break
        pid = int(parent)
        found.append(Process(root, pid))
    return found


def timeouts(root: Path, chain: list[Process]) -> Iterator[tuple[str, float]]:
    """(which timeout, seconds left of it) for each that ends chain[0]; each next process is the last one's parent."""
    reaching: set[int] = set()
    told = (read_line(root / "proc/uptime") or "").split()
    now = float(told[0]) if told and DURATION.fullmatch(told[0]) else None
    for place, process in enumerate(chain):
        if place == 0 or process.name != "timeout":
            continue
        word, foreground = asked(process.command)
        if not reaches(chain, place, foreground, reaching):
            continue
        reaching.add(place)
        seconds = duration_s(word)
        if seconds is None:
            continue
        gone = 0.0 if None in (now, process.started_s) else max(0.0, now - process.started_s)  # type: ignore[operator]
        if gone <= seconds:  # else it has rung, and this process is still here
            yield f"`timeout {word}` (pid {process.pid}) above this shell", seconds - gone


def reaches(chain: list[Process], place: int, foreground: bool, reaching: set[int]) -> bool:
    """Does the timeout at `place` end chain[0]? It signals its child and, unless --foreground, its process group; then
    whoever was signalled may pass it on. With the process that made a terminal for its child (script, su -P, Python's
    pty) that terminal goes: the kernel sends SIGHUP to the first of its session, and where that one ends to the
    foreground group (credentials(7)); an interactive shell sends it on to its jobs. `reaching`: places of nearer
    timeouts that would."""
    heard, hung, hung_up = False, False, {chain[place].session} if chain[place].leads else set()
    jobs: set[str | None] = set()  # groups that a shell sends its SIGHUP on to
    for at in range(place - 1, -1, -1):
        parent, this = chain[at + 1], chain[at]
        grouped = not foreground and (None in (this.group, chain[place].group) or this.group == chain[place].group)
        passed_on = at == place - 1 or (heard and parent.name in PASS_ON)
        gone = heard and this.leads and this.terminal not in ("0", parent.terminal)
        if hung and this.group != parent.group and resends(parent):
            jobs.add(this.group)
        told = gone or (this.foreground and this.session in hung_up) or this.group in jobs
        hung = told and not this.ignores_hangup
        heard = grouped or passed_on or hung
        if heard and at in reaching:
            return True
        if heard and this.leads:
            hung_up.add(this.session)
    return heard


def resends(shell: Process) -> bool:
    """Does it send a SIGHUP on to its jobs? bash, where it is interactive: then it ignores SIGTERM (bash(1), Signals).
    zsh by its manual (zshoptions(1), HUP). Jobs that were disowned are not known from here, and counted."""
    return (shell.name == "bash" and shell.ignores_end) or shell.name == "zsh"


def asked(command: list[str]) -> tuple[str, bool]:
    """(duration, --foreground) of a timeout's command line; ("", ...) where it names none. Options end at the first
    other word, long ones may be cut short, and -k and -s take a value (timeout(1))."""
    foreground, words = False, iter(command[1:])
    for word in words:
        if word == "--":
            return next(words, ""), foreground
        if word.startswith("--"):
            foreground |= "--foreground".startswith(word)
            if "=" not in word and ("--kill-after".startswith(word) or "--signal".startswith(word)):
                next(words, "")
        elif word.startswith("-") and len(word) > 1:
            flags = re.match(r"-([^ks]*)([ks]?)(.*)", word, re.DOTALL)
            assert flags is not None
            foreground |= "f" in flags[1]
            if flags[2] and not flags[3]:
                next(words, "")
        else:
            return word, foreground
    return "", foreground


def duration_s(word: str) -> float | None:
    """Seconds of "90", "1.5h", ".5d"; None for what never rings (0, inf) and what timeout would not take."""
    match = DURATION.fullmatch(word)
    seconds = float(match[1]) * UNITS[match[2].lower()] if match else 0.0
    return seconds if 0 < seconds < float("inf") else None
