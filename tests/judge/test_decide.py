"""Worked verdicts. Noise here is 1 % a launch pair unless a test says otherwise; every try may spend 0.025."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import JudgeRule, Limit, Measurement, Objective, Verdict, VerdictWord
from judge.decide import NeedMore, decide
from judge.noise import floor_from_ratios, learn_from_means
from judge.speed import Call, judge_speed
from judge.spending import alpha_for_try
from tests.judge.nights import METRIC, a_run, changed, experiment, floor

RULE = JudgeRule(max_launch_pairs=3)
PLAIN = Objective()
TPOT = Objective(limits=(Limit(metric="tpot_ms_p95", at_most=70),))


def ask(runs: list[Measurement], objective: Objective = PLAIN, **other: Any) -> Verdict | NeedMore:
    given_: dict[str, Any] = {"noise": floor(), "rule": RULE, "alpha": 0.025, "bound": None} | other
    return decide(objective, given_["noise"], runs, given_["rule"], given_["alpha"], given_["bound"])


def verdict(runs: list[Measurement], objective: Objective = PLAIN, **other: Any) -> Verdict:
    answer = ask(runs, objective, **other)
    assert isinstance(answer, Verdict), answer
    return answer


# --- the words ------------------------------------------------------------------------------------------------------


def test_a_clear_gain_is_kept_and_the_reason_reads_like_a_sentence() -> None:
    found = verdict(experiment([[1.70, 1.72], [1.71, 1.73]], tpot_ms_p95=(60.0, 41.0)), TPOT)
    assert found.word is VerdictWord.KEEP
    assert found.reason == (
        "output_tokens_per_s 1.71x (97.5 % interval 1.67 to 1.76, 2 launch pairs, 4 run pairs), "
        "above the smallest gain of 2 %; tpot_ms_p95 41 of at most 70 ms"
    )
    assert (found.launch_pairs, found.alpha_spent, found.confidence) == (2, 0.025, 0.975)
    assert found.interval is not None and found.ratio == pytest.approx(math.sqrt(math.prod(found.interval)))


def test_a_clear_loser_stops_after_one_launch_pair() -> None:
    found = verdict(experiment([[0.60, 0.61]]))
    assert found.word is VerdictWord.REVERT and found.reason.endswith(
        "1 launch pair, 2 run pairs): worse than the incumbent"
    )


def test_one_launch_pair_never_keeps() -> None:
    assert isinstance(ask(experiment([[9.0, 9.0]])), NeedMore)


def test_a_change_that_does_nothing_is_not_worth_keeping() -> None:
    found = verdict(experiment([[0.990, 0.991], [0.992, 0.990]]))
    assert found.word is VerdictWord.REVERT and "less than the smallest gain of 2 %" in found.reason


def test_a_gain_that_cannot_be_shown_in_time_is_given_up_early_and_says_what_could_be_shown() -> None:
    found = verdict(experiment([[1.02, 1.01], [0.99, 1.02]]), alpha=0.0001)
    assert found.word is VerdictWord.INCONCLUSIVE and "3 launch pairs could show no gain below 1.10x" in found.reason


def test_undecided_at_the_last_launch_pair() -> None:
    runs = [[1.05, 1.04], [1.00, 1.01], [1.05, 1.03]]
    assert isinstance(ask(experiment(runs[:2]), noise=floor(0.02)), NeedMore)
    found = verdict(experiment(runs), noise=floor(0.02))
    assert found.word is VerdictWord.INCONCLUSIVE and "neither shown to help nor shown not to" in found.reason


def test_sure_but_smaller_than_the_smallest_gain_is_not_kept() -> None:
    found = verdict(experiment([[1.015] * 2] * 3), noise=floor(0.002, 20))
    assert found.word is VerdictWord.REVERT and found.interval is not None and found.interval[0] > 1


def test_more_than_amdahl_allows_is_suspect_not_great() -> None:
    runs = experiment([[1.70, 1.72], [1.71, 1.73]])
    found = verdict(runs, bound=1.2)
    assert found.word is VerdictWord.INCONCLUSIVE and "suspect, not great: more than the 1.2x" in found.reason
    assert verdict(runs, bound=1.70).word is VerdictWord.KEEP  # a bound within the noise is not exceeded


# --- service limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tpot", "word", "says"),
    [
        (
            (60.0, 90.0),
            VerdictWord.REVERT,
            "tpot_ms_p95 90 of at most 70 ms, the incumbent has 60 ms: the change breaks",
        ),
        ((80.0, 78.0), VerdictWord.KEEP, "tpot_ms_p95 78 of at most 70 ms, the incumbent has 80 ms: missed by both"),
        ((80.0, 99.0), VerdictWord.REVERT, "missed before, and now missed by more"),
        ((80.0, 60.0), VerdictWord.KEEP, "tpot_ms_p95 60 of at most 70 ms (the incumbent has 80 ms)"),
        ((80.0, 80.5), VerdictWord.KEEP, "missed by both"),
        ((60.0, 70.0), VerdictWord.KEEP, "tpot_ms_p95 70 of at most 70 ms"),
    ],
)
def test_a_gain_does_not_excuse_a_broken_limit(tpot: tuple[float, float], word: VerdictWord, says: str) -> None:
    found = verdict(experiment([[1.7, 1.7], [1.7, 1.7]], tpot_ms_p95=tpot), TPOT)
    assert found.word is word and says in found.reason


def with_tpot(pairs: int, a: list[float], b: list[float]) -> list[Measurement]:
    """A clear gain, with these TPOTs in the order of the runs."""
    tpot = {"A": iter(a), "B": iter(b)}
    return [
        m.model_copy(update={"metrics": m.metrics | {"tpot_ms_p95": next(tpot[m.arm])}})
        for m in sorted(experiment([[1.7, 1.7]] * pairs), key=lambda m: (m.launch_pair, m.run))
    ]


def test_over_the_limit_by_noise_is_measured_on_and_then_not_kept() -> None:
    a, b = [68.0, 69.0, 70.0, 72.0, 68.0, 69.0], [72.0, 71.0, 71.0, 69.0, 73.0, 72.0]
    assert isinstance(ask(with_tpot(2, a, b), TPOT), NeedMore)
    found = verdict(with_tpot(3, a, b), TPOT)
    assert found.word is VerdictWord.INCONCLUSIVE and "over the limit, but not by more than noise" in found.reason


def test_under_the_limit_by_noise_is_measured_on_and_then_not_kept() -> None:
    a, b = [40.0, 41.0, 40.0, 41.0, 40.0, 41.0], [66.0, 71.0, 65.0, 72.0, 67.0, 72.0]
    assert isinstance(ask(with_tpot(2, a, b), TPOT), NeedMore)
    found = verdict(with_tpot(3, a, b), TPOT)
    assert found.word is VerdictWord.INCONCLUSIVE and "under the limit, but not by more than noise" in found.reason
    steady = [66.0, 67.0, 66.0, 67.0]  # the same median, and surely under 70
    assert verdict(with_tpot(2, a, steady), TPOT).word is VerdictWord.KEEP


def test_who_lay_near_the_limit_before_and_is_not_worse_now_is_not_blamed() -> None:
    near = [66.0, 71.0, 65.0, 72.0]
    found = verdict(with_tpot(2, near, [67.0, 70.0, 66.0, 71.0]), TPOT)
    assert found.word is VerdictWord.KEEP and "68.5 of at most 70 ms" in found.reason


def test_a_limit_that_was_not_measured_cannot_be_kept() -> None:
    found = verdict(experiment([[1.7, 1.7], [1.7, 1.7]]), TPOT)
    assert found.word is VerdictWord.VOID and "cannot judge: tpot_ms_p95 was not measured" in found.reason


# --- void -----------------------------------------------------------------------------------------------------------


def test_a_void_run_is_repeated_twice_then_the_experiment_is_void() -> None:
    runs = experiment([[1.7, 9.9]])
    runs[3] = runs[3].model_copy(update={"void_reasons": ("1 compile(s) inside the window",)})
    first = ask(runs)
    assert isinstance(first, NeedMore) and first.repeat == (0, 1) and "compile" in first.reason
    again, third = (
        [a_run(m.arm, 0, 1, prompt_seed=seed, void_reasons=m.void_reasons) for m in runs[2:]] for seed in (77, 78)
    )
    assert isinstance(ask([*runs, *again]), NeedMore)
    found = verdict([*runs, *again, *third])
    assert found.word is VerdictWord.VOID and found.alpha_spent == 0 and found.ratio is None


def test_a_void_launch_pair_may_also_be_repeated_by_a_fresh_one() -> None:
    void = changed(experiment([[1.7] * 2] * 4), lambda m: m.launch_pair < 2 and m.run == 1, void_reasons=("late",))
    assert verdict(void).word is VerdictWord.KEEP  # launch pairs 2 and 3
    thrice = changed(void, lambda m: m.launch_pair == 2, void_reasons=("late",))
    assert verdict(thrice).word is VerdictWord.VOID


def test_a_launch_pair_lost_with_the_loop_does_not_stop_the_experiment() -> None:
    whole = experiment([[1.7] * 2] * 3)
    assert verdict(whole[1:]).word is VerdictWord.KEEP  # launch pair 0 lost a run
    waiting = ask(whole[:-1])
    assert (
        isinstance(waiting, NeedMore) and waiting.repeat is None and "launch pair 2 does not have all" in waiting.reason
    )


def test_the_same_prompts_were_not_sent_to_both_arms() -> None:
    runs = changed(experiment([[1.7] * 2] * 2), lambda m: m.arm == "B" and m.launch_pair == 1, prompt_seed=5)
    answer = ask(runs)
    assert isinstance(answer, NeedMore) and answer.repeat is not None and "different prompts" in answer.reason


@pytest.mark.parametrize("bad", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_metric_without_a_number_is_void_not_a_number(bad: float | None) -> None:
    found = verdict(changed(experiment([[1.7] * 2] * 2), lambda m: m.arm == "B" and m.run == 1, metrics={METRIC: bad}))
    assert found.word is VerdictWord.VOID and found.reason.startswith("cannot judge: output_tokens_per_s")
    assert found.ratio is None and found.interval is None


def test_nothing_measured_yet() -> None:
    assert ask([]) == NeedMore(reason="nothing is measured yet")


def test_another_metrics_noise_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="noise floor is of output_tokens_per_s, the objective of ttft_ms_p50"):
        ask(experiment([[1.0, 1.0]]), Objective(metric="ttft_ms_p50"))


# --- properties -----------------------------------------------------------------------------------------------------

ratio = st.floats(0.5, 2.0)
rows = st.lists(st.tuples(ratio, ratio), min_size=1, max_size=3)
quick = settings(max_examples=40, deadline=None)


def word_of(answer: Verdict | NeedMore) -> str:
    return answer.word.value if isinstance(answer, Verdict) else "more"


@quick
@given(rows, st.permutations([0, 1, 2]))
def test_the_order_of_launch_pairs_and_of_runs_in_the_list_does_not_matter(data: list[Any], order: list[int]) -> None:
    whole = ask(experiment(data))
    assert ask(experiment(data)[::-1]) == whole
    again = ask(experiment([data[i] for i in order if i < len(data)]))
    assert word_of(again) == word_of(whole)
    if isinstance(whole, Verdict) and isinstance(again, Verdict):
        assert again.ratio == pytest.approx(whole.ratio)


@quick
@given(rows, st.floats(1e-3, 1e3))
def test_units_do_not_matter(data: list[Any], scale: float) -> None:
    runs = experiment(data)
    scaled = [m.model_copy(update={"metrics": {METRIC: (m.metrics[METRIC] or 0) * scale}}) for m in runs]
    assert word_of(ask(scaled)) == word_of(ask(runs))


@quick
@given(rows)
def test_swapping_the_arms_turns_the_gain_and_never_keeps_both_ways(data: list[Any]) -> None:
    table = np.log(np.array(data))
    there = judge_speed(table.tolist(), floor(), RULE, 0.025, None)
    back = judge_speed((-table).tolist(), floor(), RULE, 0.025, None)
    assert back.estimate == pytest.approx(-there.estimate)
    if there.call is Call.KEEP:
        assert back.call is Call.LOSER


@quick
@given(rows, st.floats(1.0, 50.0))
def test_more_noise_never_turns_revert_into_keep_nor_makes_a_keep(data: list[Any], times: float) -> None:
    quiet, loud = (word_of(ask(experiment(data), noise=floor(sd))) for sd in (0.01, 0.01 * times))
    if loud == "keep":
        assert quiet == "keep"


@quick
@given(rows, st.integers(0, 2), st.integers(0, 1), st.sampled_from("AB"), st.floats(0.01, 100.0))
def test_a_void_run_never_counts(data: list[Any], launch_pair: int, run: int, arm: str, speed: float) -> None:
    def marked(runs: list[Measurement]) -> list[Measurement]:
        hit = (min(launch_pair, len(data) - 1), run, arm)
        return changed(runs, lambda m: (m.launch_pair, m.run, m.arm) == hit, void_reasons=("late",))

    runs = experiment(data)
    other = changed(runs, lambda m: bool(m.void_reasons) or True, metrics={METRIC: 300.0 * speed})
    mixed = [o if v.void_reasons else r for o, v, r in zip(other, marked(runs), runs, strict=True)]
    assert ask(marked(mixed)) == ask(marked(runs))


@quick
@given(rows, st.floats(1e-9, 0.4), st.floats(1.0, 100.0))
def test_a_smaller_alpha_never_keeps_more(data: list[Any], alpha: float, less: float) -> None:
    if word_of(ask(experiment(data), alpha=alpha / less)) == "keep":
        assert word_of(ask(experiment(data), alpha=alpha)) == "keep"


def test_the_fewest_degrees_of_freedom_there_can_be() -> None:
    """Student's t with 1 + 1 degrees of freedom, by hand: 2 launch pairs, floor of 1 launch pair, 3 looks share
    0.03."""
    table = [[0.10, 0.10], [0.12, 0.12]]
    speed = judge_speed(table, floor(0.01, 1), JudgeRule(max_launch_pairs=4), 0.03, None)
    t = 6.964557  # 99 % quantile, 2 degrees of freedom
    sd = math.sqrt((0.01**2 + 0.0002) / 2)  # pooled 0.0122 < own 0.0141
    own = math.sqrt(0.0002)
    assert own > sd
    assert speed.lower == pytest.approx(0.11 - t * own / math.sqrt(2), rel=1e-6)
    assert speed.chance == pytest.approx(0.01)


def test_an_arm_with_the_better_place_is_not_a_gain() -> None:
    """B is 3 % better in the A/A already, steadily; 40 experiments on, the noise itself is well known and small."""
    noise = floor_from_ratios(METRIC, [[0.03, 0.03], [0.031, 0.03]])
    for _ in range(40):
        noise = learn_from_means(noise, [0.030, 0.031])
    found = verdict(experiment([[1.03, 1.031]] * 3), noise=noise, alpha=0.01)
    assert found.word is VerdictWord.INCONCLUSIVE
    assert verdict(experiment([[1.5, 1.5]] * 3), noise=noise, alpha=0.01).word is VerdictWord.KEEP


def test_absurd_alpha_and_noise_stay_finite_plain_json() -> None:
    found = verdict(experiment([[1.7, 1.2], [0.7, 1.9], [1.0, 1.5]]), alpha=1e-12, noise=floor(5.0))
    assert found.word is VerdictWord.INCONCLUSIVE
    assert found.interval is not None and all(map(math.isfinite, found.interval))
    assert Verdict.model_validate_json(found.model_dump_json()) == found


# --- the promise ----------------------------------------------------------------------------------------------------


def test_nights_of_changes_that_do_nothing_keep_one_in_at_most_one_night_of_twenty() -> None:
    """120 nights of 20 null tries with launches noisier than runs (where the floor has least to go on). Promised: 5
    %. benchmarks/judge_false_keeps.py does this for 2000 nights and other kinds of noise."""
    rng, rule, bad, launch_pairs = np.random.default_rng(7), JudgeRule(), 0, 0
    for _ in range(120):
        draw = rng.normal(0, 0.04, (82, 1)) + rng.normal(0, 0.03, (82, 2))
        noise = floor_from_ratios(METRIC, draw[80:].tolist())
        kept = False
        for j in range(20):
            rows_ = draw[4 * j : 4 * j + 4]
            for n in range(1, 5):
                call = judge_speed(rows_[:n].tolist(), noise, rule, alpha_for_try(0.05, j + 1), None).call
                launch_pairs += 1
                if call is not Call.MORE:
                    kept = kept or call is Call.KEEP
                    break
            noise = learn_from_means(noise, rows_[:2].mean(axis=1).tolist())
        bad += kept
    assert (
        bad <= 15
    )  # 5 % of 300; by chance more than that in a bound that holds exactly: 43 %, in the 1 % seen: < 1e-6
    assert launch_pairs / (120 * 20) < 2.5  # and null changes do not eat the night
