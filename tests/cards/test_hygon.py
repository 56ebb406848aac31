"""What Hygon's public tools say of its cards, from files in the formats that their source reads. No card was here."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards.amd import detect_amd
from cards.driver import read_software
from cards.findings import card_problems
from cards.hygon import arch_of_name, card_name, divisions, facts, wrong_dtk
from cards.sheet import SheetError, arch_of
from tests.cards import hosts
from tests.cards.trees import gpu_node, write

# As /opt/hyhal/bin/update_ids has them, in the two forms that hcu-dcgm's reader tells apart.
UPDATE_IDS = """\
#!/bin/bash
declare -A map
map["54b7"]="Z100"
map["6320"]="BW1000"
declare -A others
"""


@pytest.mark.parametrize(
    ("device", "name"), [(0x54B7, "Z100"), (0x55B7, "Z100L"), (0x62B7, "K100"), (0x6210, "K100_AI"), (0x6430, "BW1100")]
)
def test_cards_by_their_pci_device(device: int, name: str) -> None:
    assert card_name(device) == f"Hygon {name}"


def test_the_driver_s_own_list_is_asked_first(tmp_path: Path) -> None:
    """One number under two names: 6320 is BW150 in hcu-dcgm's table."""
    assert card_name(0x6320, tmp_path) == "Hygon BW150"
    write(tmp_path / "opt/hyhal/bin/update_ids", UPDATE_IDS)
    assert card_name(0x6320, tmp_path) == "Hygon BW1000" and card_name(0x6430, tmp_path) == "Hygon BW1100"
    assert card_name(0x9999, tmp_path) is None


@pytest.mark.parametrize(
    ("target", "arch", "device", "name"),
    [(90208, "gfx928", 0x6210, "Hygon K100_AI"), (90306, "gfx936", 0x6370, "Hygon BW100"),
     (90308, "gfx938", 0x6430, "Hygon BW1100"), (90210, "gfx92a", 0x9999, "Hygon gfx92a")],
)  # fmt: skip
def test_newer_archs_are_seen(tmp_path: Path, target: int, arch: str, device: int, name: str) -> None:
    """Spelled as Hygon's AITER does out of the same file (aiter-das at 2d34506, aiter/jit/utils/chip_info.py)."""
    gpu_node(
        tmp_path, 1, gfx=target, simd_count=320, bank_bytes=64 << 30, location=0x0400, vendor=0x1D94, device=device
    )
    (card,) = detect_amd(tmp_path)
    assert (card.arch, card.name, card.compute_units) == (arch, name, 80)


@pytest.mark.parametrize(
    ("name", "arch"), [("K100_AI", "gfx928"), ("k100-ai", "gfx928"), ("Hygon BW1000", "gfx936"), ("gfx938", "gfx938")]
)
def test_a_card_without_a_sheet_is_told_by_name(name: str, arch: str) -> None:
    assert arch_of_name(name) == arch
    with pytest.raises(SheetError, match=rf"no sheet for {arch} \(Hygon .*nobody published bandwidth and peaks"):
        arch_of(name)


@pytest.mark.parametrize("name", ["Z100", "Z100L", "hygon z100l"])
def test_the_z100s_have_one(name: str) -> None:
    assert arch_of(name) == "gfx906"


@pytest.mark.parametrize(
    ("driver", "dtk", "wrong"),
    [
        ("6.3.30-V1.12.0a", "26.04", False),
        ("6.4.1", "26.04", False),
        ("6.3.8-V1.9.2", "26.04", True),
        ("6.2.26", "25.04.1", False),
        ("6.2.26", "26.04", True),
        ("6.3.30", "27.04", False),  # newer than the list: nothing is known
        ("5.0.1", "26.04", False),
        (None, "26.04", False),
        ("6.3.30", None, False),
        ("9" * 5000, "26.04", False),
    ],
)
def test_driver_and_dtk(driver: str | None, dtk: str | None, wrong: bool) -> None:
    assert (wrong_dtk(driver, dtk) is not None) == wrong


@pytest.mark.parametrize(
    ("file", "text"), [(".info/rocm_version", "26.04\n"), (".dtk_version", "DTK-26.04\n"), (".info/version", "26.04\n")]
)
def test_a_dtk_without_a_link_tells_its_release(tmp_path: Path, file: str, text: str) -> None:
    write(tmp_path / "opt/dtk" / file, text)
    found = read_software(tmp_path, {"ROCM_PATH": "/opt/dtk"})
    assert (found.dtk, found.rocm) == ("26.04", None)


def test_a_divided_card_is_told(tmp_path: Path) -> None:
    """On a host with two: only the second is. hcu-container-toolkit reads PciBusId, hcu-dcgm cu_count and device_id."""
    dev = hosts.z100(tmp_path)
    write(tmp_path / "etc/vdev/vdev0.conf", "PciBusId: 0000:0a:00.0\ncu_count: 30\ndevice_id: 1\n")
    write(tmp_path / "etc/dmi_mig_config/ci/gpu1_0.conf", "pci: 0000:0A:00.0\nmig_uuid: 0\n")
    write(tmp_path / "etc/vdev/vdev1.conf", "cu_count: 30\n")
    assert divisions("0000:04:00.0", tmp_path) == () == divisions("", tmp_path)  # "": not known
    ((what, fix),) = card_problems(tmp_path, dev)
    assert what.startswith(
        "0000:0a:00.0 (Hygon Z100) is divided (virtual card by /etc/vdev/vdev0.conf, "
        "MIG instance by /etc/dmi_mig_config/ci/gpu1_0.conf)"
    )
    assert "engine.card" in fix


def test_a_container_that_has_a_virtual_card_sees_it(tmp_path: Path) -> None:
    write(tmp_path / "etc/vdev/docker/vdev3.conf", "PciBusId: 0000:04:00.0\n")
    assert divisions("0000:04:00.0", tmp_path) == (("virtual card", "/etc/vdev/docker/vdev3.conf"),)


def test_every_list_has_a_source() -> None:
    assert set(facts().sources) == {"names", "archs", "drivers"}
    assert all("HYGON-AI/hcu-dcgm at b223b72" in source for source in facts().sources.values())
