"""Who used the CPU between two moments: the engine, we, or somebody else. From the process table (psutil)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil
from pydantic import JsonValue

_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # guest time is inside user


@dataclass(frozen=True)
class CpuUse:
    """Seconds of CPU time since boot (machine) or since their start (processes), at one moment."""

    total: float  # all cores, idle included
    busy: float  # all cores, not idle; steal counts as busy: somebody else had the core
    engine: dict[tuple[int, float], float]  # (pid, start time) -> user + system, the engine's process tree
    ours: dict[tuple[int, float], float]  # our process tree without the engine's

    @classmethod
    def now(cls, engine_pid: int) -> CpuUse:
        times = psutil.cpu_times()
        total = sum(getattr(times, name, 0.0) for name in _KINDS)
        idle = times.idle + getattr(times, "iowait", 0.0)
        engine = _tree(engine_pid)
        ours = {key: used for key, used in _tree(os.getpid()).items() if key not in engine}
        return cls(total, total - idle, engine, ours)


def cpu_shares(before: CpuUse | None, after: CpuUse) -> dict[str, JsonValue]:
    """Shares of all cores' time; None where the machine does not keep these counters (total did not move).

    A child that ended in between counts as foreign; engines and loops seldom have any.
    """
    if before is None or (total := after.total - before.total) <= 0:
        return dict.fromkeys(("foreign_cpu_share", "engine_cpu_share", "loop_cpu_share"))
    engine = sum(used - before.engine.get(key, 0.0) for key, used in after.engine.items())
    ours = sum(used - before.ours.get(key, 0.0) for key, used in after.ours.items())
    foreign = after.busy - before.busy - engine - ours
    shares = {"foreign_cpu_share": foreign, "engine_cpu_share": engine, "loop_cpu_share": ours}
    return {name: min(1.0, max(0.0, used / total)) for name, used in shares.items()}


def cpu_mhz() -> float | None:
    """Mean core frequency now, where the machine tells."""
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError, AttributeError, RuntimeError):
        return None
    return float(frequency.current) if frequency and frequency.current else None


def _tree(pid: int) -> dict[tuple[int, float], float]:
    used: dict[tuple[int, float], float] = {}
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return used
    for process in family:
        try:
            times = process.cpu_times()
            used[process.pid, process.create_time()] = times.user + times.system
        except psutil.Error:
            continue
    return used
