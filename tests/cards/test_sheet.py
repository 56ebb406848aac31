"""The card sheets say what the cards are, and where each figure is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards import sheet
from cards.sheet import SheetError, arch_of, known_sheets, read_sheet


def test_the_sheets_that_there_are() -> None:
    assert known_sheets() == ["gfx906", "gfx90a", "gfx942", "gfx950", "sm_90"]


@pytest.mark.parametrize("arch", known_sheets())
def test_every_figure_has_a_source(arch: str) -> None:
    card = read_sheet(arch)
    numbers = [card.compute_units, card.memory_gib, card.bandwidth_gb_s, card.lds_bytes, card.vgprs]
    numbers += [*card.tflops.values(), *([card.link_gb_s] if card.link_gb_s else [])]
    assert all(len(number.source) > 10 for number in numbers)
    assert card.arch == arch


def test_what_the_instruction_sets_have() -> None:
    """Facts that gates in serving code rest on."""
    old, mi250, mi300, mi355 = (read_sheet(a) for a in ("gfx906", "gfx90a", "gfx942", "gfx950"))
    assert [c.lds_bytes.value for c in (old, mi250, mi300, mi355)] == [65536, 65536, 65536, 163840]
    assert [c.vgprs.value for c in (old, mi250, mi300, mi355)] == [256, 512, 512, 512]
    assert "mfma" in old.absent and "bf16" not in old.tflops and "fp8" not in old.tflops
    assert "fp8" not in mi250.tflops and "bf16" in mi250.tflops
    assert "fp8_fnuz" in mi300.native and "fp8_fnuz" in mi355.absent and "fp8" in mi355.native
    assert "fp4" in mi355.tflops and "fp4" not in mi300.tflops


def test_peaks_are_clock_times_units() -> None:
    """FLOPs a clock and compute unit (AMD lab notes; ISSCC 2026) x units x clock."""
    assert read_sheet("gfx90a").tflops["fp16"].value == pytest.approx(1024 * 110 * 1.7e9 / 1e12, rel=1e-3)
    assert read_sheet("gfx942").tflops["bf16"].value == pytest.approx(2048 * 304 * 2.1e9 / 1e12, rel=1e-3)
    assert read_sheet("gfx942").tflops["fp8"].value == pytest.approx(4096 * 304 * 2.1e9 / 1e12, rel=1e-3)
    assert read_sheet("gfx942").tflops["fp32"].value == pytest.approx(256 * 304 * 2.1e9 / 1e12, rel=1e-3)
    old = read_sheet("gfx906").tflops
    assert old["int8"].value == pytest.approx(4 * old["fp32"].value, rel=0.01)
    assert read_sheet("gfx950").tflops["fp8"].value == pytest.approx(8192 * 256 * 2.4e9 / 1e12, rel=1e-3)


def test_a_card_without_a_machine() -> None:
    card = read_sheet("gfx950").card()
    assert (card.arch, card.kind, card.compute_units, card.wavefront) == ("gfx950", "amd", 256, 64)
    assert card.memory_bytes == 288 << 30
    assert card.source == "configs/cards/gfx950.yaml"


def test_an_unknown_card_is_told_with_those_there_are() -> None:
    with pytest.raises(SheetError, match=r"no sheet for gfx1100; there are gfx906, gfx90a"):
        read_sheet("gfx1100")


@pytest.mark.parametrize(
    ("name", "arch"),
    [("MI355X", "gfx950"), ("mi50", "gfx906"), ("Z100", "gfx906"), ("h200", "sm_90"), ("MI250", "gfx90a"),
     ("GFX942", "gfx942")],
)  # fmt: skip
def test_a_card_by_its_name(name: str, arch: str) -> None:
    assert arch_of(name) == arch


@pytest.mark.parametrize(("name", "told"), [("AMD", "may be"), ("MI35", "no sheet for MI35"), ("", "no sheet for")])
def test_a_name_that_is_not_one_card(name: str, told: str) -> None:
    with pytest.raises(SheetError, match=told):
        arch_of(name)


def test_a_word_that_nobody_explained_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (sheet.FOLDER / "gfx90a.yaml").read_text(encoding="utf-8").replace("absent: [", "absent: [magic, ")
    (tmp_path / "gfx90a.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sheet, "FOLDER", tmp_path)
    with pytest.raises(SheetError, match="magic: not in the table"):
        read_sheet("gfx90a")


def test_what_a_server_asks_first_is_told_of_every_card() -> None:
    """A word in neither list was not looked at: for these it was, on every card."""
    for arch in known_sheets():
        card = read_sheet(arch)
        told = {*card.native, *card.absent}
        assert {"fp8", "fp8_fnuz", "mx", "bf16_matrix", "int8_matrix"} <= told, arch
        assert ("fp8" in card.tflops) == bool({"fp8", "fp8_fnuz"} & {*card.native}), arch
        assert ("fp4" in card.tflops) == ("mx" in card.native), arch
        assert ("bf16" in card.tflops) == bool({"bf16", "bf16_matrix"} & {*card.native}), arch
