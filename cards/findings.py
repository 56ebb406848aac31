"""What is wrong with this machine's cards, in words, each with its fix. Pure over the file tree: no device is opened,
so looking disturbs nobody.

The kernel's part of it (what is missing where, which error a read gives) is from its sources and drivers/gpu/drm/amd;
the container flags from AMD's and Hygon's documentation. Checked against fixture trees only.
"""

from __future__ import annotations

import errno
import grp
import os
from collections.abc import Iterator
from pathlib import Path

from cards.amd import board_address, detect_amd, gpu_nodes
from cards.amd_sysfs import AMD, HYGON, NODES, PCI, driver_of, fallen, pci_device
from cards.hygon import divisions
from cards.kernel_files import entries, read_line, real, there
from contracts import Card

HERE = Path("/")
NVIDIA = 0x10DE
# PCI classes of cards: display, processing accelerator, co-processor (a Hygon BW100 is 0b40). Hygon's host bridges
# have Hygon's vendor too.
CARD_CLASSES = ("0x03", "0x12", "0x0b40")
GONE = {errno.EIO, errno.ENODEV, errno.ENXIO}
# By number: most images have no group of the name render, and docker refuses a name that it does not know.
BY_NUMBER = "--group-add $(stat -c %g /dev/kfd)"
DEVICES = f"--device=/dev/kfd --device=/dev/dri {BY_NUMBER}"
HYGON_DEVICES = f"{DEVICES} --device=/dev/mkfd -v /opt/hyhal:/opt/hyhal:ro"

Found = Iterator[tuple[str, str]]


def card_problems(root: Path = HERE, dev_root: Path = HERE / "dev") -> tuple[tuple[str, str], ...]:
    """(what is wrong, how to mend it) for each problem, most basic first; () where nothing is wrong. `root` holds sys/
    and proc/, `dev_root` is the folder of kfd and dri/."""
    cards = detect_amd(root)
    found = (
        *_without_driver(root),
        *_no_topology(root, cards),
        *_unreadable(root, cards),
        *_fallen(root),
        *_not_answering(root, cards),
        *_no_permission(dev_root, cards),
        *_unlike(cards),
        *_divided(root, cards),
    )
    return tuple(dict.fromkeys(found))


def _bus(root: Path) -> Iterator[tuple[str, int, Path]]:
    """(address, vendor, folder) of every graphics card or accelerator on the PCI bus that answers."""
    for device in entries(root / PCI, "*"):
        vendor = _hexadecimal(device / "vendor")
        kind = read_line(device / "class") or ""
        if vendor in (AMD, HYGON, NVIDIA) and kind.startswith(CARD_CLASSES) and not fallen(root, device.name):
            yield device.name, vendor, device


def _without_driver(root: Path) -> Found:
    for address, vendor, device in _bus(root):
        driver = driver_of(device)
        if driver == "vfio-pci":
            yield f"{address} is given to a virtual machine (driver vfio-pci)", "stop that machine and bind it back"
        elif driver == "nouveau":
            yield f"{address} has the driver nouveau, which cannot compute", "install NVIDIA's driver and reboot"
        elif driver is None:
            maker, module = {
                AMD: ("an AMD card", "load amdgpu (`sudo modprobe amdgpu`); `dmesg | grep amdgpu` says why it refuses"),
                HYGON: ("a Hygon card", "load Hygon's driver (`sudo modprobe hydcu`, newer ones `hycu`), from the DTK"),
                NVIDIA: ("an NVIDIA card", "install NVIDIA's driver, or load it (`sudo modprobe nvidia`)"),
            }[vendor]
            yield f"{address} is {maker} without a driver", module


def _no_topology(root: Path, cards: tuple[Card, ...]) -> Found:
    """Cards are seen, but not how they compute."""
    if there(root / NODES) or cards:
        return
    seen = [(a, v) for a, v, device in _bus(root) if v in (AMD, HYGON) and driver_of(device) not in (None, "vfio-pci")]
    seen = seen or _on_drm(root)
    if seen:
        where = ", ".join(address for address, _ in seen)
        flags = HYGON_DEVICES if any(vendor == HYGON for _, vendor in seen) else DEVICES
        yield (
            f"{where} can be seen, but /sys/class/kfd is not there, so nothing here can compute on it",
            f"in a container: the container lacks /sys/class/kfd; start it with {flags}, and with the host's /sys "
            "(no sandboxing runtime); on the host itself: its driver was built without KFD (CONFIG_HSA_AMD)",
        )


def _on_drm(root: Path) -> list[tuple[str, int]]:
    found = {}
    for device in entries(root / "sys/class/drm", "card[0-9]*/device"):
        vendor = _hexadecimal(device / "vendor")
        if vendor in (AMD, HYGON):
            found[real(device).name] = vendor
    return sorted(found.items())


