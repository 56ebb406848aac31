"""What the sentinel keeps of a window. On fixture trees where it needs a card, on this machine where it needs a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cards.card_state import CardState
from cards.cpu_state import CpuReader
from cards.detect import detect
from cards.sentinel import Sentinel
from cards.tenancy import Tenancy, Tenant
from cards.window import Sample, not_told, summary
from contracts import Card
from tests.cards.tenants import GIB, computing, mi50, used
from tests.cards.trees import write

NOBODY = Tenancy(used_bytes=0, told=("KFD",))


def samples(*states: CardState, tenancy: Tenancy = NOBODY, every: float = 0.5) -> list[Sample]:
    return [Sample(10 + every * i, state, tenancy) for i, state in enumerate(states)]


def clock(mhz: float, busy: float | None = 99.0, **other: object) -> CardState:
    return CardState.model_validate({"sclk_mhz": mhz, "busy_percent": busy, **other})


# --- a window in numbers ------------------------------------------------------------------------------------------


def test_clocks_power_and_heat() -> None:
    states = [
        clock(1700, power_w=200, power_cap_w=225, temperatures_c={"edge": 60, "junction": 80}, mclk_mhz=1000),
        clock(1600, power_w=220, power_cap_w=225, temperatures_c={"edge": 62, "junction": 91}),
        clock(300, busy=3, power_w=30),  # idle between two waves: by itself, not by heat
    ]
    found = summary(samples(*states), frozenset(), 0.5)
    assert (found["card_samples"], found["card_gaps"]) == (3, 0)
    assert [found[f"card_sclk_mhz_{k}"] for k in ("min", "median", "max", "loaded")] == [300, 1600, 1700, 1650]
    assert found["card_loaded_samples"] == 2
    assert (found["card_power_w_mean"], found["card_power_w_max"], found["card_power_cap_w"]) == (150, 220, 225)
    assert (found["card_hottest_c"], found["card_hottest_sensor"]) == (91, "junction")
    assert found["card_mclk_mhz_median"] == 1000


def test_throttling_by_power_is_told_apart_from_heat() -> None:
    cap = clock(1500, throttled=True, reasons=("power: PPT0", "current: TDC_GFX"))
    hot = clock(1400, throttled=True, reasons=("power: PPT0", "heat: TEMP_HOTSPOT"))
    fine = clock(1700, throttled=False)
    found = summary(samples(cap, cap, hot, fine), frozenset(), 0.5)
    assert (found["card_throttled_share"], found["card_slowed_share"]) == (0.75, 0.25)
    assert found["card_throttle_reasons"] == {"power: PPT0": 0.75, "current: TDC_GFX": 0.5, "heat: TEMP_HOTSPOT": 0.25}
    unnamed = clock(1, throttled=True, reasons=("unnamed: throttle_status 0x00000004",))  # may be the power cap
    found = summary(samples(unnamed), frozenset(), 0.5)
    assert (found["card_throttled_share"], found["card_slowed_share"]) == (1.0, 0.0)


def test_a_card_that_counts_its_limiters_itself() -> None:
    """MI300 and MI350 (gpu_metrics 1.6 and later) tell running totals instead of a yes or no."""

    def total(all_time: int, power: int, heat: int) -> CardState:
        counters = {"accumulation_counter": all_time, "ppt_residency_acc": power, "socket_thm_residency_acc": heat}
        return CardState(throttle_counters=counters)

    found = summary(samples(total(1000, 400, 7), total(1500, 700, 7), total(3000, 2000, 107)), frozenset(), 0.5)
    assert (found["card_throttled_share"], found["card_slowed_share"]) == (0.8, 0.05)
    assert found["card_throttle_reasons"] == {"ppt_residency_acc": 0.8, "socket_thm_residency_acc": 0.05}
    still = summary(samples(total(1000, 400, 7)), frozenset(), 0.5)
    assert still["card_throttled_share"] is None  # one look says nothing of a counter


def test_what_nobody_tells_is_none_and_listed() -> None:
    found = summary(samples(CardState(), CardState(), tenancy=Tenancy()), frozenset(), 0.5)
    told = {name for name, value in found.items() if value is not None}
    assert told == {"card_samples", "card_gaps", "card_loaded_samples"}
    assert set(not_told(found)) == set(found) - told
    assert summary([], frozenset(), 0.5)["card_samples"] == 0


def test_gaps_are_counted() -> None:
    assert summary(samples(*[clock(1)] * 3, every=2.0), frozenset(), 0.5)["card_gaps"] == 2


def test_strangers_are_told_once_and_the_idle_twin_is_none_of_them() -> None:
    ours = Tenant(pid=7, name="VLLM", memory_bytes=10 * GIB, use="compute")
    twin = Tenant(pid=8, name="VLLM", memory_bytes=10 * GIB, use="compute")

    def moment(used_gib: int, *others: Tenant) -> Tenancy:
        return Tenancy(tenants=(ours, twin, *others), used_bytes=used_gib * GIB, told=("KFD",))

    def seen(*moments: Tenancy) -> dict[str, object]:
        window = [Sample(float(i), CardState(), tenancy) for i, tenancy in enumerate(moments)]
        return dict(summary(window, frozenset({7, 8}), 0.5))

    alone = seen(moment(20), moment(20))
    assert (alone["card_foreign"], alone["card_vram_others_growth_bytes"]) == ([], 0)
    small, large = (Tenant(pid=9, name="python", memory_bytes=n * GIB, use="compute") for n in (1, 3))
    found = seen(moment(20), moment(21, small), moment(23, large), moment(20))
    assert found["card_foreign"] == ["python (pid 9) holds 3.0 GiB of it"]
    assert (found["card_vram_others_bytes_max"], found["card_vram_used_bytes_max"]) == (3 * GIB, 23 * GIB)
    assert found["card_vram_others_growth_bytes"] == 3 * GIB
    assert found["card_tenants_told_by"] == ["KFD"]


# --- the thread ---------------------------------------------------------------------------------------------------


@contextmanager
def watching(sentinel: Sentinel) -> Iterator[Sentinel]:
    sentinel.start()
    try:
        yield sentinel
    finally:
        sentinel.stop()


def wait_for(condition: object, what: str) -> None:
    deadline = time.monotonic() + 120  # a loaded machine; nothing here depends on how long it takes
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_a_tenant_that_comes_in_the_window_is_seen(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 77, "VLLM::EngineCor", 12 * GIB)
    sentinel = Sentinel(card, lambda: {77}, tmp_path, period_s=0.01)
    sentinel._state = lambda: CardState(sclk_mhz=1700)  # the reader of a card's state has its own tests
    with watching(sentinel):
        wait_for(lambda: len(sentinel._samples) >= 3, "no samples")
        sentinel.window_start()
        wait_for(lambda: len(sentinel.samples()) >= 3, "no samples in the window")
        assert sentinel.conditions()["card_foreign"] == []
        computing(tmp_path, 4242, "python", 3 * GIB)
        used(tmp_path, 15 * GIB)
        wait_for(lambda: sentinel.conditions()["card_vram_others_growth_bytes"] == 3 * GIB, "never seen")
        sentinel.window_end()
    found = sentinel.conditions()
    assert found["card_foreign"] == ["python (pid 4242) holds 3.0 GiB of it"]
    assert found["sentinel_error"] is None
    json.dumps(found)  # the ledger keeps it
    assert len(sentinel.samples()) < len(sentinel._samples)  # those before the window do not count


def test_an_engine_process_born_meanwhile_is_ours(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=2 * GIB)
    computing(tmp_path, 77, "VLLM", GIB)
    own = {77}
    sentinel = Sentinel(card, lambda: own, tmp_path, period_s=0.01)
    sentinel._state = CardState
    with watching(sentinel):
        computing(tmp_path, 78, "VLLM::Worker", GIB)
        wait_for(lambda: sentinel.conditions()["card_foreign"] != [], "never seen")
        own.add(78)
    assert sentinel.conditions()["card_foreign"] == []


def test_a_reader_that_fails_is_said_and_ends_nothing(tmp_path: Path) -> None:
    sentinel = Sentinel(mi50(tmp_path), lambda: (), tmp_path, period_s=0.01)

    def broken() -> CardState:
        raise OSError("the card fell off the bus")

    sentinel._state = broken
    with watching(sentinel):
        wait_for(lambda: sentinel._error is not None, "no error")
    found = sentinel.conditions()
    assert found["sentinel_error"] == "OSError: the card fell off the bus"
    assert found["card_samples"] == 0 and found["card_foreign"] is None


def test_stopping_twice_or_without_a_start_is_nothing(tmp_path: Path) -> None:
    never = Sentinel(mi50(tmp_path), lambda: (), tmp_path)
    never.stop()
    assert never.conditions()["card_samples"] == 0
    with watching(Sentinel(mi50(tmp_path / "b"), lambda: (), tmp_path / "b")) as once:
        once.stop()
    assert threading.active_count() >= 1 and once._thread is not None and not once._thread.is_alive()


# --- this machine -------------------------------------------------------------------------------------------------

BURN = "import sys\nprint('up', flush=True)\nwhile True: pass\n"


@contextmanager
def burning() -> Iterator[psutil.Process]:
    """A real process that does nothing but use a core."""
    child = subprocess.Popen([sys.executable, "-c", BURN], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        yield psutil.Process(child.pid)
    finally:
        child.kill()
        child.wait()


def this_cpu() -> Card:
    return next(card for card in detect() if card.kind == "cpu")


@pytest.mark.parametrize("ours", [False, True])
def test_a_real_process_that_burns_cpu_is_seen_unless_it_is_ours(ours: bool) -> None:
    with burning() as child:
        sentinel = Sentinel(this_cpu(), lambda: [child.pid] if ours else [])
        before = sum(child.cpu_times()[:2])
        with watching(sentinel):
            wait_for(lambda: sum(child.cpu_times()[:2]) > before + 0.3, "the child got no CPU")
        found = {p.pid: p for p in sentinel.foreign_cpu()}
    assert os.getpid() not in found  # the loop itself is ours
    assert (child.pid in found) is not ours
    if not ours:
        assert found[child.pid].cpu_s >= 0.25 and "python" in found[child.pid].name


def test_this_machine_s_cpu_is_told_in_numbers() -> None:
    reader = CpuReader(Path("/"))
    reader.read()
    seen: list[float] = []

    def busy() -> bool:
        seen.append(reader.read().busy_percent or 0.0)
        return seen[-1] > 0

    with burning():
        wait_for(busy, "the CPU is never busy")
    assert 0 < seen[-1] <= 100
    mhz = reader.read().sclk_mhz
    assert mhz is None or 100 < mhz < 10_000


# --- a CPU's files ------------------------------------------------------------------------------------------------


def cpu_files(root: Path, khz: Sequence[int], throttles: int = 0, ticks: str = "0 0 0 100 0 0 0 0 0 0") -> None:
    for i, value in enumerate(khz):
        folder = root / f"sys/devices/system/cpu/cpu{i}"
        write(folder / "cpufreq/scaling_cur_freq", f"{value}\n")
        write(folder / "thermal_throttle/core_throttle_count", "5\n")
        write(folder / "thermal_throttle/package_throttle_count", f"{throttles}\n")
    write(root / "proc/stat", f"cpu  {ticks}\ncpu0 {ticks}\nintr 5\n")
    write(root / "sys/class/hwmon/hwmon2/name", "k10temp\n")
    write(root / "sys/class/hwmon/hwmon2/temp1_input", "71250\n")


def test_a_cpu_s_clock_heat_and_throttling(tmp_path: Path) -> None:
    cpu_files(tmp_path, [3_000_000, 2_000_000])
    reader = CpuReader(tmp_path)
    first = reader.read()
    assert (first.sclk_mhz, first.throttled, first.busy_percent) == (2500, None, None)  # counters need two looks
    assert first.temperatures_c == {"k10temp": 71.25}
    cpu_files(tmp_path, [3_000_000, 1_000_000], throttles=3, ticks="60 0 15 120 5 0 0 0 0 0")
    second = reader.read()
    assert (second.sclk_mhz, second.throttled, second.reasons) == (2000, True, ("heat: package",))
    assert second.busy_percent == pytest.approx(75)
    assert (reader.read().throttled, reader.read().busy_percent) == (False, None)  # nothing moved since


def test_a_virtual_machine_s_cpu_tells_less(tmp_path: Path) -> None:
    write(tmp_path / "proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2600.5\n\nprocessor\t: 1\ncpu MHz\t\t: 2599.5\n")
    assert CpuReader(tmp_path).read() == CardState(sclk_mhz=2600)
    assert CpuReader(tmp_path / "nothing").read() == CardState()


def test_a_large_machine_is_looked_at_in_part(tmp_path: Path) -> None:
    cpu_files(tmp_path, [2_000_000] * 40)
    reader = CpuReader(tmp_path)
    assert [f.name for f in reader._cpus] == [f"cpu{i}" for i in range(0, 40, 3)]


def test_a_card_that_stops_answering_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that never comes back: the night goes on, the hole counts, and why is said."""
    monkeypatch.setattr("cards.sentinel.STOP_S", 0.1)
    hung, free = threading.Event(), threading.Event()
    sentinel = Sentinel(mi50(tmp_path), lambda: (), tmp_path, period_s=0.01)

    def look() -> CardState:
        if len(sentinel._samples) == 3:
            hung.set()
            free.wait(120)
        return CardState()

    sentinel._state = look
    sentinel.window_start()
    with watching(sentinel):
        wait_for(hung.is_set, "the card never hung")
        time.sleep(0.1)  # ten periods without a look
        sentinel.window_end()
    found = sentinel.conditions()
    free.set()
    assert found["card_samples"] == 3 and int(str(found["card_gaps"])) >= 1
    assert str(found["sentinel_error"]).startswith("the card did not answer for")


def test_holes_at_the_window_s_edges(tmp_path: Path) -> None:
    sentinel = Sentinel(mi50(tmp_path), lambda: (), tmp_path, period_s=0.5)
    for looks, holes in (([], 1), ([10.0, 10.5, 11.0, 11.5, 12.0], 0), ([10.0, 10.5], 1), ([12.0], 1), ([11.0], 0)):
        sentinel._window = [10.0, 12.0]
        sentinel._samples = [Sample(at, CardState(), Tenancy()) for at in looks]
        assert sentinel.conditions()["card_gaps"] == holes, looks
