"""What detection says of whole machines. Their trees are written by hosts.py; no such machine was at hand."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from cards.amd import detect_amd
from cards.detect import detect, free_memory
from cards.state import read_state
from cards.visible import exported_words, visible_environment
from tests.cards import hosts
from tests.cards.hosts import GIB, MI300X_BYTES
from tests.cards.trees import gpu_node, machine, write


def test_two_z100_of_hygon(tmp_path: Path) -> None:
    hosts.z100(tmp_path)
    first, second = detect_amd(tmp_path)
    assert (first.arch, first.name, first.driver, first.compute_units) == ("gfx906", "Hygon Z100", "hydcu", 60)
    assert first.memory_bytes == 32752 << 20
    assert (first.pci_address, second.pci_address) == ("0000:04:00.0", "0000:0a:00.0")
    assert (first.uuid, first.node, first.index, first.render_minor) == ("GPU-7137d9b2a08a4800", 1, 0, 128)
    assert visible_environment(second) == {
        "ROCR_VISIBLE_DEVICES": "GPU-7137d9b2a08a4801",
        "HIP_VISIBLE_DEVICES": "0",
        "CUDA_VISIBLE_DEVICES": "0",
    }


def test_an_mi50_whose_kernel_tells_no_id_is_exported_by_number_and_that_is_said(tmp_path: Path) -> None:
    hosts.mi50(tmp_path)
    (card,) = detect_amd(tmp_path)
    assert (card.uuid, card.memory_bytes) == (None, 32 * GIB - (16 << 20))
    assert visible_environment(card)["ROCR_VISIBLE_DEVICES"] == "0"
    assert "number 0 in KFD's order, which may change at a reboot" in (exported_words(card) or "")


def test_an_id_of_all_ones_is_none(tmp_path: Path) -> None:
    hosts.mi50(tmp_path, unique_id=(1 << 64) - 1)
    assert detect_amd(tmp_path)[0].uuid is None


def test_the_two_dies_of_an_mi250x_are_two_cards(tmp_path: Path) -> None:
    hosts.mi250x(tmp_path)
    first, second = detect_amd(tmp_path)
    assert {c.arch for c in (first, second)} == {"gfx90a"} and first.compute_units == second.compute_units == 110
    assert first.uuid != second.uuid and first.pci_address != second.pci_address
    assert (first.partition, second.partition) == (None, None)
    assert free_memory(second, tmp_path) == 63 * GIB
    assert read_state(first, tmp_path).power_w == 500
    assert read_state(second, tmp_path).power_w is None  # the first die's sensor counts for both


def test_a_whole_mi300x_says_that_it_is_whole(tmp_path: Path) -> None:
    hosts.mi300x(tmp_path)
    (card,) = detect_amd(tmp_path)
    assert (card.arch, card.compute_units, card.memory_bytes) == ("gfx942", 304, MI300X_BYTES)
    assert card.partition is not None and card.partition.model_dump() == {
        "number": 0, "of": 1, "compute": "SPX", "memory": "NPS1",
    }  # fmt: skip
    assert card.place == "0000:26:00.0"
    assert free_memory(card, tmp_path) == MI300X_BYTES - 7 * GIB


def test_the_parts_of_an_mi300x_in_cpx_are_told_apart(tmp_path: Path) -> None:
    hosts.mi300x(tmp_path, "CPX", "NPS4")
    parts = detect_amd(tmp_path)
    assert len(parts) == 8
    assert {p.pci_address for p in parts} == {"0000:26:00.0"}
    assert [p.place for p in parts] == [f"0000:26:00.0#{i}" for i in range(8)]
    assert len({p.uuid for p in parts}) == len({p.render_minor for p in parts}) == len({p.node for p in parts}) == 8
    third = parts[3]
    assert third.partition is not None and third.partition.compute == "CPX" and third.partition.memory == "NPS4"
    assert (third.compute_units, third.memory_bytes) == (38, MI300X_BYTES // 8)
    assert free_memory(third, tmp_path) is None  # the driver counts for the whole card
    state = read_state(third, tmp_path)
    assert (state.sclk_mhz, state.power_w, state.vram_used_bytes) == (2100, 480, None)


def test_parts_that_share_the_card_s_id_are_exported_by_number(tmp_path: Path) -> None:
    """ROCr refuses an id that fits two devices (ProcessUuidToken), and would then show none."""
    hosts.mi300x(tmp_path, "CPX", own_ids=False)
    parts = detect_amd(tmp_path)
    assert [p.uuid for p in parts] == [None] * 8
    assert [visible_environment(p)["ROCR_VISIBLE_DEVICES"] for p in parts] == [str(i) for i in range(8)]


def test_a_kernel_that_writes_the_part_s_number_as_the_pci_function(tmp_path: Path) -> None:
    hosts.mi300x(tmp_path, "CPX")
    for part in range(8):
        properties = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{part + 1}/properties"
        text = properties.read_text()
        properties.write_text(text.replace(f"location_id {0x2600 | part << 28}\n", f"location_id {0x2600 | part}\n"))
    assert [p.place for p in detect_amd(tmp_path)] == [f"0000:26:00.0#{i}" for i in range(8)]


def test_an_mi355x(tmp_path: Path) -> None:
    hosts.mi355x(tmp_path)
    (card,) = detect_amd(tmp_path)
    assert (card.arch, card.compute_units, card.memory_bytes) == ("gfx950", 256, 288 * GIB)
    assert (card.name, card.pci_address, card.render_minor) == ("AMD Instinct MI355X OAM", "0001:75:00.0", 136)
    assert card.uuid == f"GPU-{11964983762810164421:016x}"


def test_a_mixed_workstation(tmp_path: Path) -> None:
    """The processor's graphics come first in KFD's order; the MI50 is card1 with renderD129, and ROCr's number 1."""
    hosts.mixed(tmp_path)
    graphics, mi50 = (card for card in detect(tmp_path) if card.kind == "amd")
    assert (graphics.arch, graphics.compute_units, graphics.uuid) == ("gfx90c", 7, None)
    assert (mi50.arch, mi50.index, mi50.render_minor, mi50.pci_address) == ("gfx906", 1, 129, "0000:2d:00.0")
    assert free_memory(mi50, tmp_path) == 32 * GIB - (16 << 20) - (11 << 20)


