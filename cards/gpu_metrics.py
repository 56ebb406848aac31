"""amdgpu's gpu_metrics file: one binary snapshot by the card's own firmware, the only place that says whether and why
the clocks are held down.

Layouts: struct gpu_metrics_v1_0 ... v1_8 in the kernel's drivers/gpu/drm/amd/include/kgd_pp_interface.h, in C's own
alignment. What a card does not measure is all ones. An MI50's driver writes v1.0, MI200 v1.3, MI300 and MI350 v1.4 and
later. v1.9 (a list of attributes) and the APUs' v2 and v3 are not read. No such file of a real card was at hand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from contracts import Frozen

# The bits of indep_throttle_status: SMU_THROTTLER_*_BIT in drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h.
THROTTLERS = {
    0: "power: PPT0", 1: "power: PPT1", 2: "power: PPT2", 3: "power: PPT3", 4: "power: SPL", 5: "power: FPPT",
    6: "power: SPPT", 7: "power: SPPT_APU",
    16: "current: TDC_GFX", 17: "current: TDC_SOC", 18: "current: TDC_MEM", 19: "current: TDC_VDD",
    20: "current: TDC_CVIP", 21: "current: EDC_CPU", 22: "current: EDC_GFX", 23: "current: APCC",
    32: "heat: TEMP_GPU", 33: "heat: TEMP_CORE", 34: "heat: TEMP_MEM", 35: "heat: TEMP_EDGE", 36: "heat: TEMP_HOTSPOT",
    37: "heat: TEMP_SOC", 38: "heat: TEMP_VR_GFX", 39: "heat: TEMP_VR_SOC", 40: "heat: TEMP_VR_MEM0",
    41: "heat: TEMP_VR_MEM1", 42: "heat: TEMP_LIQUID0", 43: "heat: TEMP_LIQUID1", 44: "heat: VRHOT0",
    45: "heat: VRHOT1", 46: "heat: PROCHOT_CPU", 47: "heat: PROCHOT_GFX",
    56: "other: PPM", 57: "other: FIT",
}  # fmt: skip

Fields = tuple[tuple[str, str], ...]  # (name, struct code); a name that begins with _ is stepped over
_HEAD: Fields = (("_size", "H"), ("_format", "B"), ("_content", "B"))
_CLOCKS: Fields = (("_average_clocks", "7H"), ("gfxclk", "H"), ("_socclk", "H"), ("uclk", "H"), ("_video_clocks", "4H"))
_V1_0: Fields = (
    *_HEAD, ("_clock", "Q"), ("_temperatures", "6H"), ("_activity", "3H"), ("_power", "H"), ("_energy", "I"), *_CLOCKS,
    ("throttle_status", "I"),
)  # fmt: skip
_V1_1: Fields = (
    *_HEAD, ("_temperatures", "6H"), ("_activity", "3H"), ("_power", "H"), ("_energy", "Q"), ("_clock", "Q"), *_CLOCKS,
    ("throttle_status", "I"),
)  # fmt: skip
_V1_3: Fields = (
    *_V1_1, ("_fan", "H"), ("_link", "2H"), ("_padding", "H"), ("_activity_acc", "2I"), ("_hbm", "4H"),
    ("_timestamp", "Q"), ("_voltage", "3H"), ("_padding1", "H"), ("indep_throttle_status", "Q"),
)  # fmt: skip
_MI300: Fields = (*_HEAD, ("_temperatures", "3H"), ("_power", "H"), ("_activity", "2H"))
_LINKS: Fields = (("_widths", "4H"), ("_activity_acc", "2I"), ("_pcie", "5Q"))
_TAIL: Fields = (("_timestamp", "Q"), ("gfxclk", "8H"), ("_other_clocks", "12H"), ("uclk", "H"))
_XGMI: Fields = (("_xgmi", "16Q"),)
_NAKS: Fields = (("_naks", "2I"),)
_STATUS: Fields = (("_energy", "Q"), ("_clock", "Q"), ("throttle_status", "I"), ("_lock", "I"))
_RESIDENCY: Fields = (
    ("_energy", "Q"), ("_clock", "Q"), ("accumulation_counter", "I"), ("prochot_residency_acc", "I"),
    ("ppt_residency_acc", "I"), ("socket_thm_residency_acc", "I"), ("vr_thm_residency_acc", "I"),
    ("hbm_thm_residency_acc", "I"), ("_lock", "I"),
)  # fmt: skip
_V1_7: Fields = (
    *_MI300, ("_bandwidth", "Q"), *_RESIDENCY, *_LINKS, *_NAKS, *_XGMI, ("_link_status", "8H"), ("_padding", "H"),
    *_TAIL,
)  # fmt: skip
LAYOUTS: dict[tuple[int, int], Fields] = {
    (1, 0): _V1_0,
    (1, 1): _V1_1,
    (1, 2): _V1_1,
    (1, 3): _V1_3,
    (1, 4): (*_MI300, ("_vcn", "4H"), *_STATUS, *_LINKS, *_XGMI, *_TAIL),
    (1, 5): (*_MI300, ("_vcn", "4H"), ("_jpeg", "32H"), *_STATUS, *_LINKS, *_NAKS, *_XGMI, *_TAIL),
    (1, 6): (*_MI300, *_RESIDENCY, *_LINKS, *_NAKS, *_XGMI, *_TAIL),
    (1, 7): _V1_7,
    (1, 8): _V1_7,  # differs from v1.7 behind what is read here
}
COUNTERS = tuple(name for name, _ in _RESIDENCY if not name.startswith("_"))


class GpuMetrics(Frozen):
    """What is used of it. MHz. `throttled` None: this layout, or this card, does not say."""

    version: tuple[int, int]
    gfxclk_mhz: int | None = None
    uclk_mhz: int | None = None
    throttled: bool | None = None
    reasons: tuple[str, ...] = ()
    counters: dict[str, int] = {}  # v1.6 and later: how long each limiter held the clocks down, in firmware's steps


def parse(data: bytes, own_bits: Mapping[int, str] = {}) -> GpuMetrics | None:
    """None for what is no such snapshot, is cut short, or has a layout that is not known here. `own_bits` names the
    bits of throttle_status where the card's maker does; AMD's differ from card to card."""
    if len(data) < 4:
        return None
    size, version = struct.unpack_from("=H", data)[0], (data[2], data[3])
    layout = LAYOUTS.get(version)
    code = "@" + "".join(code for _, code in layout) if layout else ""
    if layout is None or not struct.calcsize(code) <= min(size, len(data)):
        return None
    values = list(struct.unpack_from(code, data))
    said: dict[str, int] = {}
    for name, form in layout:
        count, letter = int(form[:-1] or 1), form[-1]
        taken, values = values[:count], values[count:]
        absent = (1 << 8 * struct.calcsize("=" + letter)) - 1
        present = [value for value in taken if value != absent]
        if present and not name.startswith("_"):
            said[name] = present[0]
    throttled, reasons = _throttling(said.get("throttle_status"), said.get("indep_throttle_status"), own_bits)
    return GpuMetrics(
        version=version,
        gfxclk_mhz=said.get("gfxclk"),
        uclk_mhz=said.get("uclk"),
        throttled=throttled,
        reasons=reasons,
        counters={name: said[name] for name in COUNTERS if name in said},
    )


def _throttling(
    own: int | None, common: int | None, own_bits: Mapping[int, str]
) -> tuple[bool | None, tuple[str, ...]]:
    """From the bits whose meaning is the same on every card where there are any, else from the card's own bits, most of
    which have no names here."""
    if common:
        names = (THROTTLERS.get(bit, f"other: bit {bit}") for bit in range(64) if common >> bit & 1)
        return True, tuple(names)
    if own:
        named = [name for bit, name in own_bits.items() if own >> bit & 1]
        rest = own & ~sum(1 << bit for bit in own_bits)
        return True, (*named, *([f"unnamed: throttle_status {own:#010x}"] if rest else ()))
    return (None, ()) if own is None and common is None else (False, ())
