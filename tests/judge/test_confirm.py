import pytest

from contracts import JudgeRule, Limit, Objective, VerdictWord
from judge.confirm import confirm
from tests.judge.nights import changed, experiment, floor

RULE = JudgeRule()


def test_the_claim_shrinks_to_what_fresh_launches_confirm() -> None:
    found = confirm(Objective(), floor(df=12), experiment([[1.49, 1.52], [1.51, 1.50]]), RULE, claimed=1.62)
    assert found.word is VerdictWord.KEEP
    assert found.reason == (
        "confirmed: output_tokens_per_s 1.50x (95 % interval 1.48 to 1.53, 2 fresh launch pairs); the kept changes "
        "multiply to 1.62x, more than is confirmed: the claim shrinks to 1.50x"
    )
    assert found.confidence == 0.95 and found.alpha_spent == 0


@pytest.mark.parametrize(
    ("ratios", "word", "says"),
    [
        ([[1.01, 0.99], [1.0, 1.01]], VerdictWord.INCONCLUSIVE, "the interval holds 1"),
        ([[0.8, 0.8], [0.8, 0.8]], VerdictWord.REVERT, "the final stack is worse than the clean base"),
        ([[1.5, 1.5]], VerdictWord.VOID, "1 complete launch pair; a confirmation needs 2"),
        ([], VerdictWord.VOID, "0 complete launch pairs"),
    ],
)
def test_what_is_not_confirmed_is_not_claimed(ratios: list[list[float]], word: VerdictWord, says: str) -> None:
    found = confirm(Objective(), floor(), experiment(ratios), RULE, claimed=1.5)
    assert found.word is word and says in found.reason
    assert "multiply" not in found.reason


def test_a_claim_within_the_interval_agrees_and_below_it_is_told() -> None:
    runs = experiment([[1.49, 1.52], [1.51, 1.50]])
    assert "which agrees" in confirm(Objective(), floor(df=12), runs, RULE, claimed=1.51).reason
    assert "less than is confirmed" in confirm(Objective(), floor(df=12), runs, RULE, claimed=1.2).reason


def test_a_faster_stack_that_breaks_a_limit_is_not_confirmed() -> None:
    objective = Objective(limits=(Limit(metric="ttft_ms_p95", at_most=500),))
    found = confirm(objective, floor(), experiment([[1.5] * 2] * 2, ttft_ms_p95=(400.0, 900.0)), RULE)
    assert (
        found.word is VerdictWord.REVERT
        and "ttft_ms_p95 900 of at most 500 ms, the incumbent has 400 ms" in found.reason
    )
    assert confirm(objective, floor(), experiment([[1.5] * 2] * 2), RULE).word is VerdictWord.VOID


def test_void_runs_confirm_nothing() -> None:
    runs = changed(experiment([[1.5] * 2] * 2), lambda m: m.launch_pair == 1, void_reasons=("late",))
    assert confirm(Objective(), floor(), runs, RULE).word is VerdictWord.VOID
