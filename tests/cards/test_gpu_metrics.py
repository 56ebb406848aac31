"""amdgpu's binary snapshot, written with ctypes from the kernel's kgd_pp_interface.h and read back by struct codes: two
ways to the same layout. No snapshot of a real card was at hand."""

from __future__ import annotations

import ctypes as c
from pathlib import Path

import pytest

from cards.amd import detect_amd
from cards.gpu_metrics import LAYOUTS, parse
from cards.hygon import THROTTLE_BITS
from cards.state import read_state
from tests.cards import hosts

U8, U16, U32, U64 = c.c_uint8, c.c_uint16, c.c_uint32, c.c_uint64
Field = tuple[str, type]
HEAD: list[Field] = [("structure_size", U16), ("format_revision", U8), ("content_revision", U8)]
CLOCKS: list[Field] = [("average", U16 * 7), ("gfxclk", U16), ("socclk", U16), ("uclk", U16), ("video", U16 * 4)]
MI300: list[Field] = [*HEAD, ("temperatures", U16 * 3), ("power", U16), ("gfx_activity", U16), ("umc_activity", U16)]
LINK: list[Field] = [
    ("pcie_width", U16), ("pcie_speed", U16), ("xgmi_width", U16), ("xgmi_speed", U16), ("gfx_acc", U32),
    ("mem_acc", U32), ("pcie_bandwidth_acc", U64), ("pcie_bandwidth_inst", U64), ("l0_to_recov", U64),
    ("replay", U64), ("replay_rover", U64),
]  # fmt: skip
XGMI: list[Field] = [("xgmi_read", U64 * 8), ("xgmi_write", U64 * 8)]
END: list[Field] = [
    ("firmware_timestamp", U64), ("gfxclk", U16 * 8), ("socclk", U16 * 4), ("vclk0", U16 * 4), ("dclk0", U16 * 4),
    ("uclk", U16), ("padding", U16),
]  # fmt: skip
ACCUMULATED: list[Field] = [
    ("energy", U64), ("clock", U64), ("accumulation_counter", U32), ("prochot_residency_acc", U32),
    ("ppt_residency_acc", U32), ("socket_thm_residency_acc", U32), ("vr_thm_residency_acc", U32),
    ("hbm_thm_residency_acc", U32), ("gfxclk_lock_status", U32),
]  # fmt: skip
STATUS: list[Field] = [("energy", U64), ("clock", U64), ("throttle_status", U32), ("gfxclk_lock_status", U32)]
NAK: list[Field] = [("nak_sent", U32), ("nak_received", U32)]
V1_1: list[Field] = [
    *HEAD, ("temperatures", U16 * 6), ("activity", U16 * 3), ("power", U16), ("energy", U64), ("clock", U64), *CLOCKS,
    ("throttle_status", U32), ("fan", U16), ("width", U16), ("speed", U16), ("padding", U16), ("gfx_acc", U32),
    ("mem_acc", U32), ("hbm", U16 * 4),
]  # fmt: skip
STRUCTS: dict[tuple[int, int], list[Field]] = {
    (1, 0): [
        *HEAD, ("clock", U64), ("temperatures", U16 * 6), ("activity", U16 * 3), ("power", U16), ("energy", U32),
        *CLOCKS, ("throttle_status", U32), ("fan", U16), ("width", U8), ("speed", U8),
    ],
    (1, 1): V1_1,
    (1, 2): [*V1_1, ("firmware_timestamp", U64)],
    (1, 3): [
        *V1_1, ("firmware_timestamp", U64), ("voltage", U16 * 3), ("padding1", U16), ("indep_throttle_status", U64),
    ],
    (1, 4): [*MI300, ("vcn", U16 * 4), *STATUS, *LINK, *XGMI, *END],
    (1, 5): [*MI300, ("vcn", U16 * 4), ("jpeg", U16 * 32), *STATUS, *LINK, *NAK, *XGMI, *END],
    (1, 6): [*MI300, *ACCUMULATED, *LINK, *NAK, *XGMI, *END],
    (1, 7): [
        *MI300, ("bandwidth", U64), *ACCUMULATED, *LINK, *NAK, *XGMI, ("link_status", U16 * 8), ("padding0", U16), *END,
    ],
    (1, 8): [
        *MI300, ("bandwidth", U64), *ACCUMULATED, *LINK, *NAK, *XGMI, ("link_status", U16 * 8), ("padding0", U16), *END,
    ],
}  # fmt: skip


