"""The loop's end of a keeper (engine/keeper.py): starts it, hears what it says, asks it to end the engine."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from engine import keeper

START_S = 30.0  # for a process that starts in 20 ms on an idle machine
CONTAINER_START_S = 120.0  # a container is made in about a second; the first one of a large image may take a minute


class NotStarted(Exception):
    """The operating system would not run this command line; the text says why."""


class KeeperLost(Exception):
    """The keeper ended without having been asked to; its engine may still run."""


class KeeperLink:
    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        cwd: Path,
        log_path: Path,
        grace_s: float,
        cidfile: Path | None = None,
    ) -> None:
        """Starts the keeper and through it the engine; returns when the engine's process exists. With a `cidfile`
        argv is a container client's, and the engine's process is the container's first.

        Raises NotStarted, or OSError when the log cannot be written.
        """
        self._lock = threading.RLock()
        self._buffer = b""
        self._said: dict[str, Any] = {}
        self._grace_s = grace_s
        with open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, cwd=cwd, start_new_session=True, bufsize=0,
            )  # fmt: skip
        job = {"argv": argv, "env": env, "cwd": str(cwd), "log_path": str(log_path), "grace_s": grace_s,
               "cidfile": str(cidfile) if cidfile else None}  # fmt: skip
        self._tell(json.dumps(job) + "\n")
        patience = CONTAINER_START_S if cidfile else START_S
        if not self._hear("pid", patience):
            silent = self._process.poll() is None
            self.close()
            lost = "the engine's keeper did not start"
            if cidfile and silent:
                client = Path(argv[0]).name
                lost = f"{client} did not say within {patience:.0f} s which process it started: see whether "
                lost += f"`{client} run` and `{client} inspect` work here"
            raise NotStarted(self._said.get("error") or lost)
        self.pid: int = self._said["pid"]
        self.started: float = self._said["started"]  # seconds since the epoch
        self.container: str | None = self._said.get("container")  # its id
        found = keeper.status(self.pid)
        self._ticks = found[2] if found else None

    @property
    def keeper_pid(self) -> int:
        return self._process.pid

    def exit_code(self, wait_s: float = 0.0) -> int | None:
        """The engine's exit code once it has ended, else None; waits for it up to `wait_s`. Raises KeeperLost."""
        self._hear("exited", wait_s)
        if "exited" not in self._said and self._process.poll() is not None:
            raise KeeperLost
        return self._said.get("exited")

    def alive(self) -> bool:
        """The engine's first process lives, by pid and start time."""
        found = keeper.status(self.pid)
        return bool(found and found[0] not in "ZX" and found[2] == self._ticks)

    def tree(self) -> dict[int, int]:
        """pid -> start ticks of all that the keeper guards."""
        below = keeper.descendants(self.keeper_pid)
        if self.container and self._ticks is not None and self.alive():
            below |= {self.pid: self._ticks} | keeper.descendants(self.pid)
        return below

    def end(self) -> tuple[bool, tuple[int, ...]]:
        """Ends the engine's tree: (had to kill, pids that could not be ended). Raises KeeperLost."""
        self._tell("stop\n")
        patience = self._grace_s + keeper.UNKILLABLE_S + 10
        heard = self._hear("gone", 2 * patience if self.container else patience)  # the runtime's try comes first
        self.close()
        if not heard:
            raise KeeperLost
        return self._said["forced"], tuple(self._said["left"])

    def close(self) -> None:
        with self._lock:  # another thread may be listening, and must not find its pipe closed between look and read
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)

    def _tell(self, text: str) -> None:
        pipe, data = self._process.stdin, text.encode()
        with contextlib.suppress(OSError, ValueError):  # the keeper is gone, or the pipe closed
            while pipe and data:
                data = data[os.write(pipe.fileno(), data) :]

    def _hear(self, key: str, wait_s: float) -> bool:
        """Reads what the keeper said until it has said `key`, up to `wait_s`. False: it has not."""
        deadline = time.monotonic() + wait_s
        with self._lock:
            while key not in self._said:
                pipe = self._process.stdout
                if pipe is None or pipe.closed:
                    return False
                left = max(0.0, deadline - time.monotonic())
                if not select.select([pipe], [], [], left)[0]:
                    return False
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    return False
                self._buffer += data
                *lines, self._buffer = self._buffer.split(b"\n")
                for line in lines:
                    self._said |= json.loads(line)
            return True
