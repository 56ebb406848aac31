"""Whole machines as their kernels describe them: /sys, /proc and /dev trees of hosts with AMD, Hygon and NVIDIA cards.

Nothing here was recorded from such a machine. The formats are the kernel's (amdkfd/kfd_topology.c, pm/amdgpu_pm.c,
amdgpu_vram_mgr.c, amdgpu_gfx.c, Documentation/gpu/amdgpu/thermal.rst), the numbers are published: compute units and
memory from AMD's ROCm page "GPU hardware specifications"; device ids from the PCI ID list; a Z100's 60 units and 32752
MiB from Fudan University's mixbench report (2024-04-15), its 1d94:54b7 and the module's name hydcu from owners' notes;
an MI300X's frame buffer (206142726144 bytes) and SIMDs from rocminfo output in public issues. Clocks, watts and degrees
are made up.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.cards.trees import cpu_node, gpu_node, machine, write

GIB = 1 << 30
MI300X_BYTES = 206142726144
CLASS = {0x1002: "0x038000", 0x1D94: "0x038000", 0x10DE: "0x030200"}


def pci_card(
    root: Path, address: str, vendor: int, device: int, *, driver: str | None, card: int, minor: int | None = None
) -> Path:
    """A card on the PCI bus with its DRM nodes: `card` and `minor` are what the kernel happened to number them."""
    real = root / f"sys/devices/pci0000:00/{address}"
    write(real / "vendor", f"0x{vendor:04x}\n")
    write(real / "device", f"0x{device:04x}\n")
    write(real / "class", CLASS[vendor] + "\n")
    (real / "config").write_bytes(struct.pack("<HH60x", vendor, device))
    _link(root / f"sys/bus/pci/devices/{address}", real)
    if driver is not None:
        (root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        _link(real / "driver", root / f"sys/bus/pci/drivers/{driver}")
    for name in (f"card{card}", *([f"renderD{minor}"] if minor else ())):
        _link(root / f"sys/class/drm/{name}/device", real)
    return real


def sensors(
    device: Path,
    *,
    sclk_mhz: int = 1725,
    mclk_mhz: int = 1000,
    watts: float = 225,
    cap: float = 300,
    degrees: tuple[int | None, int, int] = (60, 75, 68),
    power_file: str = "power1_average",
    busy: int = 97,
) -> None:
    """amdgpu's hwmon folder and its neighbours. `degrees`: edge (None: not on this card), junction, mem."""
    hwmon = device / "hwmon/hwmon4"
    write(hwmon / "name", "amdgpu\n")
    for number, (label, value) in enumerate(zip(("edge", "junction", "mem"), degrees, strict=True), 1):
        if value is not None:
            write(hwmon / f"temp{number}_input", f"{value * 1000}\n")
            write(hwmon / f"temp{number}_label", f"{label}\n")
    write(hwmon / power_file, f"{round(watts * 1e6)}\n")
    write(hwmon / "power1_cap", f"{round(cap * 1e6)}\n")
    write(hwmon / "freq1_input", f"{sclk_mhz * 1_000_000}\n")
    write(hwmon / "freq2_input", f"{mclk_mhz * 1_000_000}\n")
    write(device / "pp_dpm_sclk", f"0: 925Mhz \n1: {sclk_mhz}Mhz *\n")
    write(device / "pp_dpm_mclk", f"0: 350Mhz \n1: {mclk_mhz}Mhz *\n")
    write(device / "gpu_busy_percent", f"{busy}\n")
    write(
        device / "thermal_throttling_logging", f"{device.name}: thermal throttling logging enabled, with interval 60\n"
    )


def devices(root: Path, *minors: int) -> Path:
    """A /dev with kfd and render nodes, as plain files."""
    write(root / "dev/kfd", "")
    for minor in minors:
        write(root / f"dev/dri/renderD{minor}", "")
    return root / "dev"


def mi50(root: Path, *, node: int = 1, bus: int = 0x03, card: int = 0, minor: int = 128, unique_id: int = 0) -> Path:
    """One Radeon Instinct MI50 with 32 GB."""
    real = pci_card(root, f"0000:{bus:02x}:00.0", 0x1002, 0x66A1, driver="amdgpu", card=card, minor=minor)
    gpu_node(
        root, node, gfx=90006, simd_count=240, bank_bytes=32 * GIB - (16 << 20), location=bus << 8, minor=minor,
        unique_id=unique_id,
    )  # fmt: skip
    write(real / "mem_info_vram_total", f"{32 * GIB - (16 << 20)}\n")
    write(real / "mem_info_vram_used", f"{11 << 20}\n")
    sensors(real)
    return real


def z100(root: Path) -> Path:
    """Two Hygon Z100 with Hygon's own driver, behind host bridges of the same vendor, a BMC's VGA at card0."""
    machine(root)
    cpu_node(root, 0)
    bridge = root / "sys/devices/pci0000:00/0000:00:01.0"
    write(bridge / "vendor", "0x1d94\n")
    write(bridge / "class", "0x060000\n")
    _link(root / "sys/bus/pci/devices/0000:00:01.0", bridge)
    for i, bus in enumerate((0x04, 0x0A)):
        address = f"0000:{bus:02x}:00.0"
        real = pci_card(root, address, 0x1D94, 0x54B7, driver="hydcu", card=i + 1, minor=128 + i)
        gpu_node(
            root, i + 1, gfx=90006, simd_count=240, bank_bytes=32752 << 20, location=bus << 8, vendor=0x1D94,
            device=0x54B7, minor=128 + i, unique_id=0x7137D9B2A08A4800 + i,
        )  # fmt: skip
        write(real / "mem_info_vram_total", f"{32752 << 20}\n")
        write(real / "mem_info_vram_used", f"{2 << 20}\n")
        sensors(real, sclk_mhz=1319)
    return devices(root, 128, 129)


