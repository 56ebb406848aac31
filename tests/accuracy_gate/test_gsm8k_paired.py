"""The statistics of pairs: what a few answers can show, and how often they would blame an unchanged engine."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from accuracy_gate.gsm8k import paired, power
from accuracy_gate.gsm8k.paired import ALPHA_HARM, Pairs, pair
from tests.accuracy_gate.answers import answers


def test_pairs_are_the_questions_that_both_answered() -> None:
    found = pair(answers("+-+-+!.").answers, answers("++--!++").answers)
    assert found == Pairs(both_right=1, losses=1, gains=1, both_wrong=1, discordant=(True, False))
    assert found.n == 4 and found.difference == 0.0


# --- harm ---------------------------------------------------------------------------------------------------------


def test_twelve_straight_losses_stop_the_asking_and_nine_are_harm_at_the_end() -> None:
    assert paired.straight_losses() == 12
    assert paired.exact_harm(9, 0) == 1 / 512 <= ALPHA_HARM < paired.exact_harm(8, 0)
    stop = paired.stop_on_harm(answers("+" * 20).answers)
    assert [stop(answers("-" * n).answers) for n in (0, 1, 11, 12)] == [False, False, False, True]
    assert not stop(answers("+" * 20).answers) and not stop(answers("!" * 20).answers)


def test_harm_once_shown_stays_shown() -> None:
    """Whoever looks after every wave and whoever looks at the end only must agree."""
    swinging = [True] * 12 + [False] * 12
    assert paired.exact_harm(12, 12) > 0.5
    assert paired.highest_e(swinging) >= 1 / ALPHA_HARM
    assert paired.harm_shown(Pairs(both_right=0, losses=12, gains=12, both_wrong=0, discordant=tuple(swinging)))


@pytest.mark.parametrize(("losses", "gains"), [(0, 0), (1, 0), (5, 2), (3, 9), (40, 11)])
def test_the_e_process_is_the_likelihood_ratio_averaged_over_p_above_a_half(losses: int, gains: int) -> None:
    mean, _ = quad(lambda p: 2 * (2 * p) ** losses * (2 * (1 - p)) ** gains, 0.5, 1)
    assert np.exp(paired.log_e(losses, gains)) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("chance", [0.5, 0.4])
def test_the_e_process_of_an_unchanged_engine_does_not_grow(chance: float) -> None:
    """Over all paths of 10 discordant pairs its mean is 1 at P(loss) = 1/2, and less below: a fair bet at best."""
    mean = sum(
        chance ** sum(path) * (1 - chance) ** (10 - sum(path)) * float(np.exp(paired.log_e(sum(path), 10 - sum(path))))
        for path in itertools.product((0, 1), repeat=10)
    )
    assert mean == pytest.approx(1.0) if chance == 0.5 else mean < 1.0


def test_long_runs_do_not_overflow() -> None:
    assert paired.highest_e([True] * 3000) > 1e300
    assert paired.highest_e([False] * 3000) == 1.0


# --- two-sided, and gains -----------------------------------------------------------------------------------------


def test_mcnemar_by_hand() -> None:
    """Of 10 discordant pairs 1 or fewer go one way in 11 of 1024 cases, 1 exactly in 10."""
    assert paired.mcnemar_exact(9, 1) == paired.mcnemar_exact(1, 9) == pytest.approx(22 / 1024)
    assert paired.mcnemar_midp(9, 1) == pytest.approx(12 / 1024)
    assert paired.mcnemar_exact(0, 0) == paired.mcnemar_exact(5, 5) == paired.mcnemar_midp(5, 5) == 1.0


def test_rising_looks_at_gains_only() -> None:
    assert paired.rising(losses=1, gains=9) == pytest.approx(6 / 1024)  # 1 more extreme, half of 10
    assert paired.rising(losses=9, gains=1) > 0.99 and paired.rising(0, 0) == 0.5


# --- how large can the loss be ------------------------------------------------------------------------------------


def test_tango_s_interval_where_it_is_known() -> None:
    """His soft-lens trial: 44 patients, one discordant pair; and equal answers, where it is z^2 / (n + z^2)."""
    assert paired.score_interval(1, 0, 44, confidence=0.90) == pytest.approx((-0.0957, 0.0365), abs=5e-5)
    z2 = norm.isf(0.025) ** 2
    assert paired.score_interval(0, 0, 250) == pytest.approx((-z2 / (250 + z2), z2 / (250 + z2)))
    low, high = paired.score_interval(7, 3, 100)
    assert paired.score_interval(3, 7, 100) == pytest.approx((-high, -low))
    assert paired.score_interval(9, 0, 9)[0] == -1.0 and paired.score_interval(0, 9, 9)[1] == 1.0


def both_ways(n: int, losing: float, gaining: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All counts of losses and gains of n questions, and how likely each is."""
    losses, gains = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    weights = binom.pmf(losses, n, losing) * binom.pmf(gains, n - losses, gaining / (1 - losing))
    return losses, gains, np.where(losses + gains <= n, weights, 0.0)


