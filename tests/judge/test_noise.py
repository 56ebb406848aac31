import csv
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from contracts import JudgeRule
from judge.noise import floor_from_ratios, learn, learn_from_means, noise_floor, noise_warnings
from judge.ratios import CannotJudge
from tests.judge.nights import METRIC, a_run, changed, experiment, floor, noisy

RULE = JudgeRule()
H200 = Path("../shared/data/h200_twin")


def test_the_mean_of_an_aa_is_known_so_each_launch_pair_is_a_degree_of_freedom() -> None:
    up, down = math.exp(0.03), math.exp(0.01)
    noise = noise_floor(experiment([[up, up], [down, down]]), METRIC, RULE)
    assert noise.launch_sd == pytest.approx(math.sqrt((0.03**2 + 0.01**2) / 2))  # about 0, not about 0.02
    assert noise.launch_df == 2 and noise.run_sd == pytest.approx(0)
    assert noise.pairs == pytest.approx((0.03, 0.03, 0.01, 0.01))


def test_two_launch_pairs_that_agree_by_luck_are_not_believed_beyond_their_runs() -> None:
    noise = floor_from_ratios(METRIC, [[0.04, -0.04], [-0.04, 0.04]])  # both means are exactly 0
    assert noise.launch_sd == pytest.approx((noise.run_sd or 0) / math.sqrt(2)) == pytest.approx(0.04)


def test_a_run_cannot_be_finer_than_the_engine_step_it_ends_with() -> None:
    runs = [
        m.model_copy(update={"metrics": m.metrics | {"tpot_ms_p50": 100.0}})
        for m in experiment([[1.0001, 1.0001], [1.0001, 1.0001]])
    ]
    step = 0.100 / 10.0  # s of a 10 s window
    assert noise_floor(runs, METRIC, RULE).launch_sd == pytest.approx(step / math.sqrt(12))
    without = noise_floor(experiment([[1.0001, 1.0001], [1.0001, 1.0001]]), METRIC, RULE)
    assert without.launch_sd == pytest.approx(math.log(1.0001))


def test_equal_to_the_last_digit_is_not_a_measurement() -> None:
    with pytest.raises(CannotJudge, match="same to the last digit in all 8 A/A runs"):
        noise_floor(experiment([[1.0, 1.0], [1.0, 1.0]]), METRIC, RULE)


@pytest.mark.parametrize("ratios", [[], [[1.0, 1.01]], [[1.0, 1.01], [1.02]]])
def test_one_complete_launch_pair_is_no_noise_floor(ratios: list[list[float]]) -> None:
    with pytest.raises(CannotJudge, match=r"[01] complete A/A launch pairs of 2"):
        noise_floor(experiment(ratios), METRIC, RULE)


def test_void_aa_runs_are_not_noise() -> None:
    good = experiment([[1.01, 0.99], [1.02, 1.0], [9.0, 9.0]])
    runs = changed(good, lambda m: m.launch_pair == 2, void_reasons=("2 of 48 requests failed",))
    assert noise_floor(runs, METRIC, RULE) == noise_floor(good[:8], METRIC, RULE)


def test_one_run_a_launch_has_no_run_sd() -> None:
    noise = noise_floor(experiment([[1.01], [0.99]]), METRIC, JudgeRule(runs_per_launch=1))
    assert noise.run_sd is None and noise.launch_df == 2


def test_every_experiment_teaches_a_degree_of_freedom_and_the_sd_converges() -> None:
    truth = 0.02
    noise = floor(sd=0.002, df=2)  # an A/A that was lucky tenfold
    for seed in range(60):
        noise = learn(noise, noisy(1.3, 2, truth * math.sqrt(2), seed), RULE)
    assert noise.launch_df == 62
    assert noise.launch_sd == pytest.approx(truth, rel=0.25)


def test_learning_looks_only_at_launch_pairs_that_every_experiment_has() -> None:
    two, four = experiment([[1.1, 1.1], [1.2, 1.2]]), experiment([[1.1, 1.1], [1.2, 1.2], [1.9, 1.9], [0.2, 0.2]])
    assert learn(floor(0.05), four, RULE) == learn(floor(0.05), two, RULE)
    assert learn(floor(0.05), experiment([[1.1, 1.1]]), RULE) == floor(0.05)
    assert learn(floor(0.05), changed(two, lambda m: m.arm == "B", metrics={}), RULE) == floor(0.05)


def test_one_wild_change_does_not_hide_the_rest_of_the_night() -> None:
    noise = learn_from_means(floor(0.01, df=10), [1.0, -1.0])  # 100 times the noise
    assert 0.01 < noise.launch_sd < 0.02


def test_an_aa_that_is_not_level_is_reported() -> None:
    (warning,) = noise_warnings(experiment([[1.05, 1.051], [1.049, 1.052]]), METRIC, RULE)
    assert "arm B was better by 5.05%" in warning
    assert noise_warnings(noisy(1.0, 3, 0.01, seed=1), METRIC, RULE) == ()


def test_an_order_effect_is_reported() -> None:
    (warning,) = noise_warnings(experiment([[1.05, 1 / 1.051], [1 / 1.049, 1.052]]), METRIC, RULE)
    assert "the second run of a pair was better by 5.05%" in warning
    assert noise_warnings(experiment([[1.0, 1.0], [1.0, 1.0]]), METRIC, RULE) == ()


def test_real_h200_twins_are_level_and_their_run_noise_is_what_was_published() -> None:
    """24 real runs: 12 interleaved pairs, cut into 6 stretches of 2 pairs. They are of one launch pair, so the floor
    made here is of runs, not of launches."""
    if not H200.exists():
        pytest.skip(f"{H200} is not beside this checkout")
    with (H200 / "aa_pairs.csv").open() as file:
        rows = list(csv.DictReader(file))
    at, runs = 0.0, []
    for row in rows:
        place = divmod(int(row["prompt_seed"]) - 1000, 2)
        speed, window = float(row["requests_per_s"]), float(row["duration_s"])
        arm: Literal["A", "B"] = "A" if row["engine"] == "A" else "B"
        runs.append(
            a_run(arm, *place, metrics={"requests_per_s": speed}, window_s=window, conditions={"started_at": at})
        )
        at += window + 0.01
    noise = noise_floor(runs, "requests_per_s", RULE)
    assert np.std(noise.pairs, ddof=1) == pytest.approx(0.0075, abs=0.0002)
    assert noise.launch_df == 6 and 0.003 < noise.launch_sd < 0.009
    assert noise_warnings(runs, "requests_per_s", RULE) == ()
