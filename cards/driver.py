"""Which kernel driver and which user-space stack this machine has, read from files: nothing is loaded or run.

| fact | where |
| --- | --- |
| amdgpu | /sys/module/amdgpu/version (AMD's own package, amdgpu-dkms); the kernel's own has none |
| Hygon's driver | /sys/module/hycu/version or /sys/module/hydcu/version; Hygon's own tools look for hy*cu |
| NVIDIA's | /proc/driver/nvidia/version |
| ROCm | .info/version in ROCM_PATH, /opt/rocm or the newest /opt/rocm-*; in a container the container's |
| DTK | the folder that /opt/dtk links to (dtk-26.04), else .info/rocm_version, .dtk_version or .info/version in it |

A DTK may be named by ROCM_PATH and is no ROCm: its releases are years (26.04), and statements on a ROCm are not on it.
Hygon's: HYGON-AI/hcu-container-toolkit at 9b3eed0, internal/hyhcu/hyhcu.go (hy*cu); HYGON-AI/vllm-plugin-das, setup.py
at 06845d2 (rocm_version); HYGON-AI/aiter-das at 6e6ab61, aiter/jit/core.py (.dtk_version), all of 2026. Written from
these formats and published container recipes; no Hygon or AMD card was here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from cards.kernel_files import read_line, real, there
from contracts import Frozen

# PCI classes: display controllers, processing accelerators, and co-processors, as which some Hygon cards report.
DISPLAY_CLASSES = ("0x03", "0x12", "0x0b40")
VENDORS: dict[str, tuple[str, Literal["amd", "nvidia"]]] = {
    "0x1002": ("AMD", "amd"),
    "0x1d94": ("Hygon", "amd"),
    "0x10de": ("NVIDIA", "nvidia"),
}
HYGON_MODULES = ("hycu", "hydcu", "hyhcu")
DTK_FILES = (".info/rocm_version", ".dtk_version", ".info/version")
AMD_MODULES = ("amdgpu", *HYGON_MODULES)


class Software(Frozen):
    """None: not here, or not told."""

    module: str | None = None  # "amdgpu", "hydcu", "hycu": what drives AMD's and Hygon's cards
    module_version: str | None = None
    nvidia: str | None = None
    rocm: str | None = None  # "6.3.4"
    rocm_folder: str | None = None
    dtk: str | None = None  # "26.04"
    kernel: str | None = None

    def words(self) -> dict[str, str]:
        """What was found, for a terminal."""
        found = {}
        if self.module:
            version = self.module_version or f"the kernel's own (Linux {self.kernel or 'unknown'})"
            found["driver"] = f"{self.module}, {version}"
        if self.nvidia:
            found["driver"] = ", ".join(filter(None, (found.get("driver"), f"nvidia, {self.nvidia}")))
        if self.rocm:
            found["ROCm"] = f"{self.rocm} ({self.rocm_folder})"
        if self.dtk:
            found["DTK"] = self.dtk
        return found


class PciCard(Frozen):
    """A graphics or accelerator card on the bus, whether any driver has it or not."""

    address: str
    maker: str  # "AMD", "Hygon", "NVIDIA"
    kind: Literal["amd", "nvidia"]
    device: str  # "0x66a1"
    driver: str | None  # the kernel driver bound to it: "amdgpu", "vfio-pci"; None: none


def read_software(root: Path, env: Mapping[str, str] = {}) -> Software:
    """`root` holds sys/, proc/ and opt/. ROCM_PATH of `env` is where ROCm is looked for first."""
    module = next((name for name in reversed(AMD_MODULES) if there(root / "sys/module" / name)), None)
    folder, rocm = _rocm(root, env)
    return Software(
        module=module,
        module_version=read_line(root / "sys/module" / module / "version") if module else None,
        nvidia=_nvidia(root),
        rocm=rocm,
        rocm_folder=folder,
        dtk=_dtk(root),
        kernel=read_line(root / "proc/sys/kernel/osrelease"),
    )


def _rocm(root: Path, env: Mapping[str, str]) -> tuple[str | None, str | None]:
    named = [env["ROCM_PATH"]] if env.get("ROCM_PATH") else []
    newest = sorted((p.name for p in _children(root / "opt") if p.name.startswith("rocm-")), key=_order, reverse=True)
    for place in (*named, "/opt/rocm", *(f"/opt/{name}" for name in newest)):
        folder = root / place.lstrip("/")
        version = None if _is_dtk(folder) else read_line(folder / ".info/version")
        if version:
            return place, version.split("-")[0]  # "6.3.4-76"
    return None, None


def _is_dtk(folder: Path) -> bool:
    return "dtk" in real(folder).name.lower() or any(there(folder / file) for file in DTK_FILES[:2])


def _dtk(root: Path) -> str | None:
    link = root / "opt/dtk"
    named = re.search(r"dtk-(\d[\w.]*)", real(link).name) if there(link) else None
    told = (re.search(r"\d+\.\d[\w.]*", read_line(link / file) or "") for file in DTK_FILES)  # "DTK-26.04"
    return named[1] if named else next((found[0] for found in told if found), None)


def _nvidia(root: Path) -> str | None:
    """ "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue ..." """
    text = read_line(root / "proc/driver/nvidia/version") or ""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)*)\b", text)
    return found[1] if found else None


def _order(name: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", name)]


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def pci_cards(root: Path) -> tuple[PciCard, ...]:
    """Graphics and accelerator cards of the makers that are known here, by PCI address."""
    found = []
    for place in sorted(_children(root / "sys/bus/pci/devices"), key=lambda p: p.name):
        maker = VENDORS.get((read_line(place / "vendor") or "").lower())
        if maker is None or not (read_line(place / "class") or "").startswith(DISPLAY_CLASSES):
            continue
        driver = place / "driver"
        found.append(
            PciCard(
                address=place.name,
                maker=maker[0],
                kind=maker[1],
                device=read_line(place / "device") or "unknown",
                driver=real(driver).name if there(driver) else None,
            )
        )
    return tuple(found)


def driver_problems(root: Path, env: Mapping[str, str] = {}) -> tuple[tuple[str, str], ...]:
    """(what is wrong, what to do) for cards on the bus that no compute driver has. Pure over the tree."""
    software, problems = read_software(root, env), []
    for card in pci_cards(root):
        who = f"an {card.maker}" if card.maker[0] in "AN" else f"a {card.maker}"
        where = f"{who} card ({card.device}) sits at {card.address}"
        if card.driver is None and card.kind == "amd":
            problems.append((f"{where}, and no driver has it", _install(card, software)))
        elif card.driver == "vfio-pci":
            fix = "give it back to the host's driver, or run the night in the virtual machine that has it"
            problems.append((f"{where}, and is held for a virtual machine (vfio-pci)", fix))
        elif card.driver is None and software.nvidia is None:
            problems.append((f"{where}, and no driver has it", "install NVIDIA's driver"))
    return tuple(problems)


def _install(card: PciCard, software: Software) -> str:
    if card.maker == "Hygon":
        if software.module in HYGON_MODULES:
            return f"the module {software.module} is loaded and did not take it: look in `dmesg`"
        return (
            "install Hygon's DCU driver and DTK (Hygon's developer site), then `modprobe hydcu` (in some versions hycu)"
        )
    if software.module == "amdgpu":
        return "the module amdgpu is loaded and did not take it: look in `dmesg`"
    return "install amdgpu-dkms of the ROCm version that docs/cards.md names for this card, then `modprobe amdgpu`"
