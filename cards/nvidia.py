"""NVIDIA cards, asked of the driver through NVML, which opens no CUDA context.

No library or no driver means no cards, and is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cards.card_state import CardState
from contracts import Card

# CUDA cores in one SM, by compute capability (CUDA C++ Programming Guide, "Compute Capabilities"). NVML counts cores
# only. Checked on one H200 (driver 580, 2026-11-29): 16896 cores, and torch counts 132 SMs.
CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
CORES_PER_SM_ELSE = 128
# nvml.h, nvmlClocksEventReason*: what holds the clocks down. Left out: an idle card (0x1), clocks that an
# administrator or a display set (0x2, 0x100).
REASONS = {
    0x4: "power: SwPowerCap",
    0x8: "other: HwSlowdown",
    0x10: "external: SyncBoost",
    0x20: "heat: SwThermalSlowdown",
    0x40: "heat: HwThermalSlowdown",
    0x80: "external: HwPowerBrakeSlowdown",
}
SM_CLOCK, MEMORY_CLOCK, CORE_SENSOR, MEMORY_TEMPERATURE = 1, 2, 0, 82  # nvml.h; the last is NVML_FI_DEV_MEMORY_TEMP


def detect_nvidia() -> tuple[Card, ...]:
    """Cards in NVML's order, which is by PCI address; CUDA numbers them so under CUDA_DEVICE_ORDER=PCI_BUS_ID. A card
    that is cut into MIG instances is one Card an instance."""
    with _nvml() as nvml:
        if nvml is None:
            return ()
        return tuple(card for i in range(_ask(nvml, "nvmlDeviceGetCount") or 0) for card in _cards(nvml, i))


def free_vram(card: Card) -> int | None:
    """Bytes of the card's memory that nobody holds, by NVML; None where it does not say."""
    with _nvml() as nvml:
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", _own(nvml, card))
        return None if memory is None else int(memory.free)


def read_nvidia(card: Card) -> CardState:
    """Never raises. A MIG instance has the whole card's clocks, heat and power, and its own memory. Who reads often
    holds `_nvml()` open around it: opening NVML anew is most of the cost."""
    with _nvml() as nvml:
        if nvml is None:
            return CardState()
        board = _board(nvml, card)
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", _own(nvml, card))
        power = _ask(nvml, "nvmlDeviceGetPowerUsage", board)
        cap = _ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", board)
        reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", board)
        if reasons is None:  # drivers before 535 know it by its old name
            reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", board)
        words = tuple(word for bit, word in REASONS.items() if (reasons or 0) & bit)
        usage = _ask(nvml, "nvmlDeviceGetUtilizationRates", board)
        heat = {"gpu": _ask(nvml, "nvmlDeviceGetTemperature", board, CORE_SENSOR), "mem": _memory_heat(nvml, board)}
        return CardState(
            sclk_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", board, SM_CLOCK),
            mclk_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", board, MEMORY_CLOCK),
            power_w=None if power is None else power / 1000,
            power_cap_w=None if cap is None else cap / 1000,
            temperatures_c={name: float(value) for name, value in heat.items() if value is not None},
            throttled=None if reasons is None else bool(words),
            reasons=words,
            vram_used_bytes=None if memory is None else int(memory.used),
            busy_percent=None if usage is None else usage.gpu,
        )


def _cards(nvml: Any, index: int) -> list[Card]:
    """The card, or its MIG instances; none for one that this process may not use or that fell off the bus."""
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    capability = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle) if handle is not None else None
    if capability is None:
        return []
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    pci = _ask(nvml, "nvmlDeviceGetPciInfo", handle)
    cores = _ask(nvml, "nvmlDeviceGetNumGpuCores", handle) or 0
    whole = Card(
        arch=f"sm_{capability[0]}{capability[1]}",
        kind="nvidia",
        name=_text(_ask(nvml, "nvmlDeviceGetName", handle)) or "NVIDIA card",
        memory_bytes=int(memory.total) if memory is not None else 0,
        compute_units=cores // CORES_PER_SM.get(tuple(capability), CORES_PER_SM_ELSE),
        pci_address=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" if pci is not None else None,
        wavefront=32,
        source=f"NVML device {index}",
        uuid=_text(_ask(nvml, "nvmlDeviceGetUUID", handle)),
        driver="nvidia",
        index=index,
    )
    mode = _ask(nvml, "nvmlDeviceGetMigMode", handle)
    return _instances(nvml, handle, whole) if mode is not None and mode[0] == 1 else [whole]


def _instances(nvml: Any, handle: Any, whole: Card) -> list[Card]:
    """Not yet seen on a card with MIG on; written from nvml.h."""
    found = []
    for number in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", part) if part is not None else None
        shape = _ask(nvml, "nvmlDeviceGetAttributes", part) if part is not None else None
        if memory is None:
            continue
        update = {
            "name": _text(_ask(nvml, "nvmlDeviceGetName", part)) or f"{whole.name} MIG",
            "memory_bytes": int(memory.total),
            "compute_units": int(shape.multiprocessorCount) if shape is not None else whole.compute_units,
            "uuid": _text(_ask(nvml, "nvmlDeviceGetUUID", part)),
            "source": f"{whole.source}, MIG instance {number}",
        }
        found.append(whole.model_copy(update=update))
    return found


def _own(nvml: Any, card: Card) -> Any:
    """NVML's handle of the card, or of the MIG instance; None where it has neither."""
    handle = _ask(nvml, "nvmlDeviceGetHandleByUUID", card.uuid.encode()) if nvml is not None and card.uuid else None
    return handle if handle is not None or (card.uuid or "").startswith("MIG-") else _board(nvml, card)


def _board(nvml: Any, card: Card) -> Any:
    if nvml is None or card.pci_address is None:
        return None
    return _ask(nvml, "nvmlDeviceGetHandleByPciBusId", card.pci_address.encode())


def _memory_heat(nvml: Any, board: Any) -> int | None:
    values = _ask(nvml, "nvmlDeviceGetFieldValues", board, [MEMORY_TEMPERATURE])
    return int(values[0].value.uiVal) if values and values[0].nvmlReturn == 0 else None


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
        with suppress(Exception):  # a driver that went meanwhile has nothing to end
            pynvml.nvmlShutdown()


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """The answer, or None where this driver or card has none, and of no card (None as the first argument). The library
    fails in ways of its own besides NVMLError: a name that is no UTF-8, a function that this driver has not."""
    if nvml is None or (arguments and arguments[0] is None):
        return None
    try:
        return getattr(nvml, function)(*arguments)
    except Exception:
        return None


def _text(value: bytes | str | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
