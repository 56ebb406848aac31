"""AMD cards, and Hygon's that speak the same tongue, from the kernel's own description (KFD topology in sysfs).

Nothing here opens /dev/kfd or loads HIP: initialising it takes memory on every card, and a process that has done so
cannot fork an engine safely.

The format is the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c (node_show, mem_show): one "name number" a line.
Checked against fixture trees written from it; not yet run on a machine with such a card.
"""

from __future__ import annotations

import re
from pathlib import Path

from cards.kernel_files import read_int, read_line, read_numbers
from contracts import Card

AMD, HYGON = 0x1002, 0x1D94  # PCI vendors
FRAME_BUFFER_HEAPS = (1, 2)  # HSA_MEM_HEAP_TYPE_FB_PUBLIC, _FB_PRIVATE in kfd_crat.h; 0 is system memory
NODES = "sys/class/kfd/kfd/topology/nodes"


def detect_amd(root: Path) -> tuple[Card, ...]:
    """Cards in the order of their topology nodes, which is the order in which ROCr and HIP number them."""
    try:
        nodes = [n for n in (root / NODES).iterdir() if n.name.isdigit()]
    except OSError:
        return ()
    cards = (_card(root, node) for node in sorted(nodes, key=lambda n: int(n.name)))
    return tuple(card for card in cards if card is not None)


def _card(root: Path, node: Path) -> Card | None:
    """None for a CPU's node, and for a card that this container may not read."""
    facts = read_numbers(node / "properties")
    arch = decode_gfx(facts.get("gfx_target_version", 0))
    if arch is None or not facts.get("simd_count") or facts.get("vendor_id", AMD) not in (AMD, HYGON):
        return None
    address = pci_address(facts.get("domain", 0), facts.get("location_id", 0))
    device = drm_device(root, address, facts.get("drm_render_minor"))
    vram = read_int(device / "mem_info_vram_total") if device else None
    maker = "Hygon" if facts.get("vendor_id") == HYGON else "AMD"
    name = (read_line(device / "product_name") if device else None) or f"{maker} {arch}"
    return Card(
        arch=arch,
        kind="amd",
        name=name,
        memory_bytes=vram if vram else _banked_memory(node),
        compute_units=facts["simd_count"] // max(1, facts.get("simd_per_cu", 4)),  # 4 on every GCN and CDNA part
        pci_address=address,
        wavefront=facts.get("wave_front_size") or None,
        source=f"KFD topology node {node.name}",
    )


def free_vram(card: Card, root: Path) -> int | None:
    """Bytes of the card's memory that nobody holds, by amdgpu's own count; None where it does not say."""
    device = drm_device(root, card.pci_address or "", None)
    used = read_int(device / "mem_info_vram_used") if device else None
    return None if used is None else max(0, card.memory_bytes - used)


def decode_gfx(version: int) -> str | None:
    """KFD's gfx_target_version, major * 10000 + minor * 100 + stepping, as the compilers spell it: minor and stepping
    are one hexadecimal digit each. 90006 -> gfx906, 90010 -> gfx90a, 90402 -> gfx942, 120501 -> gfx1251. 0: no GPU."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    if major <= 0 or minor > 15 or stepping > 15:
        return None
    return f"gfx{major}{minor:x}{stepping:x}"


def canonical_arch(text: str) -> str:
    """The compilers' spelling of an arch that another tool spelled its own way.

    Features after a colon go (gfx90a:sramecc+:xnack-). Some amdsmi versions write gfx906 as gfx9006, with a decimal
    two-digit stepping (a gfx906 fork of vLLM normalises it, and it was reported for Hygon's DTK); stock vLLM reads that
    as major version 90.
    """
    arch = text.strip().lower().split(":")[0]
    padded = re.fullmatch(r"gfx9(0|4|5)(\d\d)", arch)
    return decode_gfx(90000 + int(padded[1]) * 100 + int(padded[2])) or arch if padded else arch


def pci_address(domain: int, location: int) -> str:
    """location_id is the PCI bus in its upper and the device and function in its lower byte; a partitioned card keeps
    the partition's number in bits above those."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"


def drm_device(root: Path, address: str, render_minor: int | None) -> Path | None:
    """The card's device folder in sysfs, by its render node (exact) or its PCI address."""
    drm = root / "sys/class/drm"
    if render_minor:
        device = drm / f"renderD{render_minor}" / "device"
        if device.is_dir():
            return device
    for device in sorted(drm.glob("card[0-9]*/device")):
        if device.resolve().name == address:
            return device
    return None


def _banked_memory(node: Path) -> int:
    """Bytes of the node's frame buffer banks; 0 where the kernel lists none."""
    banks = (read_numbers(bank) for bank in sorted(node.glob("mem_banks/*/properties")))
    return sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") in FRAME_BUFFER_HEAPS)
