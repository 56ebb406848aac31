"""Runs one long command quietly: its output goes to a log, a line of progress appears while it works."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HEARTBEAT_S = 10.0
_POLL_S = 0.2

# What pip prints when no registry answers, in the versions 23 to 26.
_NETWORK_MARKS = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Connection refused",
)


class SetupError(RuntimeError):
    """Set-up cannot go on; the text is one line that says why and what to do."""


@dataclass(frozen=True)
class Progress:
    """Prints lines with the time since set-up began."""

    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f}s] {text}", flush=True)


def run_logged(
    command: Sequence[str],
    log: Path,
    progress: Progress,
    label: str,
    environment: Mapping[str, str] | None = None,
    grows: Path | None = None,
) -> int:
    """Run to the end and return the exit code. The command is ended with us when we are interrupted.

    `grows` is the folder that it fills: its size shows that a long silence is work.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        # close_fds=False: the child shares the set-up lock, so if we are killed it is held until the child has ended.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            close_fds=False,
        )
        try:
            next_line = time.monotonic() + HEARTBEAT_S
            while child.poll() is None:
                time.sleep(_POLL_S)
                if time.monotonic() >= next_line:
                    words = doing_now(read_log(log))
                    size = f" ({folder_gb(grows):.1f} GB so far)" if grows and words.startswith("installing") else ""
                    progress.say(f"  {label}: {words}{size}")
                    next_line += HEARTBEAT_S
        except BaseException:
            child.terminate()
            child.wait()
            raise
    return child.returncode


def folder_gb(folder: Path) -> float:
    """Size of a folder that may be changing under our eyes."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total / 1e9


def read_log(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def doing_now(output: str, width: int = 90) -> str:
    """What pip is at, from what it has printed: its last line that is neither a warning nor a bar."""
    for line in reversed(output.splitlines()):
        words = line.strip()
        if words.startswith("Installing collected packages:"):
            return f"installing {words.count(',') + 1} packages"
        if words.startswith(("Collecting", "Downloading", "Using cached", "Processing")):
            return words if len(words) <= width else words[: width - 3] + "..."
    return "working"


def explain_pip_failure(output: str, log: Path) -> str:
    """One line for what went wrong, and what to do about it."""
    again = "then run make setup again"
    if "No space left on device" in output:
        return f"the disk is full: free about 8 GB (pip cache purge helps), {again}"
    if any(mark in output for mark in _NETWORK_MARKS):
        return (
            "pip reached no package registry: check the network, or point pip at a mirror in its own configuration "
            f"(pip config set global.index-url ...), {again}. Its log: {log}"
        )
    if "DO NOT MATCH THE HASHES" in output:
        return f"a package is not the locked one: run pip cache purge or use another mirror, {again}. Its log: {log}"
    for line in output.splitlines():
        if "No matching distribution found for" in line:
            wanted = line.split("No matching distribution found for")[1].split()[0]
            return f"the registry has no {wanted} for this Python and machine: use Python 3.11 on Linux. Its log: {log}"
    return f"pip failed: {last_line(output)} - its log: {log}"


def last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "it printed nothing"
