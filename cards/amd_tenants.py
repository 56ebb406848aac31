"""Who holds an AMD card: KFD's list of compute processes, and the DRM clients that /proc shows.

KFD (drivers/gpu/drm/amd/amdkfd/kfd_process.c): /sys/class/kfd/kfd/proc/PID/vram_GPUID and sdma_GPUID, where GPUID is
the decimal number in the topology node's gpu_id and PID is the *host's*, also inside a container (ROCm/rocm-systems
#3752). A process that merely opened /dev/kfd is listed with 0 bytes until it ends (ROCm issue #4411); one that has
some of the cards only has files for those (ROCm issue #3002).
DRM (Documentation/gpu/drm-usage-stats.rst): /proc/PID/fdinfo/FD with drm-driver, drm-pdev, drm-client-id and
drm-memory-vram (newer: drm-resident-vram); a number without a unit is bytes.

Checked against fixture trees written from these; not yet run on a machine with such a card.
"""

from __future__ import annotations

import re
from pathlib import Path

from cards.amd import pci_address
from cards.kernel_files import read_fields, read_int, read_numbers
from cards.processes import OpenDevices
from contracts import Card

KFD_NODES = "sys/class/kfd/kfd/topology/nodes"
KFD_PROCESSES = "sys/class/kfd/kfd/proc"
COMPUTE_DEVICE = "/dev/kfd"
DRI = "/dev/dri/"
VRAM_KEYS = ("drm-resident-vram", "drm-memory-vram")  # the first that is there counts
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def gpu_ids(card: Card, root: Path) -> tuple[int, ...]:
    """KFD's numbers for the card: that of the topology node it was read from, else of every node at its PCI address."""
    nodes = root / KFD_NODES
    at_node = re.fullmatch(r"KFD topology node (\d+)", card.source)
    if at_node and (number := read_int(nodes / at_node[1] / "gpu_id")):
        return (number,)
    found = []
    for node in sorted(nodes.glob("[0-9]*")):
        facts = read_numbers(node / "properties")
        address = pci_address(facts.get("domain", 0), facts.get("location_id", 0))
        if address == card.pci_address and (number := read_int(node / "gpu_id")):
            found.append(number)
    return tuple(found)


def kfd_processes(card: Card, root: Path, ids: tuple[int, ...] | None = None) -> dict[int, int] | None:
    """The host's pid -> bytes of the card's memory, of those that hold any. None where KFD does not list processes."""
    ids = gpu_ids(card, root) if ids is None else ids
    try:
        folders = [f for f in (root / KFD_PROCESSES).iterdir() if f.name.isdigit()]
    except OSError:
        return None
    if not ids:
        return None
    held = {int(f.name): sum(read_int(f / f"vram_{number}") or 0 for number in ids) for f in folders}
    return {pid: size for pid, size in sorted(held.items()) if size > 0}


def drm_clients(card: Card, root: Path, devices: OpenDevices) -> dict[int, int | None]:
    """pid -> bytes of the card's memory, for each process with a DRM file of any card open: 0 where it holds none of
    this one's, None where the driver does not say. Several files of one client count once."""
    seen: set[str] = set()
    held: dict[int, int | None] = {}
    for pid, files in devices.by_pid.items():
        for number, path in files:
            if not path.startswith(DRI):
                continue
            told = read_fields(root / f"proc/{pid}/fdinfo/{number}")
            if "drm-pdev" not in told:
                held.setdefault(pid, None)
                continue
            held[pid] = held.get(pid) or 0
            client = told.get("drm-client-id", f"{pid}/{number}")
            if told["drm-pdev"].lower() == card.pci_address and client not in seen:
                seen.add(client)
                held[pid] = (held[pid] or 0) + _vram(told)
    return held


def _vram(told: dict[str, str]) -> int:
    for key in VRAM_KEYS:
        words = told.get(key, "").split()
        if words and words[0].isdigit():
            return int(words[0]) * UNITS.get("".join(words[1:2]), 1)
    return 0
