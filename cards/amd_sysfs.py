"""Where the kernel keeps an AMD card's files, and whether the card still answers. Reads sysfs only.

A card's DRM node may have any number (an iGPU or a BMC's VGA takes card0) and its render node another, and a part of a
partitioned card has a render node on a platform device without the card's files (amdgpu_xcp_<n>). So a card is found by
its PCI address first.
"""

from __future__ import annotations

import os
from pathlib import Path

from cards.kernel_files import entries, real

AMD, HYGON = 0x1002, 0x1D94  # PCI vendors; 0x1d94 is on Hygon's host bridges and Ethernet too
NODES = "sys/class/kfd/kfd/topology/nodes"
PCI = "sys/bus/pci/devices"


def pci_device(root: Path, address: str, render_minor: int | None = None) -> Path | None:
    """The card's device folder in sysfs; None when the tree has none."""
    drm = root / "sys/class/drm"
    for device in (root / PCI / address, *entries(drm, "card[0-9]*/device")):
        if address and real(device).name == address and os.path.isdir(device):
            return device
    if render_minor and os.path.isdir(device := drm / f"renderD{render_minor}" / "device"):
        return device
    return None


def fallen(root: Path, address: str) -> bool:
    """Has the card at this address gone? The bus no longer lists it, or its configuration space reads all ones, which
    is what a read of a device that does not answer gives. A tree without a list of PCI devices says nothing: False."""
    if not os.path.isdir(root / PCI):
        return False
    device = root / PCI / address
    try:
        device.stat()
    except OSError as error:  # what this user may not look at has not fallen
        return isinstance(error, FileNotFoundError)
    try:
        with (device / "config").open("rb") as config:
            return config.read(4) == b"\xff\xff\xff\xff"
    except OSError:
        return False


def driver_of(device: Path | None) -> str | None:
    """The kernel driver bound to it: "amdgpu"; Hygon's are called hydcu and hycu."""
    try:
        return Path(os.readlink(device / "driver")).name if device else None
    except OSError:
        return None
