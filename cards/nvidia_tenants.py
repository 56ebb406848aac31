"""Who holds an NVIDIA card, asked of the driver through NVML: no CUDA context is opened.

NVML tells the *host's* pids, also inside a container (NVIDIA/nvidia-docker issue 1483), and on some systems no
processes at all there (issue 179).
"""

from __future__ import annotations

from typing import Any

from cards import nvidia
from contracts import Card

COMPUTE_DEVICE = "/dev/nvidia-uvm"  # a process with a CUDA context holds it open; one that only asks NVML does not


def nvml_processes(card: Card) -> tuple[dict[int, int | None], dict[int, int | None]] | None:
    """(compute, graphics): pid -> bytes, None where the driver does not say how much. None: NVML does not answer."""
    with nvidia._nvml() as nvml:
        handle = nvidia._own(nvml, card)
        compute = nvidia._ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
        if compute is None:
            return None
        graphics = nvidia._ask(nvml, "nvmlDeviceGetGraphicsRunningProcesses", handle) or []
        return _held(compute), _held(graphics)


def _held(processes: list[Any]) -> dict[int, int | None]:
    return {int(p.pid): None if p.usedGpuMemory is None else int(p.usedGpuMemory) for p in processes}
