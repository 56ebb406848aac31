import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.ratios import CannotJudge, better, complete, launch_pairs, pair_log_ratio
from tests.judge.nights import METRIC, a_run, experiment

speeds = st.floats(1e-3, 1e6)


def test_a_rate_that_doubles_and_a_latency_that_halves_are_the_same_gain() -> None:
    a = a_run("A", speed=100.0, metrics={"tpot_ms_p95": 60.0})
    b = a_run("B", speed=200.0, metrics={"tpot_ms_p95": 30.0})
    assert pair_log_ratio(a, b, METRIC) == pytest.approx(math.log(2))
    assert pair_log_ratio(a, b, "tpot_ms_p95") == pytest.approx(math.log(2))


def test_which_way_is_better_is_in_the_name_or_not_guessed() -> None:
    assert {better(m) for m in ("output_tokens_per_s", "requests_per_s", "goodput_requests_per_s")} == {"higher"}
    assert {better(m) for m in ("ttft_ms_p50", "tpot_ms_mean", "e2e_ms_p99", "ready_s")} == {"lower"}
    for name in ("accuracy", "ms", "s", "kv_cache_usage", "output_tokens_per_s_little"):
        with pytest.raises(CannotJudge, match="name a rate"):
            better(name)


@pytest.mark.parametrize("bad", [None, 0.0, -3.0, math.nan, math.inf])
def test_a_number_that_is_not_there_is_never_made_up(bad: float | None) -> None:
    with pytest.raises(CannotJudge, match="output_tokens_per_s"):
        pair_log_ratio(a_run("A"), a_run("B", metrics={METRIC: bad}), METRIC)


def test_a_missing_metric_says_which_run_and_what_was_measured_instead() -> None:
    with pytest.raises(
        CannotJudge, match=r"ttft_ms_p50 was not measured in run 1 of arm B, launch pair 2 \(measured: out"
    ):
        pair_log_ratio(a_run("A", metrics={"ttft_ms_p50": 9.0}), a_run("B", 2, 1), "ttft_ms_p50")


@given(speeds, speeds, st.floats(1e-3, 1e3))
def test_units_do_not_matter_and_swapping_the_arms_turns_the_sign(a: float, b: float, scale: float) -> None:
    def ratio(x: float, y: float) -> float:
        return pair_log_ratio(a_run("A", speed=x), a_run("B", speed=y), METRIC)

    assert ratio(a, b) == pytest.approx(-ratio(b, a), abs=1e-12)
    assert ratio(a * scale, b * scale) == pytest.approx(ratio(a, b), abs=1e-9)


def test_a_launch_pair_is_one_number_however_many_runs_it_has() -> None:
    (pair,) = launch_pairs(experiment([[1.1, 1.2, 1.3]]))
    assert pair.log_ratio(METRIC) == pytest.approx((math.log(1.1) + math.log(1.2) + math.log(1.3)) / 3)


def test_void_runs_do_not_count_and_their_repeat_does() -> None:
    runs = experiment([[1.1, 9.0]])
    runs[3] = runs[3].model_copy(update={"void_reasons": ("1 compile(s) inside the window",)})
    assert [len(p.run_pairs) for p in launch_pairs(runs)] == [1]
    again = [a_run("A", 0, 1, prompt_seed=77), a_run("B", 0, 1, prompt_seed=77, speed=330.0)]
    (pair,) = launch_pairs([*runs, *again])
    assert [round(math.exp(x), 3) for x in pair.log_ratios(METRIC)] == [1.1, 1.1]


def test_a_pair_that_only_together_is_void_does_not_count_even_if_nobody_marked_it() -> None:
    assert launch_pairs([a_run("A"), a_run("B", conditions={"output_tokens": 1})]) == ()


def test_two_valid_runs_for_one_place_are_not_chosen_between() -> None:
    with pytest.raises(CannotJudge, match="two valid runs"):
        launch_pairs([a_run("A"), a_run("B"), a_run("B", speed=500.0)])


def test_only_launch_pairs_of_the_nights_design_count() -> None:
    pairs = launch_pairs(experiment([[1.0, 1.0], [1.0], [1.0, 1.0, 5.0]]))
    assert [(p.number, len(p.run_pairs)) for p in complete(pairs, 2)] == [(0, 2), (2, 2)]
