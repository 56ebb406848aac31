"""When the arms ask the card's guard: real processes, the stand-in in vLLM's place, a recording guard."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import pytest

from agents.arms import ArmFailure, Arms
from agents.card_guard import CardBusy, CardGuard
from contracts import CardRule, Frozen, Limits
from tests.agents.free_card import CPU
from tests.standin import standin_spec

LIMITS = Limits(engine_start_s=60, engine_stop_s=5)


class Recording(CardGuard):
    """A stand-in for the guard that writes down when it is asked."""

    def __init__(self) -> None:
        super().__init__(CPU, CardRule(), 5, print, lambda: None, lambda: 0.0)
        self.asked: list[str | frozenset[int]] = []
        self.taken = False

    def before_launch(self, own_pids: Collection[int]) -> None:
        self.asked.append(frozenset(own_pids))
        if self.taken:
            raise CardBusy("somebody is on the card")

    def after_stop(self) -> None:
        self.asked.append("all down")


@pytest.fixture
def guard() -> Recording:
    return Recording()


@pytest.fixture
def arms(tmp_path: Path, guard: Recording) -> Iterator[Arms]:
    def emit(_kind: str, _data: Frozen) -> None:
        pass

    arms = Arms(tmp_path, LIMITS, None, emit, guard=guard)
    yield arms
    arms.down()


def test_before_each_launch_and_once_nobody_of_ours_is_up(arms: Arms, guard: Recording) -> None:
    spec = standin_spec()
    arms.up({"A": spec}, None, 0)
    assert guard.asked == [frozenset()]
    first = arms.pids()
    arms.up({"A": spec}, None, 0)  # up already: nothing is launched
    arms.up({"A": spec, "B": spec}, None, 0)  # the twin: the engine beside it is ours
    assert first and guard.asked[1:] == [first]
    assert arms.pids() > first
    arms.down("B")
    assert guard.asked[2:] == []  # A is still up
    arms.down()
    assert guard.asked[2:] == ["all down"]
    arms.down()
    assert guard.asked[2:] == ["all down"]


def test_a_launch_in_place_of_another_is_asked_for_after_the_other_is_gone(arms: Arms, guard: Recording) -> None:
    arms.up({"B": standin_spec()}, None, 0)
    arms.up({"B": standin_spec(max_num_seqs=8)}, None, 0)
    assert guard.asked == [frozenset(), "all down", frozenset()]


def test_a_launch_that_fails_is_a_stop_too(arms: Arms, guard: Recording) -> None:
    with pytest.raises(ArmFailure):
        arms.up({"B": standin_spec({"STANDIN_OOM": "torch"})}, None, 0)
    assert guard.asked == [frozenset(), "all down"]


@pytest.mark.parametrize(("kind", "order"), [("cpu", "start start ready ready"), ("nvidia", "start ready start ready")])
def test_twins_start_together_but_on_a_gpu_one_after_the_other(
    tmp_path: Path, guard: Recording, kind: Literal["cpu", "nvidia"], order: str
) -> None:
    """Two engines that ask a GPU for its free memory at the same time count each other's; the stand-in asks nothing."""
    seen: list[str] = []
    words = {"launch_started": "start", "launch_ready": "ready"}
    card = CPU.model_copy(update={"kind": kind})
    arms = Arms(tmp_path, LIMITS, None, lambda name, _: seen.append(words.get(name, "")), guard, card)
    try:
        arms.up({"A": standin_spec(), "B": standin_spec(max_num_seqs=8)}, None, 0)
        assert " ".join(seen) == order
    finally:
        arms.down()


def test_nothing_is_started_on_a_busy_card(arms: Arms, guard: Recording, tmp_path: Path) -> None:
    guard.taken = True
    with pytest.raises(CardBusy):
        arms.up({"A": standin_spec()}, None, 0)
    assert arms.pids() == frozenset() and not (tmp_path / "artifacts/launches").exists()
