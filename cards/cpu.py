"""The CPU as a card: what this process may use of it, after affinity and control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cards.kernel_files import read_fields, read_int, read_line, read_numbers
from contracts import Card

# What vLLM's CPU kernels look for; a card without them runs other code.
TOLD_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "sve", "bf16")


def detect_cpu(root: Path) -> Card:
    cpu = read_fields(root / "proc/cpuinfo")
    arch = os.uname().machine
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    told = [flag for flag in TOLD_FLAGS if flag in flags]
    limit = memory_limit(root)
    source = "/proc/cpuinfo" + (f" ({' '.join(told)})" if told else "") + "; memory: "
    return Card(
        arch=arch,
        kind="cpu",
        name=cpu.get("model name") or cpu.get("Model") or f"{arch} CPU",
        memory_bytes=min(_meminfo(root, "MemTotal"), limit or 1 << 62),
        compute_units=usable_cores(root),
        source=source + ("/proc/meminfo" if limit is None else "the control group's limit"),
    )


def usable_cores(root: Path) -> int:
    """CPUs by affinity (cpusets included), no more than the control groups' quotas rounded up; at least 1."""
    allowed = read_fields(root / "proc/self/status").get("Cpus_allowed_list", "")
    cores = _count(allowed) or os.cpu_count() or 1
    for folder in _groups(root, "cpu"):
        quota = _quota(folder)
        if quota is not None:
            cores = min(cores, max(1, -int(-quota // 1)))
    return cores


def memory_limit(root: Path) -> int | None:
    """Bytes: the tightest limit of the control groups above this process; None where there is none below MemTotal."""
    total = _meminfo(root, "MemTotal")
    limits = [limit for folder in _groups(root, "memory") if (limit := _limit(folder)) is not None and limit < total]
    return min(limits, default=None)


def free_memory(root: Path) -> int:
    """Bytes that a new process could take without pushing anything out: MemAvailable, less where a control group's
    limit is nearer. Page cache that the group could give back counts as free."""
    free = _meminfo(root, "MemAvailable")
    for folder in _groups(root, "memory"):
        limit = _limit(folder)
        used = read_int(folder / "memory.current") or read_int(folder / "memory.usage_in_bytes")
        if limit is None or used is None:
            continue
        stat = read_numbers(folder / "memory.stat")
        reclaimable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
        free = min(free, max(0, limit - used + reclaimable))
    return free


def _meminfo(root: Path, field: str) -> int:
    """Bytes; /proc/meminfo writes "24623884 kB", where kB means KiB."""
    words = read_fields(root / "proc/meminfo").get(field, "0").split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else 0


def _count(cpu_list: str) -> int:
    """ "0-3,8" -> 5; 0 for what is no list of CPUs."""
    count = 0
    for part in filter(None, cpu_list.split(",")):
        low, _, high = part.partition("-")
        if not low.isdigit() or not (high or low).isdigit():
            return 0
        count += int(high or low) - int(low) + 1
    return count


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The control group's folder and those above it, version 2 or 1. A container often sees its own group as the
    mount's root, whatever /proc/self/cgroup says; the walk upwards ends there."""
    mount = root / "sys/fs/cgroup"
    for line in (read_line(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[1] == "":
            top = mount
        elif controller in parts[1].split(","):
            top = mount / controller
        else:
            continue
        folder = top / parts[2].lstrip("/")
        for each in (folder, *folder.parents):
            yield each
            if each == top:
                break


def _limit(folder: Path) -> int | None:
    return read_int(folder / "memory.max") or read_int(folder / "memory.limit_in_bytes")  # "max" reads as None


def _quota(folder: Path) -> float | None:
    """CPUs' worth of time; None where there is no limit."""
    words = (read_line(folder / "cpu.max") or "").split()  # version 2: "200000 100000" or "max 100000"
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    quota, period = read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us")
    return quota / period if quota is not None and period and quota > 0 else None
