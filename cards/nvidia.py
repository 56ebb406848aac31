"""NVIDIA cards, asked of the driver through NVML, which opens no CUDA context.

No library or no driver means no cards, and is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contracts import Card

# CUDA cores in one SM, by compute capability (CUDA C++ Programming Guide, "Compute Capabilities"). NVML counts cores
# only. Checked on one H200 (driver 580, 2026-11-29): 16896 cores, and torch counts 132 SMs.
CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
CORES_PER_SM_ELSE = 128


def detect_nvidia() -> tuple[Card, ...]:
    """Cards in NVML's order, which is by PCI address; CUDA numbers them so under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    with _nvml() as nvml:
        if nvml is None:
            return ()
        cards = (_card(nvml, i) for i in range(_ask(nvml, "nvmlDeviceGetCount") or 0))
        return tuple(card for card in cards if card is not None)


def free_vram(card: Card) -> int | None:
    """Bytes of the card's memory that nobody holds, by NVML; None where it does not say."""
    with _nvml() as nvml:
        if nvml is None or card.pci_address is None:
            return None
        handle = _ask(nvml, "nvmlDeviceGetHandleByPciBusId", card.pci_address.encode())
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle) if handle is not None else None
        return None if memory is None else int(memory.free)


def _card(nvml: Any, index: int) -> Card | None:
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    capability = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle) if handle is not None else None
    if capability is None:
        return None  # no permission, or fallen off the bus
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    pci = _ask(nvml, "nvmlDeviceGetPciInfo", handle)
    cores = _ask(nvml, "nvmlDeviceGetNumGpuCores", handle) or 0
    return Card(
        arch=f"sm_{capability[0]}{capability[1]}",
        kind="nvidia",
        name=_text(_ask(nvml, "nvmlDeviceGetName", handle)) or "NVIDIA card",
        memory_bytes=int(memory.total) if memory is not None else 0,
        compute_units=cores // CORES_PER_SM.get(tuple(capability), CORES_PER_SM_ELSE),
        pci_address=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" if pci is not None else None,
        wavefront=32,
        source=f"NVML device {index}",
    )


@contextmanager
def _nvml() -> Iterator[Any]:
    """pynvml, initialised; None when it or the driver is absent."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no permission: all mean no cards here
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """The answer, or None where this driver or card has none."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _text(value: bytes | str | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