def mi250x(root: Path) -> Path:
    """One board, two dies: two PCI devices, two nodes. The second die's sensor says 0 W."""
    machine(root)
    cpu_node(root, 0)
    for i, bus in enumerate((0xC1, 0xC6)):
        real = pci_card(root, f"0000:{bus:02x}:00.0", 0x1002, 0x7408, driver="amdgpu", card=i, minor=128 + i)
        gpu_node(
            root, i + 1, gfx=90010, simd_count=440, bank_bytes=64 * GIB, location=bus << 8, device=0x7408,
            minor=128 + i, unique_id=0xA1B2C3D4E5F60000 + i,
        )  # fmt: skip
        write(real / "mem_info_vram_total", f"{64 * GIB}\n")
        write(real / "mem_info_vram_used", f"{i * GIB}\n")
        write(real / "product_name", "AMD INSTINCT MI250X\n")
        sensors(real, watts=500 * (1 - i), cap=560)
    return devices(root, 128, 129)


def mi300x(root: Path, compute: str = "SPX", memory: str = "NPS1", *, own_ids: bool = True) -> Path:
    """One MI300X, whole (SPX) or as eight parts (CPX). `own_ids`: each part has its own unique id, as since the
    kernel's "Use xcp unique_id"; before, all had the card's."""
    machine(root)
    cpu_node(root, 0)
    address, location = "0000:26:00.0", 0x2600
    real = pci_card(root, address, 0x1002, 0x74A1, driver="amdgpu", card=1, minor=128)
    parts = 8 if compute == "CPX" else 1
    for part in range(parts):
        gpu_node(
            root, part + 1, gfx=90402, simd_count=1216 // parts, bank_bytes=MI300X_BYTES // parts,
            location=location | part << 28, device=0x74A1, minor=128 + part, num_xcc=8 // parts,
            unique_id=0x21B6D61638A80000 + (part if own_ids else 0),
        )  # fmt: skip
        if part:  # the other parts' DRM nodes hang on platform devices
            platform = root / f"sys/devices/platform/amdgpu_xcp_{part - 1}"
            platform.mkdir(parents=True)
            _link(root / f"sys/class/drm/renderD{128 + part}/device", platform)
            _link(root / f"sys/class/drm/card{1 + part}/device", platform)
    write(real / "mem_info_vram_total", f"{MI300X_BYTES}\n")
    write(real / "mem_info_vram_used", f"{7 * GIB}\n")
    write(real / "product_name", "AMD Instinct MI300X OAM\n")
    write(real / "current_compute_partition", f"{compute}\n")
    write(real / "current_memory_partition", f"{memory}\n")
    sensors(real, degrees=(None, 52, 44), power_file="power1_input", watts=480, cap=750, sclk_mhz=2100, mclk_mhz=1300)
    return devices(root, *range(128, 128 + parts))


def mi355x(root: Path) -> Path:
    """One MI355X: 256 compute units, 288 GB."""
    machine(root)
    cpu_node(root, 0)
    real = pci_card(root, "0001:75:00.0", 0x1002, 0x75A3, driver="amdgpu", card=9, minor=136)
    gpu_node(
        root, 2, gfx=90500, simd_count=1024, bank_bytes=288 * GIB, location=0x7500, domain=1, device=0x75A3, minor=136,
        unique_id=11964983762810164421, num_xcc=8,
    )  # fmt: skip
    write(real / "mem_info_vram_total", f"{288 * GIB}\n")
    write(real / "mem_info_vram_used", f"{5 * GIB}\n")
    write(real / "product_name", "AMD Instinct MI355X OAM\n")
    write(real / "current_compute_partition", "SPX\n")
    write(real / "current_memory_partition", "NPS1\n")
    sensors(real, degrees=(None, 61, 55), power_file="power1_input", watts=1010, cap=1400, sclk_mhz=2400)
    return devices(root, 136)


def mixed(root: Path) -> Path:
    """A workstation: the processor's own graphics (gfx90c, numbered first, no unique id), an MI50, an NVIDIA card."""
    machine(root)
    cpu_node(root, 0)
    real = pci_card(root, "0000:c1:00.0", 0x1002, 0x1636, driver="amdgpu", card=0, minor=128)
    gpu_node(
        root, 1, gfx=90012, simd_count=28, bank_bytes=GIB // 2, location=0xC100, device=0x1636, minor=128, unique_id=0
    )
    write(real / "mem_info_vram_total", f"{GIB // 2}\n")
    mi50(root, node=2, bus=0x2D, card=1, minor=129, unique_id=0x21501EDCBA987654)
    pci_card(root, "0000:41:00.0", 0x10DE, 0x2335, driver="nvidia", card=2, minor=130)
    return devices(root, 128, 129)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
