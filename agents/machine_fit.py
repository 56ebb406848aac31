"""Is the machine fit for a night: its disk, port, tools, and who else is on it?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.ports import command_line, is_free, listeners, port_owner

GIB = 1 << 30
OLDEST_GIT = (2, 28)  # `git init --initial-branch`
HEAVY_CORES = 0.25  # a neighbour below this moved no measurement that we could tell from noise
LOOK_S = 0.4
EARLIEST_CLOCK = 1_767_225_600  # 2026-01-01; a clock before this was never set

Found = Iterator[tuple[str, str]]  # (what is wrong, what to do)


def folder_problems(folder: Path, least_free: int) -> Found:
    """The night's folder, or where it will be made: writable, and with room."""
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not place.is_dir():
        yield f"{place} is a file, so no night's folder can be made there", "choose another place with --logs"
        return
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"nightgate")
    except OSError as error:
        yield f"{place} cannot be written ({error.strerror})", "make it writable, or choose another place with --logs"
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return
    if free < least_free:
        what = f"{place} has {free / GIB:.1f} GiB of disk free, and the night wants {least_free / GIB:.1f}"
        yield what, "free some, choose another place with --logs, or lower limits.disk_free_bytes"


def port_problem(port: int) -> tuple[str, str] | None:
    """Whether a listener on loopback could have this port now, and who has it instead."""
    if is_free(port):
        return None
    owner = port_owner(port)
    if owner is None and not listeners(port):
        return f"engine.port {port} cannot be listened on by this user", "choose one above 1023, or remove engine.port"
    who = f"pid {owner[0]} ({owner[1]})" if owner else "a process of another user"
    fix = "end that server, choose another engine.port, or remove it so that a free one is taken"
    return f"engine.port {port} is held by {who}", fix


def git_problem() -> tuple[str, str] | None:
    """The overlay of kept changes is a git repository."""
    fix = "install git {}.{} or newer, for example with `apt-get install git`".format(*OLDEST_GIT)
    try:
        answer = subprocess.run(["git", "--version"], capture_output=True, text=True, errors="replace", timeout=20)
    except FileNotFoundError:
        return "git is not installed", fix
    except (OSError, subprocess.TimeoutExpired):
        return "git does not run", fix
    found = re.search(r"(\d+)\.(\d+)", answer.stdout)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        return f"git is too old ({answer.stdout.strip()[:40] or 'no version'})", fix
    return None


def compiler_problem(on_cpu: bool, headers: bool | None, env: Mapping[str, str]) -> tuple[str, str] | None:
    """What compiled modes build kernels with: torch's inductor takes $CXX or g++ on a CPU, Triton any C compiler."""
    chosen = env.get("CXX") or os.environ.get("CXX")
    names = [chosen or "g++"] if on_cpu else [env.get("CC") or os.environ.get("CC") or "gcc", "clang", "cc"]
    if not any(shutil.which(name, path=env.get("PATH")) for name in names):
        what = "C++" if on_cpu else "C"
        return f"no {what} compiler ({names[0]}): compiled modes cannot start", "apt-get install g++"
    if headers is False:
        return "the engine's Python has no Python.h: compiled modes cannot start", "apt-get install python3-dev"
    return None


@dataclass(frozen=True)
class Sample:
    """CPU seconds that a process had used when looked at."""

    name: str
    cpu_s: float


def busy_problem() -> tuple[str, str] | None:
    before, began = _look(), time.monotonic()
    time.sleep(LOOK_S)
    heavy = heavy_processes(before, _look(), time.monotonic() - began)
    if not heavy:
        return None
    more = f" and {len(heavy) - 3} more" if len(heavy) > 3 else ""
    what = f"others are on the CPU now: {', '.join(heavy[:3])}{more}"
    return what, "end them or wait: runs beside a changing load are noisy, and more of them end inconclusive"


def heavy_processes(before: Mapping[int, Sample], after: Mapping[int, Sample], seconds: float) -> list[str]:
    """ "python train.py, pid 123 (1.9 cores)", the heaviest first. Pure."""
    used = {
        pid: (sample.cpu_s - before[pid].cpu_s) / seconds
        for pid, sample in after.items()
        if pid in before and seconds > 0 and sample.name == before[pid].name
    }
    order = sorted((pid for pid, cores in used.items() if cores >= HEAVY_CORES), key=lambda pid: -used[pid])
    return [f"{after[pid].name}, pid {pid} ({used[pid]:.1f} cores)" for pid in order]


def _look() -> dict[int, Sample]:
    """Every process that this user may see, but for our own and kernel threads."""
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    seen = {}
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                command = command_line(process, 60)
                times = process.cpu_times()
        except psutil.Error:
            continue
        if process.pid not in own and command:
            seen[process.pid] = Sample(command, times.user + times.system)
    return seen


def clock_problem() -> tuple[str, str] | None:
    if time.time() < EARLIEST_CLOCK:
        return "the machine's clock is not set, so the ledger's times would be wrong", "set it (timedatectl, ntpdate)"
    return None
