"""Processes on a card, as the kernel shows them (amdkfd's kfd_process.c; Documentation/gpu/drm-usage-stats.rst;
proc(5)), laid over the trees of tests/cards/trees.py. Written from those sources; no such machine was at hand."""

from __future__ import annotations

from pathlib import Path

from contracts import Card
from tests.cards.trees import gpu_node, write

GIB, MIB = 1 << 30, 1 << 20
MI50_BYTES = 32 * GIB
MI50_ADDRESS = "0000:03:00.0"
MI50 = Card(
    arch="gfx906", kind="amd", name="AMD Instinct MI50", memory_bytes=MI50_BYTES, compute_units=60,
    pci_address=MI50_ADDRESS, wavefront=64, source="KFD topology node 1", node=1,
)  # fmt: skip
GPU_ID = 26273  # what KFD calls the card; any number
FIRST = "pid:[4026531836]"


def mi50(root: Path, used_bytes: int = 20 * MIB, namespace: str | None = FIRST) -> Card:
    """One MI50 and the process' own view of PID namespaces."""
    gpu_node(
        root, 1, gfx=90006, simd_count=240, bank_bytes=MI50_BYTES, location=0x300, vram_bytes=MI50_BYTES,
        used_bytes=used_bytes, product_name="AMD Instinct MI50",
    )  # fmt: skip
    write(root / "sys/class/kfd/kfd/topology/nodes/1/gpu_id", f"{GPU_ID}\n")
    (root / "sys/class/kfd/kfd/proc").mkdir(parents=True, exist_ok=True)
    if namespace is not None:
        link(root / "proc/self/ns/pid", namespace)
    return MI50


def used(root: Path, number: int) -> None:
    write(root / f"sys/devices/pci0000:00/{MI50_ADDRESS}/mem_info_vram_used", f"{number}\n")


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def process(root: Path, pid: int, name: str, ticks: int = 0, start: int = 1000) -> None:
    """/proc/PID with comm and stat (utime all of `ticks`), no open files yet."""
    write(root / f"proc/{pid}/comm", f"{name[:15]}\n")
    before = f"{pid} ({name[:15]}) S 1 {pid} {pid} 0 -1 4194304 100 0 0 0"  # up to cmajflt, field 13
    write(root / f"proc/{pid}/stat", f"{before} {ticks} 0 0 0 20 0 1 0 {start} 1000000 100\n")
    (root / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)


def opened(root: Path, pid: int, number: int, device: str) -> None:
    link(root / f"proc/{pid}/fd/{number}", device)


def drm(
    root: Path, pid: int, number: int, vram: str, address: str = MI50_ADDRESS, client: int | None = None,
    device: str = "/dev/dri/renderD128", key: str = "drm-memory-vram",
) -> None:  # fmt: skip
    """An open DRM file. `vram` as the kernel writes it: "2048 KiB"."""
    opened(root, pid, number, device)
    write(
        root / f"proc/{pid}/fdinfo/{number}",
        f"pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t284\ndrm-driver:\tamdgpu\n"
        f"drm-client-id:\t{pid if client is None else client}\ndrm-pdev:\t{address}\npasid:\t32771\n"
        f"{key}:\t{vram}\ndrm-memory-gtt: \t0 KiB\ndrm-memory-cpu: \t0 KiB\n",
    )


def kfd(root: Path, pid: int, vram_bytes: int, gpu_id: int = GPU_ID, sdma_us: int = 0) -> None:
    """KFD's own entry for a process that opened /dev/kfd."""
    folder = root / f"sys/class/kfd/kfd/proc/{pid}"
    write(folder / "pasid", "32771\n")
    write(folder / f"vram_{gpu_id}", f"{vram_bytes}\n")
    write(folder / f"sdma_{gpu_id}", f"{sdma_us}\n")


def computing(root: Path, pid: int, name: str, vram_bytes: int, host_pid: int | None = None) -> None:
    """A ROCm process: /dev/kfd and a render node open, and KFD's entry under the host's number."""
    process(root, pid, name)
    opened(root, pid, 3, "/dev/kfd")
    drm(root, pid, 4, f"{vram_bytes >> 10} KiB")
    kfd(root, host_pid or pid, vram_bytes, sdma_us=1500)


# --- a large host -------------------------------------------------------------------------------------------------

MI300X_BYTES = 192 * GIB
MI300X_ADDRESSES = tuple(f"0000:{bus}:00.0" for bus in ("05", "15", "65", "75", "85", "95", "e5", "f5"))


def mi300x_host(root: Path, processes: int = 1500, files_each: int = 25) -> tuple[Card, ...]:
    """Eight MI300X, an engine's worker on each (pids 101 to 108), and many other processes with open files."""
    link(root / "proc/self/ns/pid", FIRST)
    cards = []
    for i, address in enumerate(MI300X_ADDRESSES):
        gpu_node(
            root, i + 2, gfx=90402, simd_count=1216, bank_bytes=MI300X_BYTES, location=int(address[5:7], 16) << 8,
            device=0x74A1, minor=128 + 8 * i, vram_bytes=MI300X_BYTES, used_bytes=170 * GIB,
            product_name="AMD Instinct MI300X OAM",
        )  # fmt: skip
        write(root / f"sys/class/kfd/kfd/topology/nodes/{i + 2}/gpu_id", f"{1000 + i}\n")
        moving_files(root / f"sys/devices/pci0000:00/{address}", i)
        pci = root / "sys/bus/pci/devices" / address
        pci.parent.mkdir(parents=True, exist_ok=True)
        pci.symlink_to(root / f"sys/devices/pci0000:00/{address}")
        process(root, 101 + i, f"VLLM::Worker_TP{i}")
        opened(root, 101 + i, 3, "/dev/kfd")
        for n, other in enumerate(MI300X_ADDRESSES):  # ROCm opens the render nodes of all of them
            held = 169 * GIB if n == i else 0
            drm(root, 101 + i, 4 + n, f"{held >> 10} KiB", address=other, device=f"/dev/dri/renderD{128 + 8 * n}")
            kfd(root, 101 + i, held, gpu_id=1000 + n)
        cards.append(
            MI50.model_copy(
                update={
                    "arch": "gfx942", "name": "AMD Instinct MI300X OAM", "memory_bytes": MI300X_BYTES,
                    "compute_units": 304, "pci_address": address, "node": i + 2,
                }
            )
        )  # fmt: skip
    for pid in range(2000, 2000 + processes):
        process(root, pid, "worker")
        for number in range(files_each):
            opened(root, pid, number, f"socket:[{pid}{number}]")
    return tuple(cards)


def moving_files(device: Path, number: int) -> None:
    """amdgpu's hwmon (Documentation/gpu/amdgpu/thermal.rst), busy percent and gpu_metrics of a loaded card."""
    sensors = device / f"hwmon/hwmon{number}"
    for n, (label, heat) in enumerate((("edge", 52000), ("junction", 61000), ("mem", 47000)), start=1):
        write(sensors / f"temp{n}_label", f"{label}\n")
        write(sensors / f"temp{n}_input", f"{heat}\n")
    write(sensors / "power1_average", "640000000\n")
    write(sensors / "power1_cap", "750000000\n")
    write(sensors / "freq1_input", "1900000000\n")
    write(sensors / "freq2_input", "1300000000\n")
    write(device / "gpu_busy_percent", "97\n")
    snapshot = bytearray(1024)  # zeros, with the header of gpu_metrics 1.6
    snapshot[:4] = len(snapshot).to_bytes(2, "little") + bytes((1, 6))
    (device / "gpu_metrics").write_bytes(snapshot)
