"""The guardian between the loop and one engine, so that no death of the loop leaves an engine behind.

Run as a script by engine/link.py; the standard library only, so that it starts in some 20 ms and never breaks with
the loop's environment. It becomes a child subreaper (whatever the engine forks stays below it, even through setsid),
starts the engine in a session of its own, and ends the whole tree when it is asked to, when its standard input closes
(the loop is gone, also by kill -9), or when its parent changes.

In a container the child is docker's or podman's client, and the engine is no descendant of ours: it is known by the id
that the client writes to its cidfile and by its first process, which the runtime names, and ended through the runtime.

Standard input: one JSON line {argv, env, cwd, log_path, grace_s, cidfile or null}, later the line "stop".
Standard output, JSON lines:
    {"pid": int, "started": epoch seconds, "container": id or null}     the engine exists
    {"error": text}                                it could not be started
    {"exited": code}                               it ended by itself; a negative code is a signal, as in subprocess
    {"gone": bool, "forced": bool, "left": pids}   the tree has been ended; gone: nothing of it is left
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
UNKILLABLE_S = 30.0  # after SIGKILL; only a process stuck in a driver outlives it
SHARED_MEMORY = "/dev/shm/"
MISSES = 20  # looks at 0.1 s for a process that its runtime says is there
PROC = "/proc"


def status(pid: int) -> tuple[str, int, int] | None:
    """(state, parent, start time in clock ticks since boot) of a process, or None when it is gone. proc(5).

    A name is any 15 bytes: one of Chinese characters, cut there by the kernel, is no text in UTF-8."""
    try:
        fields = Path(f"{PROC}/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[1]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def name(pid: int) -> str:
    """A process's short name; vLLM's say what they are: VLLM::EngineCore, VLLM::Worker."""
    with contextlib.suppress(OSError):
        return Path(f"{PROC}/{pid}/comm").read_text(errors="replace").strip()
    return "?"


def started(pid: int) -> float:
    """Start time in seconds since the epoch, as psutil computes it: boot time plus ticks."""
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    found = status(pid)
    return float(boot.split()[1]) + (found[2] if found else 0) / os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> dict[int, int]:
    """pid -> start ticks of every living process below `root`."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.listdir(PROC):
        if entry.isdigit() and (found := status(int(entry))) and found[0] not in "ZX":
            children.setdefault(found[1], []).append((int(entry), found[2]))
    below: dict[int, int] = {}
    todo = [root]
    while todo:
        for pid, ticks in children.get(todo.pop(), []):
            if pid not in below:
                below[pid] = ticks
                todo.append(pid)
    return below


def same(pid: int, ticks: int) -> bool:
    """The process that had this pid at this start time lives."""
    found = status(pid)
    return bool(found and found[0] not in "ZX" and found[2] == ticks)