def snapshot(version: tuple[int, int], **values: int | list[int]) -> bytes:
    """All ones, as the driver begins (smu_cmn_init_soft_gpu_metrics), but for what is given."""
    kind = type("GpuMetrics", (c.Structure,), {"_fields_": STRUCTS[version]})
    raw = bytearray(b"\xff" * c.sizeof(kind))
    table = kind.from_buffer(raw)
    table.structure_size, table.format_revision, table.content_revision = c.sizeof(kind), *version
    for name, value in values.items():
        if isinstance(value, list):
            getattr(table, name)[: len(value)] = value
        else:
            setattr(table, name, value)
    return bytes(raw)


def test_every_layout_is_tested() -> None:
    assert set(STRUCTS) == set(LAYOUTS)


@pytest.mark.parametrize("version", STRUCTS)
def test_the_clocks_stand_where_the_kernel_puts_them(version: tuple[int, int]) -> None:
    several = version >= (1, 4)
    read = parse(snapshot(version, gfxclk=[2100, 132] if several else 2100, uclk=1300))
    assert read is not None and (read.gfxclk_mhz, read.uclk_mhz) == (2100, 1300)
    assert (read.throttled, read.reasons, read.counters) == (None, (), {})  # what is all ones is not known


@pytest.mark.parametrize("version", [v for v in STRUCTS if v < (1, 6)])
def test_a_quiet_card_is_not_throttled_and_a_busy_one_is(version: tuple[int, int]) -> None:
    quiet, held = (parse(snapshot(version, throttle_status=value)) for value in (0, 0x8001))
    assert quiet is not None and quiet.throttled is False
    assert held is not None and held.throttled is True and held.reasons == ("unnamed: throttle_status 0x00008001",)


def test_hygon_names_the_bits_of_its_own(tmp_path: Path) -> None:
    said = {bits: parse(snapshot((1, 1), throttle_status=bits), THROTTLE_BITS) for bits in (0, 0b1, 0b1010, 0b10001)}
    assert {bits: read.reasons for bits, read in said.items() if read is not None} == {
        0: (),
        0b1: ("heat: THERMAL",),
        0b1010: ("power: POWER", "power: BOARD_LIMIT"),
        0b10001: ("heat: THERMAL", "unnamed: throttle_status 0x00000011"),
    }
    device = hosts.z100(tmp_path).parent / "sys/bus/pci/devices/0000:04:00.0"
    (device / "gpu_metrics").write_bytes(snapshot((1, 1), throttle_status=0b1))
    first, second = (read_state(card, tmp_path) for card in detect_amd(tmp_path))
    assert (first.throttled, first.reasons, second.throttled) == (True, ("heat: THERMAL",), None)


def test_the_bits_that_mean_the_same_on_every_card_have_names() -> None:
    read = parse(snapshot((1, 3), throttle_status=1 << 5, indep_throttle_status=1 << 0 | 1 << 36))
    assert read is not None and read.reasons == ("power: PPT0", "heat: TEMP_HOTSPOT")


def test_an_mi300x_tells_running_totals() -> None:
    read = parse(snapshot((1, 6), accumulation_counter=1000, ppt_residency_acc=250, hbm_thm_residency_acc=0))
    assert read is not None and read.throttled is None
    assert read.counters == {"accumulation_counter": 1000, "ppt_residency_acc": 250, "hbm_thm_residency_acc": 0}


def test_what_is_cut_short_or_of_another_kind_is_not_read() -> None:
    whole = snapshot((1, 3))
    assert parse(whole) is not None
    assert parse(whole[:-1]) is None and parse(b"") is None
    assert parse(whole[:2] + bytes([2, 1]) + whole[4:]) is None  # an APU's
    assert parse(bytes([8, 0, 1, 3]) + whole[4:]) is None  # says that it is 8 bytes
