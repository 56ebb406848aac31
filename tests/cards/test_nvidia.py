"""NVIDIA cards through a library that stands in for NVML, with the answers' shapes as pynvml has them. A real H200 was
read with the same functions on 2026-11-29 (detection) only; clocks, heat and MIG were not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from cards.choose import named_card
from cards.nvidia import detect_nvidia, free_vram, read_nvidia
from cards.visible import visible_environment

BOARD, PART = "board", "part"
UUIDS = {BOARD: "GPU-3f1d9a70-0000-1111-2222-333344445555", PART: "MIG-377e0049-554c-540b-93c6-d0976f8426cb"}


class StandInNvml:
    """One H200; `mig` cuts it into one instance."""

    class NVMLError(Exception):
        pass

    def __init__(self, mig: bool = False, reasons: int = 0x1) -> None:
        self.mig, self.reasons = mig, reasons
        self.opened = 0

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return BOARD

    def nvmlDeviceGetHandleByPciBusId(self, address: bytes) -> str:
        if address != b"0000:5d:00.0":
            raise self.NVMLError
        return BOARD

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        return next(handle for handle, known in UUIDS.items() if known.encode() == uuid)

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return UUIDS[handle]

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200" if handle == BOARD else "NVIDIA H200 MIG 3g.71gb"

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(domain=0, bus=0x5D, device=0)

    def nvmlDeviceGetNumGpuCores(self, handle: str) -> int:
        return 16896

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        total = 140 << 30 if handle == BOARD else 70 << 30
        return SimpleNamespace(total=total, used=1 << 30, free=total - (1 << 30))

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [int(self.mig), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index:
            raise self.NVMLError
        return PART

    def nvmlDeviceGetAttributes(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(multiprocessorCount=60)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 412_345

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 54

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[SimpleNamespace]:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=61))]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # an old driver's name for it
        return self.reasons

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=88, memory=40)


def installed(monkeypatch: pytest.MonkeyPatch, library: StandInNvml) -> StandInNvml:
    monkeypatch.setitem(sys.modules, "pynvml", library)  # type: ignore[arg-type]
    return library


def test_a_card_and_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    library = installed(monkeypatch, StandInNvml())
    (card,) = detect_nvidia()
    assert (card.name, card.arch, card.compute_units, card.uuid) == ("NVIDIA H200", "sm_90", 132, UUIDS[BOARD])
    assert card.pci_address == "0000:5d:00.0" and free_vram(card) == 139 << 30
    state = read_nvidia(card)
    assert (state.sclk_mhz, state.mclk_mhz, state.power_w, state.power_cap_w) == (1980, 3201, 412.345, 700)
    assert state.temperatures_c == {"gpu": 54, "mem": 61} and state.busy_percent == 88
    assert (state.throttled, state.reasons) == (False, ())  # only idle (0x1)
    assert library.opened == 0  # each opening was closed


def test_what_holds_the_clocks_down_has_words(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, StandInNvml(reasons=0x4 | 0x40))
    state = read_nvidia(detect_nvidia()[0])
    assert state.throttled is True and state.reasons == ("power: SwPowerCap", "heat: HwThermalSlowdown")


def test_a_mig_instance_is_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, StandInNvml(mig=True))
    (card,) = detect_nvidia()
    assert (card.compute_units, card.memory_bytes, card.uuid) == (60, 70 << 30, UUIDS[PART])
    assert visible_environment(card)["CUDA_VISIBLE_DEVICES"] == UUIDS[PART]
    assert free_vram(card) == 69 << 30


def test_instances_at_one_address_are_named_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, StandInNvml(mig=True))
    (one,) = detect_nvidia()
    two = one.model_copy(update={"uuid": "MIG-f39aa248-6f1b-5769-b119-8d650bb34b27"})
    assert named_card([one, two], "0000:5d:00.0")[1].endswith(f"fits 2 cards: write one of {one.uuid}, {two.uuid}")
    assert named_card([one, two], "MIG-f39a")[0] == two


def test_a_card_that_has_gone_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, StandInNvml())
    gone = detect_nvidia()[0].model_copy(update={"pci_address": "0000:99:00.0", "uuid": None})
    assert read_nvidia(gone).model_dump(exclude_defaults=True) == {}
    assert free_vram(gone) is None