def send(pid: int, ticks: int, number: int) -> None:
    """Signals the process that had this pid at this start time, never a later one with the same pid."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if (found := status(pid)) and found[2] == ticks:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def mapped_segments(pids: Iterable[int | str]) -> set[str]:
    """Files under /dev/shm that these processes have mapped."""
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in os.fsdecode(Path(f"{PROC}/{pid}/maps").read_bytes()).splitlines():
                path = line.partition(SHARED_MEMORY)[2]
                if path and not path.endswith(" (deleted)"):
                    found.add(SHARED_MEMORY + path)
    return found


class Keeper:
    def __init__(self, job: dict[str, Any]) -> None:
        self.grace_s = float(job["grace_s"])
        with open(job["log_path"], "ab") as log:
            child = subprocess.Popen(
                job["argv"], env=job["env"], cwd=job["cwd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.pid = child.pid
        with contextlib.suppress(OSError):  # where memory runs out, the kernel is to end an engine and not the loop
            Path(f"/proc/{self.pid}/oom_score_adj").write_text("500")
        self.child = child  # kept so that Popen never warns; reap() waits for it
        self.exit_code: int | None = None
        self.client: str = job["argv"][0]
        self.cidfile: str | None = job.get("cidfile")
        self.container: str | None = None  # its id, once it is known
        self.first: tuple[int, int] | None = None  # (pid, start ticks) of the container's first process
        self.inside: dict[int, int] = {}  # what was seen in the container
        self.problem: str | None = None
        self.misses = 0

    def reap(self) -> bool:
        """Collects dead children, adopted ones included, and notes the engine's exit code. False: no child is left."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.pid:
                    code = os.waitstatus_to_exitcode(found[1])
                    if self.cidfile and code > 128:  # docker-run(1): a container ended by signal n gives 128 + n
                        code = 128 - code
                    self.exit_code = self.child.returncode = code
        except ChildProcessError:
            return False
        return True

    def tree(self) -> dict[int, int]:
        """pid -> start ticks of all that is to be ended: our descendants, and the container's. What was seen in it
        counts while it lives: without a PID namespace of its own (--pid=host) it may outlive the first process."""
        if self.first and same(*self.first):
            self.inside |= dict([self.first]) | descendants(self.first[0])
        self.inside = {pid: ticks for pid, ticks in self.inside.items() if same(pid, ticks)}
        return descendants(os.getpid()) | self.inside

    def look(self) -> bool:
        """Learns the container's id and its first process; True once both are known. Sets `problem` where that process
        is not to be seen from here: then nothing of it could be checked, and another process might have its number."""
        if self.cidfile and not self.container:
            with contextlib.suppress(OSError):
                self.container = Path(self.cidfile).read_text(errors="replace").strip() or None
        if self.container and not self.first:
            answer = self.ask("inspect", "-f", "{{.State.Pid}}", self.container)
            if answer is not None and re.fullmatch(r"[1-9]\d{0,8}", answer, re.ASCII):
                found, ours = status(int(answer)), status(self.pid)
                self.misses += 1
                if found and (ours is None or found[2] >= ours[2]):
                    self.first = int(answer), found[2]
                elif found or self.misses > MISSES:  # a moment after its end it is not to be seen either
                    self.problem = (
                        f"the container's first process (pid {answer}) is not to be seen here: "
                        f"{self.client} must run on this machine, and nightgate outside another container"
                    )
        return self.first is not None

    def ask(self, *arguments: str, wait_s: float = 10.0) -> str | None:
        """What the runtime answers; None when it refuses or does not answer in time."""
        try:
            done = subprocess.run([self.client, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", timeout=wait_s)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def end_container(self) -> bool:
        """Ends the container and takes it away; True when it had to be killed."""
        begun = time.monotonic()
        if not self.container and self.exit_code is None:  # the client may be about to make it: heard out first
            if (found := status(self.pid)) is not None:
                send(self.pid, found[2], signal.SIGTERM)
            while self.exit_code is None and not self.look() and time.monotonic() - begun < self.grace_s:
                self.reap()
                time.sleep(0.05)
        self.look()
        if not self.container:
            return False
        seconds = max(1, math.ceil(self.grace_s))
        begun = time.monotonic()
        stopped = self.ask("stop", "-t", str(seconds), self.container, wait_s=seconds + UNKILLABLE_S)
        forced = stopped is not None and time.monotonic() - begun >= seconds
        if stopped is None and self.tree().keys() - descendants(os.getpid()).keys():
            forced = self.ask("kill", self.container) is not None
        self.ask("rm", "-f", self.container)
        return forced

    def end(self) -> dict[str, Any]:
        """Asks the engine to stop, its left-over children once it is gone, and kills what outlives the grace."""
        self.tree()  # what is in the container, before anything of it ends
        killed = self.end_container() if self.cidfile else False
        begun = time.monotonic()
        tree = self.tree()
        segments = mapped_segments(descendants(os.getpid()))  # a container has a /dev/shm of its own
        if self.exit_code is None and self.pid in tree:
            send(self.pid, tree[self.pid], signal.SIGTERM)
        asked_rest = forced = False
        while True:
            children = self.reap()
            tree = self.tree()
            waited = time.monotonic() - begun
            if not (children or tree) or waited > self.grace_s + UNKILLABLE_S:
                break
            if waited > self.grace_s:
                forced = True
                segments |= mapped_segments(descendants(os.getpid()))
                for pid, ticks in tree.items():
                    send(pid, ticks, signal.SIGKILL)
            elif self.exit_code is not None and not asked_rest:
                asked_rest = True
                for pid, ticks in tree.items():
                    send(pid, ticks, signal.SIGTERM)
            time.sleep(0.05)
        if left := {path for path in segments if os.path.exists(path)}:  # killed processes leave theirs behind
            for path in left - mapped_segments(entry for entry in os.listdir("/proc") if entry.isdigit()):
                with contextlib.suppress(OSError):
                    os.unlink(path)
        return {"gone": not tree, "forced": forced or killed, "left": sorted(tree)}

    def who(self) -> dict[str, Any]:
        """The message that the engine exists."""
        pid = self.first[0] if self.first else self.pid
        return {"pid": pid, "started": started(pid), "container": self.container}


def say(message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(1, json.dumps(message).encode() + b"\n")


def main() -> None:
    parent = os.getppid()
    asked = False

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        asked = True

    # Handlers and not SIG_IGN: an ignored signal would stay ignored in the engine.
    signal.signal(signal.SIGTERM, ask)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    buffer = b""
    while b"\n" not in buffer:
        if not (data := os.read(0, 65536)):
            return
        buffer += data
    line, _, buffer = buffer.partition(b"\n")
    try:
        keeper = Keeper(json.loads(line))
    except (OSError, ValueError, KeyError) as error:
        say({"error": f"{type(error).__name__}: {error}"})
        return
    reported = told = False
    while not (asked or b"stop" in buffer or os.getppid() != parent):
        if not told and (not keeper.cidfile or keeper.look() or keeper.exit_code is not None):
            told = True
            say(keeper.who())
        if keeper.problem:
            say({"error": keeper.problem})
            break
        if select.select([0], [], [], 0.1)[0]:
            if not (data := os.read(0, 4096)):
                break
            buffer += data
        keeper.reap()
        if keeper.exit_code is not None and told and not reported:
            reported = True
            say({"exited": keeper.exit_code})
            keeper.end()
    say(keeper.end())


if __name__ == "__main__":
    main()
    sys.exit(0)
