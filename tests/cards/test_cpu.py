"""The CPU as this process may use it: affinity, quotas and limits counted in."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from cards.cpu import detect_cpu, free_memory, memory_limit, usable_cores
from cards.detect import detect
from tests.cards.trees import machine, write

GIB = 1 << 30


def test_this_machine() -> None:
    card = detect()[-1]
    assert card.kind == "cpu"
    assert card.arch == os.uname().machine
    assert 1 <= card.compute_units <= len(os.sched_getaffinity(0))
    assert 0 < card.memory_bytes <= psutil.virtual_memory().total
    assert 0 < free_memory(Path("/")) <= card.memory_bytes


def test_a_plain_machine(tmp_path: Path) -> None:
    machine(tmp_path)
    card = detect_cpu(tmp_path)
    assert (card.name, card.compute_units, card.memory_bytes) == ("A CPU of the tests", 8, 32 * GIB)
    assert "avx512_bf16" in card.source and "/proc/meminfo" in card.source
    assert free_memory(tmp_path) == 24 * GIB


@pytest.mark.parametrize(("allowed", "cores"), [("0", 1), ("0-3", 4), ("0-1,4,6-7", 5)])
def test_affinity_counts(tmp_path: Path, allowed: str, cores: int) -> None:
    machine(tmp_path, allowed=allowed)
    assert usable_cores(tmp_path) == cores


def test_control_groups_version_2_bind_from_any_level(tmp_path: Path) -> None:
    machine(tmp_path)
    group = tmp_path / "sys/fs/cgroup"
    write(tmp_path / "proc/self/cgroup", "0::/jobs/night\n")
    write(group / "jobs/cpu.max", "250000 100000\n")  # 2.5 CPUs' time: threads for 3
    write(group / "jobs/night/cpu.max", "max 100000\n")
    write(group / "jobs/memory.max", f"{8 * GIB}\n")
    write(group / "jobs/memory.current", f"{6 * GIB}\n")
    write(group / "jobs/memory.stat", f"anon 1\ninactive_file {2 * GIB}\n")
    write(group / "jobs/night/memory.max", "max\n")
    assert usable_cores(tmp_path) == 3
    assert memory_limit(tmp_path) == 8 * GIB
    assert detect_cpu(tmp_path).memory_bytes == 8 * GIB
    assert free_memory(tmp_path) == 4 * GIB  # 2 unused and 2 of page cache


def test_control_groups_version_1_and_a_container_that_sees_its_own_as_the_root(tmp_path: Path) -> None:
    machine(tmp_path)
    group = tmp_path / "sys/fs/cgroup"
    write(
        tmp_path / "proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"
    )
    write(group / "memory/memory.limit_in_bytes", f"{4 * GIB}\n")
    write(group / "memory/memory.usage_in_bytes", f"{1 * GIB}\n")
    write(group / "cpu/cpu.cfs_quota_us", "-1\n")
    assert memory_limit(tmp_path) == 4 * GIB
    assert free_memory(tmp_path) == 3 * GIB
    assert usable_cores(tmp_path) == 8


def test_version_1_s_no_limit_is_no_limit(tmp_path: Path) -> None:
    machine(tmp_path)
    write(tmp_path / "proc/self/cgroup", "4:memory:/\n")
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit(tmp_path) is None


def test_an_empty_tree_still_is_a_card(tmp_path: Path) -> None:
    card = detect_cpu(tmp_path)
    assert card.compute_units >= 1
    assert card.memory_bytes == 0
