"""Loopback ports: a free one, and who listens on one."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection

import psutil

LOOPBACK = "127.0.0.1"
# Below the kernel's ephemeral range (32768 and up), so that no outgoing connection takes the port in the 20 to 120 s
# between choosing it and the engine's listening on it.
FIRST, LAST = 20000, 29999


def is_free(port: int) -> bool:
    """Nothing listens there. Every address counts: a server on 0.0.0.0 answers on loopback too."""
    if listeners(port):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As vLLM does, so that a closed connection's waiting time is no bar.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(taken: frozenset[int] = frozenset()) -> int:
    """A free port out of FIRST..LAST, at random so that two loops seldom meet. `taken` are promised to others."""
    for port in random.sample(range(FIRST, LAST + 1), 200):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port found between {FIRST} and {LAST}: give one with engine.port")


def anyone_listens(port: int) -> bool:
    """The cheap question (under 1 ms): is there a listener at all? proc(5), /proc/net/tcp: state 0A is LISTEN."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:
            next(lines, None)
            for line in lines:
                _, local, _, state = line.split()[:4]
                if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def listeners(port: int) -> list[int | None]:
    """The pid of every listener on this port, None where the process belongs to another user."""
    if not anyone_listens(port):
        return []
    return [
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
    ]


def port_owner(port: int, besides: Collection[int] = ()) -> tuple[int, str] | None:
    """(pid, short command line) of who listens on this port, or None when nobody does or it cannot be seen."""
    for pid in listeners(port):
        if pid is not None and pid not in besides:
            try:
                process = psutil.Process(pid)
                return pid, command_line(process, 80) or process.name()
            except psutil.Error:
                continue
    return None


def held_by(port: int, besides: Collection[int] = ()) -> str:
    """The sentence for a port that is not free; `besides`: pids that may hold it."""
    owner = port_owner(port, besides)
    who = f"pid {owner[0]} ({owner[1]})" if owner else "a process of another user"
    return f"port {port} is held by {who}: choose another with engine.port, or stop it"


def command_line(process: psutil.Process, most: int) -> str:
    """On one line, whatever newlines its arguments have, cut to `most` characters. Raises psutil.Error."""
    return " ".join(" ".join(process.cmdline()).split())[:most].strip()
