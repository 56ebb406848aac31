"""Who holds the card. AMD by fixture trees in the kernel's documented formats; no AMD card was at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cards.amd_tenants import gpu_ids
from cards.processes import cpu_times, cpu_used, open_devices
from cards.tenancy import Tenancy, Tenant, busy, foreign, held_for_work, others_bytes, tenants, unaccounted
from contracts import Card
from tests.cards.tenants import (
    GIB,
    GPU_ID,
    MIB,
    computing,
    drm,
    kfd,
    link,
    mi50,
    opened,
    process,
    used,
)
from tests.cards.trees import gpu_node, write

CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=GIB, compute_units=2, source="test")


def test_an_idle_card_is_free(tmp_path: Path) -> None:
    tenancy = tenants(mi50(tmp_path), tmp_path)
    assert (tenancy.tenants, tenancy.used_bytes, tenancy.told) == ((), 20 * MIB, ("KFD",))
    assert busy(tenancy, ()) is None


def test_who_computes_is_named_and_our_own_engine_is_nobody(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=24 * GIB)
    computing(tmp_path, 4242, "python", 12 * GIB)
    computing(tmp_path, 77, "VLLM::EngineCore", 11 * GIB + 512 * MIB)
    tenancy = tenants(card, tmp_path)
    assert busy(tenancy, {77}) == "python (pid 4242) holds 12.0 GiB of it"
    assert busy(tenancy, {77, 4242}) is None
    assert busy(tenancy, ()) == (
        "python (pid 4242) holds 12.0 GiB of it, VLLM::EngineCor (pid 77) holds 11.5 GiB of it"
    )
    assert others_bytes(tenancy, {77}) == 24 * GIB - (11 * GIB + 512 * MIB)


def test_a_process_that_only_opened_kfd_is_no_tenant(tmp_path: Path) -> None:
    """rocminfo and the like are listed with 0 bytes until they end (ROCm issue #4411)."""
    card = mi50(tmp_path)
    process(tmp_path, 50, "amd-smi")
    opened(tmp_path, 50, 3, "/dev/kfd")
    kfd(tmp_path, 50, 0)
    write(tmp_path / "sys/class/kfd/kfd/proc/51/pasid", "1\n")  # of another card only: no vram file (issue #3002)
    assert busy(tenants(card, tmp_path), ()) is None


def test_a_display_counts_only_when_it_is_large(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=600 * MIB)
    process(tmp_path, 900, "Xorg")
    drm(tmp_path, 900, 12, "131072 KiB", device="/dev/dri/card0")
    drm(tmp_path, 900, 13, "131072 KiB", device="/dev/dri/card0")  # the same client once more
    tenancy = tenants(card, tmp_path)
    (shown,) = tenancy.tenants
    assert (shown.use, shown.memory_bytes, shown.name) == ("display", 128 * MIB, "Xorg")
    assert busy(tenancy, ()) is None
    assert held_for_work(tenancy) == 472 * MIB

    process(tmp_path, 901, "llama-server")  # Vulkan: no KFD, and no display either
    drm(tmp_path, 901, 9, f"{6 * 1024} MiB", key="drm-resident-vram")
    used(tmp_path, 7 * GIB)
    assert busy(tenants(card, tmp_path), ()) == "llama-server (pid 901) holds 6.0 GiB of it"


def test_memory_that_nobody_visible_holds(tmp_path: Path) -> None:
    """A container without /sys/class/kfd/kfd/proc, and other users' processes that may not be looked into."""
    card = mi50(tmp_path, used_bytes=12 * GIB + 320 * MIB)
    assert busy(tenants(card, tmp_path), ()) == "somebody whom this user cannot see holds 12.3 GiB of it"
    assert busy(tenants(card, tmp_path), {77}) is None  # our own engine is up: said of nobody
    (tmp_path / "sys/class/kfd/kfd/proc").rmdir()
    tenancy = tenants(card, tmp_path)
    assert tenancy.told == () and unaccounted(tenancy) == 12 * GIB + 320 * MIB
    assert busy(tenancy, ()) == "somebody whom this user cannot see holds 12.3 GiB of it"


def test_in_a_container_our_engine_is_not_taken_for_a_stranger(tmp_path: Path) -> None:
    """KFD tells the host's numbers there: ours is taken off by its size, what is left is somebody outside."""
    card = mi50(tmp_path, used_bytes=20 * GIB, namespace="pid:[4026532301]")
    computing(tmp_path, 40, "VLLM::Worker", 15 * GIB, host_pid=31415)
    tenancy = tenants(card, tmp_path)
    assert [(t.pid, t.here, t.memory_bytes) for t in tenancy.tenants] == [(40, True, 15 * GIB)]
    assert busy(tenancy, {40}) is None

    kfd(tmp_path, 40, 4 * GIB)  # the host has a process 40 too: another container's
    tenancy = tenants(card, tmp_path)
    assert busy(tenancy, {40}) == "a process outside this container (host pid 40) holds 4.0 GiB of it"
    assert [t.pid for t in foreign(tenancy, {40})] == [40]


def test_without_a_namespace_to_read_the_numbers_are_tried(tmp_path: Path) -> None:
    card = mi50(tmp_path, namespace=None)
    computing(tmp_path, 40, "python", 2 * GIB)
    assert busy(tenants(card, tmp_path), ()) == "python (pid 40) holds 2.0 GiB of it"
    kfd(tmp_path, 31415, 3 * GIB)  # no such process here: then these are the host's numbers
    assert busy(tenants(card, tmp_path), {40}) == (
        "a process outside this container (host pid 31415) holds 3.0 GiB of it"
    )


def test_a_process_on_another_card_is_not_on_this_one(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=20 * MIB, namespace="pid:[4026532301]")
    process(tmp_path, 60, "python")
    opened(tmp_path, 60, 3, "/dev/kfd")
    drm(tmp_path, 60, 4, "8388608 KiB", address="0000:83:00.0", device="/dev/dri/renderD129")
    kfd(tmp_path, 31415, 8 * GIB, gpu_id=GPU_ID + 1)
    kfd(tmp_path, 999, 2 * GIB)  # a stranger outside, who must not be taken for process 60
    (tenant,) = tenants(card, tmp_path).tenants
    assert (tenant.pid, tenant.here) == (999, False)


def test_each_part_of_a_divided_card_has_its_own_tenants(tmp_path: Path) -> None:
    """CPX: several nodes at one PCI address, each with KFD's own number; DRM tells the address only."""
    for node, number in ((2, 111), (3, 222)):
        gpu_node(tmp_path, node, gfx=90402, simd_count=152, bank_bytes=24 * GIB, location=0x500, minor=128 + node)
        write(tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id", f"{number}\n")
    card = mi50(tmp_path).model_copy(update={"pci_address": "0000:05:00.0", "node": 3})
    assert gpu_ids(card, tmp_path) == (222,)
    assert gpu_ids(card.model_copy(update={"node": None}), tmp_path) == (111, 222)
    process(tmp_path, 70, "python")
    opened(tmp_path, 70, 3, "/dev/kfd")
    drm(tmp_path, 70, 4, f"{9 << 20} KiB", address="0000:05:00.0")
    kfd(tmp_path, 70, 9 * GIB, gpu_id=111)
    assert busy(tenants(card, tmp_path), ()) is None
    assert busy(tenants(card.model_copy(update={"node": 2}), tmp_path), ()) == "python (pid 70) holds 9.0 GiB of it"


def test_a_cpu_has_no_tenants_and_nvml_is_not_asked_of_a_recorded_tree(tmp_path: Path) -> None:
    assert tenants(CPU, tmp_path) == Tenancy()
    assert tenants(CPU.model_copy(update={"kind": "nvidia"}), tmp_path) == Tenancy()
    assert busy(Tenancy(), ()) is None


def test_many_tenants_fit_one_line() -> None:
    many = tuple(Tenant(pid=n, name="p", memory_bytes=None, use="compute") for n in range(7))
    line = busy(Tenancy(tenants=many, used_bytes=GIB, told=("NVML",)), ())
    assert line is not None and line.endswith("p (pid 3) is on it and 3 more")


# --- processes ----------------------------------------------------------------------------------------------------


def test_cpu_time_between_two_looks(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    process(tmp_path, 1, "init", ticks=500)
    process(tmp_path, 20, "a b) (c", ticks=100)
    before = cpu_times(tmp_path)
    assert before[20].name == "a b) (c" and before[20].cpu_s == 100 / tick
    process(tmp_path, 20, "a b) (c", ticks=100 + 3 * tick)
    process(tmp_path, 21, "new", ticks=tick)
    process(tmp_path, 1, "init", ticks=5, start=2000)  # the number was given to another process
    used = cpu_used(before, cpu_times(tmp_path), frozenset({21}))
    assert [(p.pid, p.cpu_s) for p in used] == [(20, 3.0), (1, 5 / tick)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every process")
def test_processes_of_others_are_counted_as_hidden() -> None:
    assert open_devices(Path("/")).hidden > 0


def test_open_files_of_this_process_are_seen_for_real() -> None:
    with open("/dev/null") as file:
        seen = open_devices(Path("/"))
        assert os.getpid() in seen.holders("/dev/null")
        assert (str(file.fileno()), "/dev/null") in seen.by_pid[os.getpid()]


def test_a_link_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    process(tmp_path, 7, "x")
    link(tmp_path / "proc/7/fd/3", "/dev/kfd")
    (tmp_path / "proc/7/fd/4").mkdir()
    assert open_devices(tmp_path).by_pid == {7: (("3", "/dev/kfd"),)}
