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

from pathlib import Path

from cards.amd import board_address, gpu_nodes
from cards.amd_sysfs import NODES
from cards.kernel_files import read_fields, read_int
from cards.processes import OpenDevices
from contracts import Card

KFD_PROCESSES = "sys/class/kfd/kfd/proc"
COMPUTE_DEVICE = "/dev/kfd"
DRI = "/dev/dri/"
VRAM_KEYS = ("drm-resident-vram", "drm-memory-vram")  # the first that is there counts
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def gpu_ids(card: Card, root: Path) -> tuple[int, ...]:
    """KFD's numbers for the card: that of its topology node, or of every node at its PCI address where the card does
    not say (ledgers from before it did)."""
    if card.node is not None:
        number = read_int(root / NODES / str(card.node) / "gpu_id")
        return (number,) if number else ()
    found = (
        read_int(root / NODES / str(node) / "gpu_id")
        for node, facts in gpu_nodes(root)
        if board_address(root, facts) == card.pci_address
    )
    return tuple(number for number in found if number)


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
