"""What the CPU is doing now, in the words that cards use: frequency, heat, thermal throttling, how busy.

Formats: cpufreq's scaling_cur_freq (kHz; Documentation/admin-guide/pm/cpufreq.rst), /proc/cpuinfo's "cpu MHz", x86's
thermal_throttle counters (Documentation/ABI/testing/sysfs-devices-system-cpu), hwmon's temp1_input (thousandths of a
degree), /proc/stat. A virtual machine often tells none of these but /proc/stat and a constant frequency.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

from cards.card_state import CardState
from cards.kernel_files import entries, read_int, read_line

CPUS = "sys/devices/system/cpu"
MOST_CPUS = 16  # looked at, spread over the machine: on 256 cores all of them would cost more than a sampler may
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # hwmon names of CPUs: Intel, AMD, AMD, Arm boards
COUNTERS = ("core_throttle_count", "package_throttle_count")


class CpuReader:
    """Reads one moment after the other: throttling and use are told by counters that grow between two of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        folders = [f for f in entries(root / CPUS, "cpu[0-9]*") if f.name[3:].isdigit()]
        folders.sort(key=lambda f: int(f.name[3:]))
        step = max(1, -(-len(folders) // MOST_CPUS))
        self._cpus = folders[::step]
        self._clocks = [f / "cpufreq/scaling_cur_freq" for f in self._cpus]
        self._clocks = [clock for clock in self._clocks if read_int(clock) is not None]
        counters = [f / f"thermal_throttle/{name}" for f in self._cpus for name in COUNTERS]
        self._counters = [path for path in counters if read_int(path) is not None]
        self._sensors = {
            name: folder / "temp1_input"
            for folder in entries(root / "sys/class/hwmon", "hwmon*")
            if (name := read_line(folder / "name")) in SENSORS
        }
        self._throttles: dict[str, int] | None = None
        self._used: tuple[int, int] | None = None

    def read(self) -> CardState:
        throttled, reasons = self._throttling()
        return CardState(
            sclk_mhz=self._mhz(),
            temperatures_c={n: t / 1000 for n, path in self._sensors.items() if (t := read_int(path)) is not None},
            throttled=throttled,
            reasons=reasons,
            busy_percent=self._busy(),
        )

    def _mhz(self) -> float | None:
        if self._clocks:
            told = [khz / 1000 for clock in self._clocks if (khz := read_int(clock)) is not None]
        else:
            text = read_line(self._root / "proc/cpuinfo") or ""
            told = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*(\d+(?:\.\d+)?)\s*$", text, re.MULTILINE)]
        return fmean(told) if told else None

    def _throttling(self) -> tuple[bool | None, tuple[str, ...]]:
        if not self._counters:
            return None, ()
        before, self._throttles = self._throttles, {}
        for path in self._counters:
            name = "heat: core" if path.name.startswith("core") else "heat: package"
            self._throttles[name] = self._throttles.get(name, 0) + (read_int(path) or 0)
        if before is None:
            return None, ()
        reasons = tuple(name for name, count in self._throttles.items() if count > before.get(name, count))
        return bool(reasons), reasons

    def _busy(self) -> float | None:
        """/proc/stat's first line: user nice system idle iowait irq softirq steal (guest time is inside user)."""
        words = (read_line(self._root / "proc/stat") or "").split("\n", 1)[0].split()[1:9]
        if len(words) < 5 or not all(word.isdigit() for word in words):
            return None
        ticks = [int(word) for word in words]
        total, idle = sum(ticks), ticks[3] + ticks[4]
        before, self._used = self._used, (total, idle)
        if before is None or total <= before[0]:
            return None
        return 100 * (1 - (idle - before[1]) / (total - before[0]))
