"""AMD cards, and Hygon's that speak the same tongue, from the kernel's own description (KFD topology in sysfs).

Nothing here opens /dev/kfd or loads HIP: initialising it takes memory on every card, and a process that has done so
cannot fork an engine safely.

The format is the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c (node_show, mem_show): one "name number" a line.
Checked against fixture trees written from it; not yet run on a machine with such a card.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cards.amd_sysfs import AMD, HYGON, NODES, driver_of, fallen, pci_device
from cards.hygon import card_name
from cards.kernel_files import entries, read_int, read_line, read_numbers
from contracts import Card, Partition

FRAME_BUFFER_HEAPS = (1, 2)  # HSA_MEM_HEAP_TYPE_FB_PUBLIC, _FB_PRIVATE in kfd_crat.h; 0 is system memory
NO_ID, ALL_ONES = 0, (1 << 64) - 1  # unique_id of a card that has none (rocminfo shows GPU-ffffffffffffffff for some)
Facts = Mapping[str, int]


def detect_amd(root: Path) -> tuple[Card, ...]:
    """Cards in the order of their topology nodes, which is the order in which ROCr and HIP number them. A card that has
    fallen off the bus is none; findings.py tells of it."""
    nodes = gpu_nodes(root)
    parts = Counter(board_address(root, facts) for _, facts in nodes)
    ids = Counter(facts.get("unique_id", 0) for _, facts in nodes)
    cards = []
    for index, (number, facts) in enumerate(nodes):
        uuid = facts.get("unique_id", NO_ID)
        of = parts[board_address(root, facts)]
        usable = uuid not in (NO_ID, ALL_ONES) and ids[uuid] == 1
        # Kernels before the parts had ids of their own gave all parts the card's; ROCr refuses an id that fits two.
        card = _card(root, number, facts, of, index, f"GPU-{uuid:016x}" if usable else None)
        if card is not None:
            cards.append(card)
    return tuple(cards)


def gpu_nodes(root: Path) -> list[tuple[int, Facts]]:
    """(number, properties) of each topology node that ROCr counts as a GPU (RvdFilter in its amd_filter_device.cpp: it
    has SIMDs and may be read), in its order."""
    try:
        numbers = sorted(int(n.name) for n in (root / NODES).iterdir() if n.name.isdigit())
    except OSError:
        return []
    nodes = [(number, read_numbers(root / NODES / str(number) / "properties")) for number in numbers]
    return [(number, facts) for number, facts in nodes if facts.get("simd_count", 0) > 0]


def _card(root: Path, number: int, facts: Facts, of: int, index: int, uuid: str | None) -> Card | None:
    """None for another maker's, one of an arch that has no name, and one that no longer answers."""
    arch = decode_gfx(facts.get("gfx_target_version", 0))
    if arch is None or facts.get("vendor_id", AMD) not in (AMD, HYGON):
        return None
    address = board_address(root, facts)
    if fallen(root, address):
        return None
    minor = facts.get("drm_render_minor") or None
    device = pci_device(root, address, minor)
    partition = _partition(device, facts, of)
    banked = _banked_memory(root / NODES / str(number))
    whole = read_int(device / "mem_info_vram_total") if device else None
    maker = "Hygon" if facts.get("vendor_id") == HYGON else "AMD"
    known = card_name(facts.get("device_id", 0), root) if maker == "Hygon" else None
    return Card(
        arch=arch,
        kind="amd",
        name=(read_line(device / "product_name") if device else None) or known or f"{maker} {arch}",
        memory_bytes=banked if of > 1 or not whole else whole,
        compute_units=facts["simd_count"] // max(1, facts.get("simd_per_cu", 4)),  # 4 on every GCN and CDNA part
        pci_address=address,
        wavefront=facts.get("wave_front_size") or None,
        source=f"KFD topology node {number}",
        uuid=uuid,
        driver=driver_of(device),
        index=index,
        node=number,
        render_minor=minor,
        partition=partition,
    )


def free_vram(card: Card, root: Path) -> int | None:
    """Bytes of the card's memory that nobody holds, by amdgpu's own count; None where it does not say, as of a part of
    a card: the driver counts for the whole."""
    used = used_vram(card, root)
    return None if used is None else max(0, card.memory_bytes - used)


def used_vram(card: Card, root: Path) -> int | None:
    """Bytes that anybody holds of the card's memory; None where the driver does not say of this card alone."""
    if card.partition is not None and card.partition.of > 1:
        return None
    device = pci_device(root, card.pci_address or "", card.render_minor)
    return read_int(device / "mem_info_vram_used") if device else None


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


def board_address(root: Path, facts: Facts) -> str:
    """The PCI address of the node's device. Some kernels put a partition's number where the function stands
    (kfd_topology_add_device had it both ways); such a function is no device of its own."""
    address = pci_address(facts.get("domain", 0), facts.get("location_id", 0))
    first = f"{address[:-1]}0"
    if address != first and fallen(root, address) and not fallen(root, first):
        return first
    return address


def _partition(device: Path | None, facts: Facts, of: int) -> Partition | None:
    """None for a card whose driver knows no partitions."""
    compute = read_line(device / "current_compute_partition") if device else None
    memory = read_line(device / "current_memory_partition") if device else None
    if of == 1 and compute is None and memory is None:
        return None
    location = facts.get("location_id", 0)
    number = (location >> 28 & 0xF or location & 7) if of > 1 else 0
    return Partition(number=number, of=of, compute=compute, memory=memory)


def _banked_memory(node: Path) -> int:
    """Bytes of the node's frame buffer banks; 0 where the kernel lists none."""
    banks = (read_numbers(bank) for bank in entries(node, "mem_banks/*/properties"))
    return sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") in FRAME_BUFFER_HEAPS)
