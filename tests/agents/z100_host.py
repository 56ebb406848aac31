"""A host with one Hygon Z100, written down as a folder: nobody here has one. The kernel's formats are those of
tests/cards/trees.py; vendor, module and device files are those that Hygon's public tools and container recipes name.
The driver's version is one that Hygon's list puts with DTK 26.04 (configs/hygon.yaml); what follows its dash is made
up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.host_fit import UNLIMITED, Host
from cards.access import Facts, Who, by_mode
from tests.cards.trees import cpu_node, gpu_node, machine, write

GIB = 1 << 30
ADDRESS = "0000:04:00.0"
RENDER = 109
LI = Who(uid=1000, user="li", gids=(1000, 998), groups={1000: "li", 998: "docker", RENDER: "render", 44: "video"})
LIMITS = {
    "files": (1024, 1048576), "cpu_s": (UNLIMITED, UNLIMITED), "memory": (UNLIMITED, UNLIMITED),
    "locked": (8 << 20, 8 << 20),
}  # fmt: skip


def z100(root: Path, *, module: str | None = "hydcu", devices: bool = True) -> Path:
    """The tree. Without `module` no driver is loaded, and so there is no KFD either."""
    machine(root)
    pci = root / "sys/bus/pci/devices" / ADDRESS
    for name, text in (("vendor", "0x1d94"), ("device", "0x54b7"), ("class", "0x038000")):
        write(pci / name, text + "\n")
    write(root / "proc/sys/kernel/osrelease", "5.15.0-112-generic\n")
    write(root / "proc/1/comm", "systemd\n")
    if module is not None:
        write(root / f"sys/module/{module}/version", "6.3.30-V1.9.0\n")
        driver = root / f"sys/bus/pci/drivers/{module}"
        driver.mkdir(parents=True)
        (pci / "driver").symlink_to(driver)
        cpu_node(root, 0)
        gpu_node(
            root, 1, gfx=90006, simd_count=240, bank_bytes=32 * GIB, location=0x0400, vendor=0x1D94, device=0x54B7,
            vram_bytes=32 * GIB, used_bytes=0,
        )  # fmt: skip
        write(root / "opt/dtk-26.04/.info/version", "26.04\n")
        (root / "opt/dtk").symlink_to(root / "opt/dtk-26.04")
        if devices:
            for name in ("kfd", "mkfd", "dri/renderD128"):
                write(root / "dev" / name, "")
    return root


def host(root: Path, who: Who = LI, mode: int = 0o660, gid: int = RENDER, **more: Any) -> Host:
    """That machine, seen by `who`; its device files belong to root:`gid` with `mode`."""

    def look(_path: Path) -> Facts:
        return Facts(uid=0, gid=gid, mode=mode)

    facts: dict[str, Any] = {"env": {}, "pid": 4242, "now": 1_800_000_000.0, "limits": LIMITS, "shared": 16 * GIB}
    return Host(root=root, who=who, may=by_mode(who, look), look=look, **(facts | more))


def interpreter(folder: Path, **answer: object) -> Path:
    """Answers as an engine's interpreter would: a script, no Python."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho 'nightgate-answer:{json.dumps(answer)}'\n")
    path.chmod(0o755)
    return path