@pytest.mark.parametrize("listed", [True, False])
def test_a_card_that_fell_off_the_bus_is_no_card_and_keeps_its_number(tmp_path: Path, listed: bool) -> None:
    """Either its registers read all ones, or the bus lists it no more; KFD's node stays until a reload."""
    hosts.z100(tmp_path)
    gone = tmp_path / "sys/bus/pci/devices/0000:04:00.0"
    if listed:
        (gone / "config").write_bytes(b"\xff" * 64)
    else:
        shutil.rmtree(gone.resolve())
        gone.unlink()
    (left,) = detect_amd(tmp_path)
    assert (left.pci_address, left.index) == ("0000:0a:00.0", 1)


def test_state_is_read_from_the_driver_s_files(tmp_path: Path) -> None:
    hosts.mi50(tmp_path)
    (card,) = detect_amd(tmp_path)
    state = read_state(card, tmp_path)
    assert (state.sclk_mhz, state.mclk_mhz, state.power_w, state.power_cap_w) == (1725, 1000, 225, 300)
    assert state.temperatures_c == {"edge": 60, "junction": 75, "mem": 68} and state.hottest_c == 75
    assert (state.vram_used_bytes, state.busy_percent) == (11 << 20, 97)
    assert (state.throttled, state.reasons) == (None, ())  # no gpu_metrics: nobody says


def test_without_hwmon_the_clock_is_the_level_in_use(tmp_path: Path) -> None:
    device = hosts.mi50(tmp_path)
    shutil.rmtree(device / "hwmon")
    write(device / "pp_dpm_sclk", "S: 132Mhz *\n0: 500Mhz\n1: 2100Mhz\n")  # an MI300's, asleep
    state = read_state(detect_amd(tmp_path)[0], tmp_path)
    assert (state.sclk_mhz, state.power_w, state.temperatures_c) == (132, None, {})


def test_a_card_that_has_gone_says_nothing(tmp_path: Path) -> None:
    hosts.mi50(tmp_path)
    (card,) = detect_amd(tmp_path)
    shutil.rmtree(tmp_path / "sys")
    assert read_state(card, tmp_path).model_dump(exclude_defaults=True) == {}


def test_an_mi50_s_snapshot_says_that_heat_holds_it_down(tmp_path: Path) -> None:
    """gpu_metrics v1.0, as vega20_hwmgr.c fills it: its own throttler bits, without names that hold for every card."""
    device = hosts.mi50(tmp_path)
    snapshot = struct.pack(
        "@HBBQ6H3HHI7H7HIHBB", 80, 1, 0, 0, *(65, 80, 70, 1, 1, 1), *(99, 50, 0), 250, 0, *[1600] * 7,
        *(1700, 1000, 1000, 0, 0, 0, 0), 0x4, 3000, 16, 80,
    )  # fmt: skip
    (device / "gpu_metrics").write_bytes(snapshot.ljust(80, b"\0"))
    state = read_state(detect_amd(tmp_path)[0], tmp_path)
    assert state.throttled is True and state.reasons == ("unnamed: throttle_status 0x00000004",)


def test_another_card_in_the_same_place_is_not_mistaken_for_hygon(tmp_path: Path) -> None:
    machine(tmp_path)
    gpu_node(tmp_path, 1, gfx=90402, simd_count=1216, bank_bytes=1, location=0x500, vendor=0x10DE)
    assert detect_amd(tmp_path) == ()
