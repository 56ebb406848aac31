"""Cards whose files are closed, loop, or go between two looks: nothing raises, and what is still told is told. The
folders are written in the kernel's formats; no card was here."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cards import nvidia
from cards.access import container
from cards.amd_sysfs import fallen
from cards.card_state import CardState
from cards.choose import pick_card
from cards.detect import detect
from cards.driver import pci_cards
from cards.findings import card_problems
from cards.nvidia_tenants import nvml_processes
from cards.state import read_state
from cards.time_limits import ends_early
from contracts import Card, Container, EngineSpec
from engine.container import asked_mount, engine_mounts
from engine.container_card import access
from engine.placement import Placement
from tests.cards.tenants import MI50_ADDRESS, mi50, moving_files
from tests.cards.trees import machine, write

Forbid = Callable[[str], None]


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forbid]:
    """Makes stat and listing of every path with these words fail as for a user who may not search a folder above it:
    the tests may run as root, whom no mode stops."""
    real_stat, real_list = os.stat, os.scandir

    def forbidden(words: str) -> None:
        def stat(path: Any, *args: Any, **more: Any) -> os.stat_result:
            if words in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real_stat(path, *args, **more)

        def scandir(path: Any = ".") -> Any:
            if words in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real_list(path)

        monkeypatch.setattr(os, "stat", stat)
        monkeypatch.setattr(os, "scandir", scandir)

    yield forbidden
    monkeypatch.undo()


def test_a_folder_that_this_user_may_not_search(tmp_path: Path, forbid: Forbid) -> None:
    """/run/secrets is closed in some images, and doctor asks there whether this is Kubernetes."""
    card = mi50(tmp_path)
    machine(tmp_path)
    for name in ("vendor", "class"):
        write(tmp_path / "sys/bus/pci/devices" / MI50_ADDRESS / name, "0x1002\n" if name == "vendor" else "0x038000\n")
    forbid("run/secrets")
    assert container(tmp_path) is None
    forbid("bus/pci/devices/0000")
    assert not fallen(tmp_path, MI50_ADDRESS)  # closed is not gone
    assert [c.driver for c in pci_cards(tmp_path)] == [None]
    assert detect(tmp_path)[0].arch == "gfx906"
    assert read_state(card, tmp_path).vram_used_bytes == 20 << 20


def test_links_that_lead_to_themselves(tmp_path: Path) -> None:
    card = mi50(tmp_path)
    for name in (f"sys/bus/pci/devices/{MI50_ADDRESS}", "opt/dtk", "sys/class/drm/card9/device", "model/again"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(path)
    assert read_state(card, tmp_path).vram_used_bytes == 20 << 20  # found by its DRM node
    assert detect(tmp_path)[0].name == "AMD Instinct MI50"
    write(tmp_path / "dev/mkfd", "")
    shown = card.model_copy(update={"render_minor": 128})
    assert "/dev/dri/card1" in access(Container(image="a"), shown, 1, tmp_path, 1000).devices
    spec = EngineSpec(python="python3", model=str(tmp_path / "model"), container=Container(image="a"))
    mounts = engine_mounts(spec, Placement(), (), (), tmp_path / "night")
    assert str(tmp_path / "model") in [mount.source for mount in mounts]


@pytest.mark.parametrize("folder", ["hwmon", "class/drm"])
@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), OSError(5, "Input/output error")])
def test_a_card_that_goes_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, error: OSError
) -> None:
    """pathlib looks whether a folder is there and lists it then."""
    card = mi50(tmp_path)
    moving_files(tmp_path / f"sys/devices/pci0000:00/{MI50_ADDRESS}", 0)
    assert read_state(card, tmp_path).hottest_c == 61.0
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if folder in str(path):
            raise error
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    state = read_state(card, tmp_path)
    assert isinstance(state, CardState) and state.hottest_c is None
    assert detect(tmp_path)[0].arch == "gfx906"
    assert card_problems(tmp_path, tmp_path / "dev")  # /dev/kfd is not there, and that is said


@pytest.mark.parametrize("text", ["\u00b2", "9" * 5000])
def test_numbers_that_are_none(tmp_path: Path, text: str) -> None:
    """A digit that is no number (superscript two), and more digits than Python reads."""
    card = mi50(tmp_path).model_copy(update={"index": 0})
    cpu = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=1, compute_units=1, source="test")
    chosen, why = pick_card((card, cpu), "rocm", {"HIP_VISIBLE_DEVICES": text})
    assert chosen.kind == "cpu" and "hides the AMD card: correct or remove it" in why
    assert not list(ends_early(tmp_path, {"SLURM_JOB_END_TIME": text}, 1, 0, "li", None, 0.0))


def test_a_mount_with_commas_is_one_mount() -> None:
    assert asked_mount("/a,b:/c,d:ro").target == "/c,d"


class NVMLError(Exception):
    pass


def library() -> Any:
    """A stand-in for pynvml with one card."""
    m: Any = types.ModuleType("pynvml")
    m.NVMLError = NVMLError
    answers: dict[str, Any] = {
        "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "h",
        "nvmlDeviceGetHandleByUUID": "h", "nvmlDeviceGetHandleByPciBusId": "h", "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetCudaComputeCapability": (9, 0), "nvmlDeviceGetName": "H200", "nvmlDeviceGetUUID": "GPU-aa",
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=1 << 37, used=1 << 30, free=(1 << 37) - (1 << 30)),
        "nvmlDeviceGetPciInfo": types.SimpleNamespace(domain=0, bus=3, device=0), "nvmlDeviceGetNumGpuCores": 16896,
        "nvmlDeviceGetPowerUsage": 90000, "nvmlDeviceGetEnforcedPowerLimit": 700000,
        "nvmlDeviceGetCurrentClocksEventReasons": 0, "nvmlDeviceGetTemperature": 40, "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=5), "nvmlDeviceGetFieldValues": [],
        "nvmlDeviceGetComputeRunningProcesses": [], "nvmlDeviceGetGraphicsRunningProcesses": [],
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(m, name, lambda *_, answer=answer: answer)
    return m


@pytest.mark.parametrize(
    "error", [NVMLError("gone"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), OSError(5, "io"), ValueError("odd")]
)
def test_an_nvml_that_fails_in_any_call(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise error

    good = library()
    monkeypatch.setitem(sys.modules, "pynvml", good)
    card = nvidia.detect_nvidia()[0]
    assert (card.name, nvidia.read_nvidia(card).sclk_mhz, nvidia.free_vram(card)) == ("H200", 1980, 127 << 30)
    for name in [name for name in vars(good) if name.startswith("nvml")]:
        bad = library()
        setattr(bad, name, fail)
        monkeypatch.setitem(sys.modules, "pynvml", bad)
        assert len(nvidia.detect_nvidia()) in (0, 1)
        assert isinstance(nvidia.read_nvidia(card), CardState)
        nvml_processes(card)
        nvidia.free_vram(card)
    assert nvidia.detect_nvidia()  # the last was one that detection does not ask
