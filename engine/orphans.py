"""Ends engines that outlived both their loop and their keeper. Only what we started, by pid and start time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

import psutil

from contracts import LaunchRecord
from engine import container_runtime

# The recorded start time is boot time plus clock ticks, and the kernel's boot time moves when the clock is set; a pid
# does not come round within 2 s.
SAME_START_S = 2.0


def alive(process: psutil.Process) -> bool:
    """Runs, and is no zombie: in a container whose first process does not reap, an ended orphan stays one for good."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_gone(processes: Iterable[psutil.Process], wait_s: float) -> None:
    """Returns when none of them lives any more, or after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while any(alive(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def same_process(pid: int, started: float) -> psutil.Process | None:
    """The living process with this pid and start time, or None."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) <= SAME_START_S
    except psutil.Error:
        return None
    return process if same and alive(process) else None


def reused(record: LaunchRecord) -> bool:
    """The recorded pid is another process's now."""
    try:
        return abs(psutil.Process(record.pid).create_time() - record.pid_started) > SAME_START_S
    except psutil.Error:
        return False


def remains(record: LaunchRecord) -> list[psutil.Process]:
    """What is left of a launch, the engine's first process first.

    The engine led a session of its own, and the kernel gives a session's number to no new process while a member
    lives; the working folder, unique to the launch, is asked besides.
    """
    first = same_process(record.pid, record.pid_started)
    if first is None and reused(record):
        return []  # the pid is another's now, so the session is gone as well
    found = [first] if first else []
    with contextlib.suppress(psutil.Error):
        found += first.children(recursive=True) if first else []
    folder = f"/launches/{record.launch_id}/cwd"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (
                os.getsid(process.pid) == record.pid
                and process.create_time() >= record.pid_started - SAME_START_S
                and process.cwd().endswith(folder)
                and alive(process)
                and process not in found
            ):
                found.append(process)
    return found


def end_orphans(records: Iterable[LaunchRecord], grace_s: float = 10.0) -> tuple[int, ...]:
    """Ends what is left of these launches and waits until it is gone; returns the recorded pids that were left.

    A container is ended through its runtime. Of what is left then the engine's first process is asked (it ends its
    own), the rest is asked when there is no first; what outlives `grace_s` seconds is killed.
    """
    ended: list[int] = []
    for record in records:
        boxed = container_runtime.end(record, grace_s)
        tree = remains(record)
        if tree or boxed:
            ended.append(record.pid)
        if not tree:
            continue
        for process in tree[:1] if tree[0].pid == record.pid else tree:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        wait_gone(tree, grace_s)
        killed = [process for process in {*tree, *remains(record)} if alive(process)]
        for process in killed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        wait_gone(killed, grace_s)
    return tuple(ended)