def _unreadable(root: Path, cards: tuple[Card, ...]) -> Found:
    """KFD hides the nodes of cards whose render node a container was not given (kfd_devcgroup_check_permission: EPERM).
    That some are hidden is how containers share a machine; that all are is a problem."""
    if cards:
        return
    refused = []
    for node in entries(root / NODES, "[0-9]*"):
        for name in ("gpu_id", "properties"):
            if _error(node / name) in (errno.EPERM, errno.EACCES):
                refused.append(node.name)
                break
    if refused:
        nodes = f"node {refused[0]}" if len(refused) == 1 else f"nodes {', '.join(refused)}"
        yield (
            f"the kernel shows cards (KFD {nodes}) and does not let this process read them",
            f"in a container: start it with {DEVICES}, or with the render node of the card that it may have; on the "
            "host: run as a user of the groups video and render",
        )


def _fallen(root: Path) -> Found:
    for number, facts in gpu_nodes(root):
        address = board_address(root, facts)
        if fallen(root, address):
            listed = there(root / PCI / address)
            how = "its PCI registers read all ones" if listed else "the PCI bus no longer lists it"
            yield (
                f"{address} has fallen off the bus: KFD still has it as node {number}, but {how}",
                "reboot, or power the machine off for a minute; if it comes back, see to power, cooling, riser and "
                "seat (`dmesg | grep -iE 'amdgpu|hydcu|aer'` has the moment)",
            )


def _not_answering(root: Path, cards: tuple[Card, ...]) -> Found:
    for card in cards:
        device = pci_device(root, card.pci_address or "", card.render_minor)
        error = _error(device / "mem_info_vram_total") if device else None
        if error in GONE:
            yield (
                f"{card.place} ({card.name}) does not answer its driver ({os.strerror(error or 0)})",
                "reboot, or reset it (`sudo amd-smi reset -g <number>`); `dmesg` says what happened to it",
            )
        elif error in (errno.EPERM, errno.EACCES):
            yield (
                f"{card.place} ({card.name}) does not let its memory be read ({os.strerror(error or 0)})",
                "it is being reset, or belongs to another container: wait, or choose another with engine.card",
            )


def _no_permission(dev_root: Path, cards: tuple[Card, ...]) -> Found:
    """By the files' permissions only; that a container's device rules refuse is seen when the engine starts."""
    if not cards:
        return
    hygon = any(card.name.startswith("Hygon") or (card.driver or "").startswith("hy") for card in cards)
    missing: list[str] = []
    shut: dict[str, list[str]] = {}
    for device in (dev_root / "kfd", *(dev_root / f"dri/renderD{c.render_minor}" for c in cards if c.render_minor)):
        shown = f"/dev/{device.relative_to(dev_root)}"
        if not there(device):
            missing.append(shown)
        elif not os.access(device, os.R_OK | os.W_OK):
            shut.setdefault(_group(device), []).append(shown)
    if missing:
        flags = HYGON_DEVICES if hygon else DEVICES
        is_not = "is not there" if len(missing) == 1 else "are not there"
        yield f"{_few(missing)} {is_not}", f"in a container: start it with {flags}; on the host: reload the driver"
    for group, names in shut.items():
        yield (
            f"{_few(names)} may not be opened by this user",
            f"`sudo usermod -aG {group} $USER` and log in again; in a container: {BY_NUMBER}",
        )


def _few(names: list[str]) -> str:
    """A host with divided cards has 64 device files."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _unlike(cards: tuple[Card, ...]) -> Found:
    """vLLM 0.32.0 on ROCm (platforms/rocm.py, _query_gcn_arch_from_amdsmi) takes the arch of the first card that amdsmi
    lists, and amdsmi lists hidden cards too. Read in its source, not seen on a machine."""
    archs = sorted({card.arch for card in cards})
    if len(archs) > 1:
        named = ", ".join(f"{c.place} {c.arch}" for c in cards)
        yield (
            f"this machine has unlike AMD cards ({named}), and vLLM takes the arch of the first that amdsmi lists, "
            "whichever card the engine is given",
            "switch the other off in the firmware's set-up, or see in the engine's log which arch it took",
        )


def _divided(root: Path, cards: tuple[Card, ...]) -> Found:
    """Hygon's virtual cards and MIG instances hold part of a card that no file of the kernel tells apart."""
    for card in cards:
        parts = divisions(card.pci_address or "", root)
        if parts:
            kinds = ", ".join(f"{kind} by {file}" for kind, file in parts[:4])
            yield (
                f"{card.place} ({card.name}) is divided ({kinds}): its counters are of the whole card, so what others "
                "hold of it or do on it cannot be told from the night's own",
                "give the night a whole card: remove its parts (`hy-smi` or `dcgmi` of Hygon's tools shows them), or "
                "name another with engine.card",
            )


def _group(device: Path) -> str:
    try:
        number = device.stat().st_gid
    except OSError:
        return "render"
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _hexadecimal(path: Path) -> int | None:
    """ "0x1002" """
    try:
        return int(read_line(path) or "", 16)
    except ValueError:
        return None


def _error(path: Path) -> int | None:
    """The error's number that reading the file gives; None where it reads, or is not there."""
    try:
        path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.errno
    return None
