"""Drivers, software stacks and cards on the bus, from trees in the kernel's formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards.code_objects import archs_in, rocblas_archs
from cards.driver import driver_problems, pci_cards, read_software
from tests.cards.trees import write


def on_the_bus(root: Path, address: str, vendor: str, driver: str | None = None, kind: str = "0x030000") -> None:
    place = root / "sys/bus/pci/devices" / address
    for name, text in (("vendor", vendor), ("device", "0x66a1"), ("class", kind)):
        write(place / name, text + "\n")
    if driver:
        target = root / "sys/bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (place / "driver").symlink_to(target)


@pytest.mark.parametrize("module", ["hydcu", "hycu", "amdgpu"])
def test_the_driver_and_its_version(tmp_path: Path, module: str) -> None:
    write(tmp_path / f"sys/module/{module}/version", "6.2.26\n")
    assert read_software(tmp_path).words()["driver"] == f"{module}, 6.2.26"


def test_the_kernel_s_own_amdgpu_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    write(tmp_path / "proc/sys/kernel/osrelease", "6.11.0-29-generic\n")
    assert read_software(tmp_path).words()["driver"] == "amdgpu, the kernel's own (Linux 6.11.0-29-generic)"


def test_rocm_where_it_was_installed(tmp_path: Path) -> None:
    write(tmp_path / "opt/rocm-6.3.4/.info/version", "6.3.4-76\n")
    write(tmp_path / "opt/rocm-6.10.0/.info/version", "6.10.0-1\n")
    assert read_software(tmp_path).rocm == "6.10.0"  # the newest, by number
    write(tmp_path / "opt/rocm/.info/version", "6.3.4-76\n")
    assert (read_software(tmp_path).rocm, read_software(tmp_path).rocm_folder) == ("6.3.4", "/opt/rocm")
    assert read_software(tmp_path, {"ROCM_PATH": "/opt/rocm-6.10.0"}).rocm == "6.10.0"


def test_nvidia_s_driver(tmp_path: Path) -> None:
    text = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: gcc 13.3.0\n"
    )
    write(tmp_path / "proc/driver/nvidia/version", text)
    assert read_software(tmp_path).words() == {"driver": "nvidia, 580.95.05"}


def test_nothing_here(tmp_path: Path) -> None:
    assert read_software(tmp_path).words() == {}
    assert pci_cards(tmp_path) == () and driver_problems(tmp_path) == ()


def test_cards_that_no_driver_has(tmp_path: Path) -> None:
    on_the_bus(tmp_path, "0000:03:00.0", "0x1002")
    on_the_bus(tmp_path, "0000:04:00.0", "0x1d94", driver="vfio-pci", kind="0x038000")
    on_the_bus(tmp_path, "0000:05:00.0", "0x1002", driver="amdgpu")
    on_the_bus(tmp_path, "0000:06:00.0", "0x1002", kind="0x040300")  # the sound part of a card
    on_the_bus(tmp_path, "0000:07:00.0", "0x1a03")  # a server's own display chip
    first, second = driver_problems(tmp_path)
    assert first[0] == "an AMD card (0x66a1) sits at 0000:03:00.0, and no driver has it"
    assert first[1].startswith("install amdgpu-dkms of the ROCm version that docs/cards.md names")
    assert second[0] == "a Hygon card (0x66a1) sits at 0000:04:00.0, and is held for a virtual machine (vfio-pci)"
    write(tmp_path / "sys/module/amdgpu/version", "6.8.5\n")
    assert driver_problems(tmp_path)[0][1].startswith("the module amdgpu is loaded and did not take it")


def test_archs_of_compiled_libraries(tmp_path: Path) -> None:
    """Bytes in the format of clang's offload bundles; no ROCm library was here."""
    library = tmp_path / "_C.abi3.so"
    library.write_bytes(b"\x7fELF\0hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-\0hip-amdgcn-amd-amdhsa--gfx942\0")
    assert archs_in([library]) == {"gfx90a", "gfx942"}
    hidden = tmp_path / "packed.so"
    hidden.write_bytes(b"\x7fELF\0CCOB\x02\0" + bytes(64))
    assert archs_in([library, hidden]) is None  # a compressed bundle may hold any arch
    plain = tmp_path / "plain.so"
    plain.write_bytes(b"\x7fELF" + bytes(64))
    assert archs_in([plain]) is None and archs_in([]) is None and archs_in([tmp_path / "gone.so"]) is None


def test_archs_of_rocblas(tmp_path: Path) -> None:
    for name in ("TensileLibrary_lazy_gfx90a.dat", "TensileLibrary_lazy_gfx942.dat", "TensileManifest.txt"):
        (tmp_path / name).touch()
    assert rocblas_archs(tmp_path) == {"gfx90a", "gfx942"}
    assert rocblas_archs(tmp_path / "nowhere") is None
