"""How many launch pairs a night adds to its design where void runs have spoilt some."""

from __future__ import annotations

import pytest

from contracts import JudgeRule
from judge.repeat import SPARE_LAUNCH_PAIRS, spare_launch_pairs
from tests.judge.nights import changed, experiment


@pytest.mark.parametrize(("spoilt", "spare"), [(0, 0), (1, 1), (3, SPARE_LAUNCH_PAIRS)])
def test_a_launch_pair_that_void_runs_have_spoilt_is_measured_again(spoilt: int, spare: int) -> None:
    runs = experiment([[1.0, 1.01]] * 3)
    runs = changed(runs, lambda m: m.launch_pair < spoilt and m.run == 0, void_reasons=("the load generator was late",))
    assert spare_launch_pairs(runs, JudgeRule(runs_per_launch=2)) == spare


def test_runs_that_contradict_each_other_are_not_mended_by_more() -> None:
    runs = experiment([[1.0, 1.01]])
    assert spare_launch_pairs([*runs, runs[0]], JudgeRule(runs_per_launch=2)) == 0