@pytest.mark.parametrize(
    ("losing", "gaining"), [(0.01, 0.01), (0.05, 0.05), (0.03, 0.0), (0.07, 0.02), (0.0, 0.05), (0.2, 0.1)]
)
def test_the_interval_covers_the_truth(losing: float, gaining: float) -> None:
    """Exact, by enumeration: 95 % are promised, and 93 % is the least that 100 questions give."""
    losses, gains, weights = both_ways(100, losing, gaining)
    covered = np.abs(paired.score_z(losses, gains, 100, gaining - losing)) <= norm.isf(0.025)
    assert weights[covered].sum() >= 0.93


@pytest.mark.parametrize("background", [0.0, 0.02, 0.1])
def test_a_loss_of_the_margin_hardly_ever_passes(background: float) -> None:
    losses, gains, weights = both_ways(250, 0.02 + background / 2, background / 2)
    assert weights[paired.non_inferior(losses, gains, 250, margin=0.02)].sum() <= 0.03


def test_189_equal_answers_pass_a_margin_of_two_points() -> None:
    assert paired.fewest_to_pass(0.02) == 189
    assert paired.non_inferior(0, 0, 189, 0.02) and not paired.non_inferior(0, 0, 188, 0.02)
    low, _ = paired.score_interval(3, 1, 400)
    assert paired.non_inferior(3, 1, 400, -low + 1e-6) and not paired.non_inferior(3, 1, 400, -low - 1e-6)


# --- power --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [250, 1319])
@pytest.mark.parametrize("background", [0.0, 0.02, 0.1])
def test_an_unchanged_engine_is_failed_in_less_than_one_check_of_200(n: int, background: float) -> None:
    """Exact, at every discordance; 2 ALPHA_HARM = 0.4 % is the bound."""
    assert power.chances(n, 0.0, background, margin=0.02).fail <= 2 * ALPHA_HARM < 0.005


def test_the_chances_are_those_of_the_rule_itself() -> None:
    """150 simulated checks of 200 questions, each judged by the functions that judge a night."""
    n, loss, background, tries = 200, 0.05, 0.02, 150
    draw = np.random.default_rng(3)
    failed = passed = 0
    for _ in range(tries):
        kinds = draw.choice(3, size=n, p=[0.93, loss + background / 2, background / 2])
        found = Pairs(
            both_right=int(np.sum(kinds == 0)), losses=int(np.sum(kinds == 1)), gains=int(np.sum(kinds == 2)),
            both_wrong=0, discordant=tuple(bool(kind == 1) for kind in kinds if kind),
        )  # fmt: skip
        harm = paired.harm_shown(found)
        failed += harm
        passed += not harm and bool(paired.non_inferior(found.losses, found.gains, n, 0.1))
    expected = power.chances(n, loss, background, margin=0.1)
    for count, chance in ((failed, expected.fail), (passed, expected.passed)):
        assert abs(count / tries - chance) < 4 * np.sqrt(chance * (1 - chance) / tries)
    assert 0.2 < expected.fail < 0.8 and 0.1 < expected.passed < 0.8  # else the test would show nothing


def test_power_grows_with_the_loss_and_with_the_questions() -> None:
    fails = [row.fail for row in power.table(250, 0.01, 0.02)]
    assert fails == sorted(fails) and fails[-1] > 0.5
    assert power.chances(1319, 0.02, 0.01, 0.02).fail > power.chances(250, 0.02, 0.01, 0.02).fail
    assert power.chances(0, 0.02, 0.01, 0.02).passed == 0.0
    words = power.in_words(250, 0.0, "stated", power.table(250, 0.0, 0.02))
    assert words.startswith(
        "250 paired questions, 0.0% flip either way (stated): a true loss of 0 points is failed in 0.0%"
    )
    assert "and passed in 100%; of 1 in " in words
