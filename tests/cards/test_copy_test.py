"""The copy test measures for real on a CPU engine's torch; what a GPU's child would answer is made up and says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cards.copy_test import CopyTestError, another_card, copy_test, rate_of, read_answer
from cards.detect import detect
from cards.sheet import read_sheet, with_measured
from contracts import Card, MeasuredSheet
from tests.real import engine_python

AT = "2026-11-30T22:00:00+00:00"
Z100 = Card(
    arch="gfx906", kind="amd", name="Hygon gfx906", memory_bytes=32 << 30, compute_units=60,
    pci_address="0000:04:00.0", wavefront=64, source="test",
)  # fmt: skip
# What copy_worker.py would print for a Z100. Nobody here has one: the rate is the one that a public report gives.
MADE_UP: dict[str, Any] = {
    "buffer_bytes": 1 << 30,
    "copy_gb_s": {"copy_": [889.0, 890.0, 885.0], "add": [880.0, 884.0, 881.0]},
    "matmul_tflops": {"fp16": [20.0, 21.0], "fp32": []},
    "identity": {"name": "Device 66a1", "gcnArchName": "gfx906:sramecc-:xnack-"},
    "torch": "2.9.0", "hip": "6.3.42131", "cuda": None,
}  # fmt: skip


@pytest.mark.engine_python
def test_this_machine_s_memory_for_real() -> None:
    card = detect()[-1]
    found = copy_test(engine_python(), card, {}, buffer_bytes=64 << 20, repeats=3, work_s=3.0)
    assert found.arch == card.arch and found.versions["torch"]
    assert 0.1 < found.copy_gb_s.value < 5000  # any machine between an old laptop's and beyond the widest server's
    assert found.copy_gb_s.lowest <= found.copy_gb_s.value <= found.copy_gb_s.highest
    assert "wall clock" in found.how and "64 MiB" in found.how
    assert set(found.matmul_tflops) <= {"fp32", "bf16"}
    assert all(0 < rate.value < 1000 for rate in found.matmul_tflops.values())
    assert MeasuredSheet.model_validate_json(found.model_dump_json()) == found  # as the ledger keeps it


@pytest.mark.engine_python
def test_a_card_that_torch_does_not_see_gets_one_line() -> None:
    with pytest.raises(
        CopyTestError, match="could not run on Hygon gfx906 .torch sees no GPU.: run `run_night.py doctor`"
    ):
        copy_test(engine_python(), Z100, {}, time_limit_s=60)


def test_an_interpreter_without_torch() -> None:
    with pytest.raises(CopyTestError, match="has no torch, so the card cannot be measured: install the engine first"):
        copy_test(sys.executable, Z100, {})


def test_a_child_that_hangs_is_ended(tmp_path: Path) -> None:
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    with pytest.raises(CopyTestError, match="did not answer within 0.3 s.: run it again"):
        copy_test(str(hangs), Z100, {}, time_limit_s=0.3)


def test_the_better_way_of_copying_counts_and_the_other_is_told() -> None:
    found = read_answer(MADE_UP, Z100, AT)
    assert (found.copy_gb_s.value, found.copy_gb_s.repeats) == (889.0, 3)
    assert found.matmul_tflops["fp16"].value == 20.5 and "fp32" not in found.matmul_tflops
    assert found.card == "Hygon gfx906 at 0000:04:00.0"
    assert "copy_ between two buffers of 1024 MiB" in found.how and "add: 881.0 GB/s" in found.how


def test_tonight_s_bandwidth_stands_for_the_sheet_s() -> None:
    sheet, words = with_measured(read_sheet("gfx906"), read_answer(MADE_UP, Z100, AT))
    assert sheet.bandwidth_gb_s.value == 889.0
    assert sheet.bandwidth_gb_s.source.startswith("measured tonight: torch copy_")
    assert "the sheet says 1024" in sheet.bandwidth_gb_s.source
    assert words == "the bandwidth of configs/cards/gfx906.yaml (1024 GB/s; measured 87% of it)"
    assert sheet.tflops == read_sheet("gfx906").tflops  # what a library reached is no peak


@pytest.mark.parametrize("rate", [30.0, 4000.0])
def test_a_rate_that_this_card_cannot_have_replaces_nothing(rate: float) -> None:
    odd = {**MADE_UP, "copy_gb_s": {"copy_": [rate]}}
    assert with_measured(read_sheet("gfx906"), read_answer(odd, Z100, AT)) == (read_sheet("gfx906"), None)


def test_another_arch_s_measurement_replaces_nothing() -> None:
    assert with_measured(read_sheet("gfx90a"), read_answer(MADE_UP, Z100, AT))[1] is None


@pytest.mark.parametrize(
    ("identity", "other"),
    [
        ({}, None),
        ({"gcnArchName": "gfx906:sramecc-:xnack-"}, None),
        ({"gcnArchName": "gfx9006"}, None),  # the same arch, spelled as some tools do
        ({"name": "AMD Instinct MI355X", "gcnArchName": "gfx950"}, "AMD Instinct MI355X (gfx950)"),
        ({"name": "x", "pci_domain_id": 0, "pci_bus_id": 4, "pci_device_id": 0}, None),
        ({"name": "x", "pci_domain_id": 0, "pci_bus_id": 7, "pci_device_id": 0}, "x at 0000:07:00"),
    ],
)
def test_the_card_that_was_measured_must_be_the_night_s(identity: dict[str, Any], other: str | None) -> None:
    assert another_card(identity, Z100) == other
    if other:
        with pytest.raises(CopyTestError, match="ran on .* name the card in engine.env"):
            read_answer({**MADE_UP, "identity": identity}, Z100, AT)


def test_no_sample_is_no_rate() -> None:
    assert rate_of([]) is None and rate_of([0.0]) is None
    with pytest.raises(CopyTestError, match="measured no copy"):
        read_answer({**MADE_UP, "copy_gb_s": {"copy_": []}}, Z100, AT)
