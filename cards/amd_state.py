"""What an AMD card is doing now: amdgpu's hwmon, pp_dpm_* and gpu_metrics files. Hygon's driver is a fork of amdgpu;
what it does not have is None.

Units and names: the kernel's Documentation/gpu/amdgpu/thermal.rst (temperatures in millidegrees, power in microwatts,
clocks in hertz). device/thermal_throttling_logging is not read: it says whether the kernel logs, not whether the card
throttles. Checked against fixture trees only; not yet run on a machine with such a card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cards import gpu_metrics
from cards.amd import used_vram
from cards.amd_sysfs import pci_device
from cards.card_state import CardState
from cards.driver import HYGON_MODULES
from cards.hygon import THROTTLE_BITS
from cards.kernel_files import entries, read_int, read_line
from contracts import Card

SENSORS = {1: "edge", 2: "junction", 3: "mem"}  # temp<n>_label says so too, on kernels that have it
STARRED = re.compile(r"(\d+)\s*mhz\s*\*", re.IGNORECASE)  # pp_dpm_sclk: "1: 1725Mhz *" is the level in use


def read_amd(card: Card, root: Path) -> CardState:
    """Never raises. A part of a partitioned card has the whole card's clocks, heat and power, and no memory count."""
    device = pci_device(root, card.pci_address or "", card.render_minor)
    if device is None:
        return CardState()
    sensors = _hwmon(device)
    metrics = _metrics(device, THROTTLE_BITS if (card.driver or "") in HYGON_MODULES else {})
    power = _scaled(sensors, "power1_average", 1e-6) or _scaled(sensors, "power1_input", 1e-6)
    return CardState(
        sclk_mhz=_clock(device, sensors, "freq1_input", "pp_dpm_sclk", metrics.gfxclk_mhz if metrics else None),
        mclk_mhz=_clock(device, sensors, "freq2_input", "pp_dpm_mclk", metrics.uclk_mhz if metrics else None),
        power_w=power or None,  # a board's second die reports 0 W: the first counts for both
        power_cap_w=_scaled(sensors, "power1_cap", 1e-6) or None,
        temperatures_c=_temperatures(sensors),
        throttled=metrics.throttled if metrics else None,
        reasons=metrics.reasons if metrics else (),
        throttle_counters=metrics.counters if metrics else {},
        vram_used_bytes=used_vram(card, root),
        busy_percent=read_int(device / "gpu_busy_percent"),
    )


def _hwmon(device: Path) -> Path | None:
    return next(iter(entries(device, "hwmon/hwmon*")), None)  # the driver registers one


def _metrics(device: Path, own_bits: Mapping[int, str]) -> gpu_metrics.GpuMetrics | None:
    try:
        return gpu_metrics.parse((device / "gpu_metrics").read_bytes(), own_bits)
    except OSError:
        return None


def _scaled(folder: Path | None, name: str, factor: float) -> float | None:
    value = read_int(folder / name) if folder else None
    return None if value is None else round(value * factor, 3)


def _clock(device: Path, sensors: Path | None, measured: str, levels: str, firmware: int | None) -> float | None:
    """MHz: what hwmon measures, else the level in use, else the firmware's word."""
    if hertz := _scaled(sensors, measured, 1e-6):
        return hertz
    if found := STARRED.search(read_line(device / levels) or ""):
        return float(found[1])
    return None if firmware is None else float(firmware)


def _temperatures(sensors: Path | None) -> dict[str, float]:
    """Degrees by the driver's own names. A sensor that reads exactly 0 is not there (a virtual function answers so)."""
    if sensors is None:
        return {}
    found = {}
    for number, name in SENSORS.items():
        if value := _scaled(sensors, f"temp{number}_input", 1e-3):
            found[read_line(sensors / f"temp{number}_label") or name] = value
    return found
