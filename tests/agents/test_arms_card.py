"""A night's engines get the night's card: Arms, with a stand-in engine and a card that this machine does not have."""

from __future__ import annotations

from pathlib import Path

import psutil

from agents.arms import Arms
from contracts import Card, Frozen, Limits
from tests.agents.free_card import FREE
from tests.standin import standin_spec

CARD = Card(
    arch="gfx906", kind="amd", name="MI50", memory_bytes=1, compute_units=60, source="test", pci_address="0000:03:00.0",
    uuid="GPU-21501edcba987654", index=1,
)  # fmt: skip


def environ(folder: Path, card: Card | None, env: dict[str, str]) -> dict[str, str]:
    """Of the engine that one arm brings up."""
    lines: list[tuple[str, Frozen]] = []
    arms = Arms(folder, Limits(engine_start_s=20, engine_stop_s=5), None, lambda k, d: lines.append((k, d)), FREE, card)
    try:
        engines = arms.up({"A": standin_spec(env)}, None, 0)
        return psutil.Process(engines["A"].record.pid).environ()
    finally:
        arms.down()


def test_each_launch_sees_the_night_s_card_alone(tmp_path: Path) -> None:
    seen = environ(tmp_path, CARD, {})
    assert (seen["ROCR_VISIBLE_DEVICES"], seen["HIP_VISIBLE_DEVICES"]) == ("GPU-21501edcba987654", "0")


def test_the_engine_s_own_choice_is_left_as_it_is(tmp_path: Path) -> None:
    seen = environ(tmp_path, CARD, {"HIP_VISIBLE_DEVICES": "1"})
    assert seen["HIP_VISIBLE_DEVICES"] == "1" and "ROCR_VISIBLE_DEVICES" not in seen
