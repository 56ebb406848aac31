"""Limits relative to tonight's baseline become numbers before anything is judged."""

import pytest

from contracts import Limit, Objective
from judge.objective import resolve
from judge.ratios import CannotJudge


def test_a_limit_relative_to_the_baseline_becomes_one_in_the_metrics_unit() -> None:
    objective = Objective(
        limits=(Limit(metric="tpot_ms_p95", times_baseline=2.5), Limit(metric="ttft_ms_p95", at_most=4000))
    )
    assert resolve(objective, {"tpot_ms_p95": 30.0}).limits == (
        Limit(metric="tpot_ms_p95", at_most=75.0),
        Limit(metric="ttft_ms_p95", at_most=4000),
    )


def test_a_limit_on_something_that_the_baseline_lacks_is_an_error_not_a_pass() -> None:
    objective = Objective(limits=(Limit(metric="tpot_ms_p99", times_baseline=2.0),))
    with pytest.raises(CannotJudge, match="tpot_ms_p99.*tpot_ms_p95"):
        resolve(objective, {"tpot_ms_p95": 30.0})


@pytest.mark.parametrize("numbers", [{}, {"at_most": 60, "times_baseline": 2}])
def test_a_limit_is_either_absolute_or_relative(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at_most .* or times_baseline"):
        Limit(metric="tpot_ms_p95", **numbers)
