"""AMD cards from fixture trees written in the kernel's format; no such card is needed, and none was."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards.amd import canonical_arch, decode_gfx, detect_amd, pci_address
from cards.detect import detect, free_memory
from tests.cards.trees import cpu_node, gpu_node, machine, write

GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        (90006, "gfx906"),
        (90008, "gfx908"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (100300, "gfx1030"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (120500, "gfx1250"),
        (0, None),  # a CPU's node
        (99999, None),  # no such stepping
    ],
)
def test_gfx_target_version_is_spelled_as_the_compilers_do(version: int, arch: str | None) -> None:
    assert decode_gfx(version) == arch


@pytest.mark.parametrize(
    ("spelled", "arch"),
    [
        ("gfx9006", "gfx906"),
        ("gfx906", "gfx906"),
        ("gfx906:sramecc+:xnack-", "gfx906"),
        ("gfx9010", "gfx90a"),
        ("gfx942", "gfx942"),
        ("GFX950", "gfx950"),
        ("gfx1030", "gfx1030"),
        ("gfx1201", "gfx1201"),
    ],
)
def test_other_spellings_come_back_to_the_compilers(spelled: str, arch: str) -> None:
    assert canonical_arch(spelled) == arch


def test_an_mi50_and_an_mi355x_beside_two_cpus(tmp_path: Path) -> None:
    cpu_node(tmp_path, 0)
    cpu_node(tmp_path, 1)
    gpu_node(tmp_path, 2, gfx=90006, simd_count=240, bank_bytes=32 * GIB, location=0x0300, minor=128)
    gpu_node(
        tmp_path, 10, gfx=90500, simd_count=1024, bank_bytes=1, location=0x7500, domain=1, minor=129,
        vram_bytes=288 * GIB, used_bytes=5 * GIB, product_name="AMD Instinct MI355X OAM",
    )  # fmt: skip
    mi50, mi355 = detect_amd(tmp_path)
    assert (mi50.arch, mi50.compute_units, mi50.wavefront, mi50.pci_address) == ("gfx906", 60, 64, "0000:03:00.0")
    assert mi50.memory_bytes == 32 * GIB  # from the memory bank, as amdgpu's folder is not there
    assert (mi355.arch, mi355.compute_units, mi355.pci_address) == ("gfx950", 256, "0001:75:00.0")
    assert mi355.memory_bytes == 288 * GIB  # amdgpu's own number wins
    assert mi355.name == "AMD Instinct MI355X OAM"
    assert mi355.source == "KFD topology node 10"  # after node 2: by number, not by name
    assert free_memory(mi355, tmp_path) == 283 * GIB
    assert free_memory(mi50, tmp_path) is None  # not known, and not made up


def test_a_hygon_card_is_one_of_them(tmp_path: Path) -> None:
    gpu_node(tmp_path, 1, gfx=90006, simd_count=240, bank_bytes=16 * GIB, location=0x0400, vendor=0x1D94)
    (card,) = detect_amd(tmp_path)
    assert (card.kind, card.arch, card.name) == ("amd", "gfx906", "Hygon gfx906")


def test_a_partition_keeps_its_card_s_address() -> None:
    assert pci_address(0, 0x3 << 28 | 0x2600) == "0000:26:00.0"


def test_what_cannot_be_read_is_no_card_and_no_error(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    (nodes / "1/properties").mkdir(parents=True)  # reading it fails, as it does for another container's card
    write(nodes / "2/properties", "simd_count garbage\n\x00\xff\ngfx_target_version\n")
    write(nodes / "3/properties", "")
    write(nodes / "odd/properties", "simd_count 240\ngfx_target_version 90006\n")
    assert detect_amd(tmp_path) == ()


def test_a_recorded_tree_is_read_whole_and_nothing_of_this_machine(tmp_path: Path) -> None:
    machine(tmp_path)
    gpu_node(tmp_path, 1, gfx=90402, simd_count=1216, bank_bytes=192 * GIB, location=0x0500)
    assert [c.arch for c in detect(tmp_path) if c.kind != "cpu"] == ["gfx942"]
