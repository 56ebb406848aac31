"""What /proc tells about other processes: their names, the CPU time that they took, the device files that they hold.

Formats: proc(5). A process that ends while it is looked at is left out. What this user may not look into is counted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cards.kernel_files import read_line

# Inode of the first PID namespace (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h).
FIRST_PID_NAMESPACE = "pid:[4026531836]"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """CPU time since its start, in seconds. pid and start (clock ticks since boot) together name it."""

    pid: int
    start: int
    name: str
    cpu_s: float


@dataclass(frozen=True)
class OpenDevices:
    """Which processes hold files under /dev open: pid -> ((file descriptor, path), ...)."""

    by_pid: Mapping[int, tuple[tuple[str, str], ...]]
    hidden: int  # processes that this user may not look into

    def holders(self, path: str) -> tuple[int, ...]:
        return tuple(pid for pid, held in self.by_pid.items() if any(name == path for _, name in held))


def pids(root: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(root / "proc") if name.isdigit())
    except OSError:
        return []


def in_first_pid_namespace(root: Path) -> bool | None:
    """Whether a process number that a driver tells is the number that /proc here has. None: not known."""
    try:
        return os.readlink(root / "proc/self/ns/pid") == FIRST_PID_NAMESPACE
    except OSError:
        return None


def name_of(root: Path, pid: int) -> str | None:
    """At most 15 characters: the kernel's own name for it (/proc/PID/comm)."""
    return read_line(root / f"proc/{pid}/comm")


def cpu_times(root: Path) -> dict[int, Process]:
    """Every process. One small file each, about 20 us (Python 3.11)."""
    found = (_stat(root, pid) for pid in pids(root))
    return {process.pid: process for process in found if process is not None}


def cpu_used(before: Mapping[int, Process], after: Mapping[int, Process], own: frozenset[int]) -> list[Process]:
    """Who took CPU time between two looks, but for `own`; the most first. A process that is new counts from its start,
    one that ended in between is not seen. Pure."""
    used = []
    for pid, now in after.items():
        old = before.get(pid)
        since = old.cpu_s if old is not None and old.start == now.start else 0.0
        if pid not in own and now.cpu_s > since:
            used.append(Process(pid, now.start, now.name, now.cpu_s - since))
    return sorted(used, key=lambda process: -process.cpu_s)


def open_devices(root: Path, folder: str = "/dev/") -> OpenDevices:
    """Every process that holds a file below `folder` open. Costs one readlink a file descriptor of the machine."""
    found: dict[int, tuple[tuple[str, str], ...]] = {}
    hidden = 0
    for pid in pids(root):
        place = f"{root}/proc/{pid}/fd"
        try:
            numbers = os.listdir(place)
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        held = []
        for number in numbers:
            try:
                target = os.readlink(f"{place}/{number}")
            except OSError:
                continue
            if target.startswith(folder):
                held.append((number, target))
        if held:
            found[pid] = tuple(held)
    return OpenDevices(found, hidden)


def _stat(root: Path, pid: int) -> Process | None:
    """/proc/PID/stat: pid (name) state ...; the name may hold blanks and brackets. utime is field 14, stime 15, start
    22."""
    head, _, rest = (read_line(root / f"proc/{pid}/stat") or "").rpartition(")")
    fields = rest.split()
    try:
        ticks = int(fields[11]) + int(fields[12])
        return Process(pid, int(fields[19]), head.partition("(")[2], ticks / TICKS_PER_S)
    except (IndexError, ValueError):
        return None
