"""A night that asks for the copy test: what its ledger says, and what its roofline then rests on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.context import Night
from agents.research.knobs import Knobs
from agents.research.readers import roofline as reader
from agents.research.roofline import roofline
from agents.stages import opening
from agents.tuning.overlay import Overlay
from cards.copy_test import CopyTestError
from cards.detect import detect
from contracts import Card, CardRule, EngineSettings, MeasuredSheet, NightConfig, Rate, Workload
from ledger.log import Ledger
from tests.real import engine_python

ROOT = Path(__file__).resolve().parents[2]
Z100 = Card(
    arch="gfx906", kind="amd", name="Hygon gfx906", memory_bytes=32 << 30, compute_units=60, wavefront=64, source="test"
)


def measured(gb_s: float) -> MeasuredSheet:
    """Made up, with the rate that a public report gives for a Z100."""
    rate = Rate(value=gb_s, lowest=gb_s, highest=gb_s, repeats=20)
    return MeasuredSheet(
        arch="gfx906", card="Hygon gfx906", copy_gb_s=rate, how="made up", at="2026-11-30T22:00:00+00:00"
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text((ROOT / "configs/models/dense_gqa_8b.json").read_text())
    return folder


@pytest.fixture
def night(tmp_path: Path, model: Path) -> Iterator[Night]:
    work = Workload(
        name="w", concurrency=4, requests=8, warmup_requests=2, input_tokens=(512, 512), output_tokens=(64, 64)
    )
    engine = EngineSettings(python="/nowhere/python", model=str(model))
    config = NightConfig(name="n", minutes=60, engine=engine, workload=work, card=CardRule(copy_test=True))
    folder = tmp_path / "night"
    folder.mkdir()
    with Ledger.create(folder) as ledger:
        yield Night(config, Z100, folder, ledger, Overlay.create(folder / "overlay", opening.base_spec(config)))


def told(night: Night, kind: str) -> list[dict[str, object]]:
    return [event.data for event in night.ledger.events if event.kind == kind]


def test_the_roofline_rests_on_tonight_s_bandwidth(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "read_knobs", lambda *_: Knobs(version="unknown", path=""))
    monkeypatch.setattr(opening, "copy_test", lambda *_: measured(890.0))
    before = roofline(opening.first_dossier(night.config, Z100))
    opening.measure_card(night)
    (line,) = told(night, "card_measured")
    assert line["overrides"] == "the bandwidth of configs/cards/gfx906.yaml (1024 GB/s; measured 87% of it)"
    known = opening.first_dossier(night.config, Z100).model_copy(
        update={"sheet": opening.sheet_of(Z100, opening.measured_tonight(night))}
    )
    after = roofline(known)
    assert before and after and after.decode_step_s > before.decode_step_s  # a slower memory, a later bound
    assert any("measured tonight: made up" in e.detail for f in reader.look(known) for e in f.evidence)


def test_without_a_copy_test_the_sheet_stands(night: Night) -> None:
    assert opening.measured_tonight(night) is None
    sheet = opening.sheet_of(Z100)
    assert sheet is not None and sheet.bandwidth_gb_s.value == 1024
    assert opening.sheet_of(detect()[-1]) is None  # nobody wrote a sheet of a CPU


def test_an_odd_figure_is_kept_and_not_used(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "copy_test", lambda *_: measured(40.0))
    opening.measure_card(night)
    assert told(night, "card_measured")[0]["overrides"] is None
    assert "the copy test came to 40 GB/s, and the sheet of gfx906 says 1024" in str(told(night, "warned"))


def test_a_copy_test_that_fails_costs_a_warning_and_no_night(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> MeasuredSheet:
        raise CopyTestError("the copy test did not end within 120 s: run it again")

    monkeypatch.setattr(opening, "copy_test", broken)
    opening.measure_card(night)
    assert not told(night, "card_measured")
    assert told(night, "warned") == [{"message": "the copy test did not end within 120 s: run it again", "data": {}}]


@pytest.mark.engine_python
def test_a_cpu_night_measures_its_memory_for_real(night: Night) -> None:
    cpu = detect()[-1]
    night.card = cpu
    night.config = night.config.model_copy(
        update={"engine": night.config.engine.model_copy(update={"python": engine_python()})}
    )
    opening.measure_card(night)
    (line,) = told(night, "card_measured")
    assert line["overrides"] is None and json.loads(json.dumps(line))["measured"]["copy_gb_s"]["value"] > 0.1
