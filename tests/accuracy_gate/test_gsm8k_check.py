"""The rule, on made-up answers."""

import json

import pytest

from accuracy_gate.gsm8k.ask import Answers
from accuracy_gate.gsm8k.check import check
from contracts import GateResult
from tests.accuracy_gate.answers import answers, questions


def judged(candidate: str, reference: str | None = None, floor: float = 0.965, margin: float = 0.02) -> GateResult:
    """Marks as in answers.py. Where the candidate stopped (`.`), it was the harm that stopped it."""
    known = answers(reference) if reference is not None else None
    given = answers(candidate, "L002", stopped="." in candidate)
    result = check(questions(len(candidate)), known, given, floor, margin)
    json.dumps(result.statistic, allow_nan=False)  # the ledger keeps it
    assert "\n" not in result.reason and result.power and "\n" not in result.power
    return result


# --- the floor alone ----------------------------------------------------------------------------------------------


def test_a_score_just_under_the_floor_is_inconclusive_where_the_bare_cut_fails_it() -> None:
    """241 of 250 is what an unchanged engine once scored against its own floor of 96.5 %."""
    result = judged("+" * 241 + "-" * 9)
    assert result.outcome == "inconclusive" and result.statistic["bare_cut_passes"] is False
    assert judged("+" * 242 + "-" * 8).outcome == "pass"
    assert judged("+" * 220 + "-" * 30).outcome == "fail"


def test_an_error_is_no_wrong_answer_and_passes_nothing() -> None:
    result = judged("!" + "+" * 249)
    assert result.outcome == "inconclusive" and result.statistic["errors"] == 1
    assert result.reason == "1 of 250 questions got no answer; the first: http: HTTP 400: too long"
    assert judged("!" + "+" * 249, "+" * 250).outcome == "inconclusive"


def test_the_floor_s_power_is_said_in_numbers() -> None:
    power = judged("+" * 250).power
    assert power is not None and "5 points under the floor: 91% failed, 0% passed" in power


# --- paired -------------------------------------------------------------------------------------------------------


def test_equal_answers_pass_and_everything_is_stated() -> None:
    result = judged("+" * 245 + "-" * 5, "+" * 245 + "-" * 5)
    assert result.outcome == "pass"
    assert result.reason == (
        "245 of 250 right (98.0%), unchanged engine 245 of 250; 0 lost and 0 gained, 95% interval -1.5 to +1.5 points, "
        "margin 2 points; floor 96.5%"
    )
    assert result.mode == "mi355x_night; paired with L001, 8 at a time"
    said = result.statistic
    assert (said["pairs"], said["both_right"], said["losses"], said["gains"], said["both_wrong"]) == (250, 245, 0, 0, 5)
    assert said["questions_digest"] == questions(250).digest and said["flags"] == [] and said["p_mcnemar_exact"] == 1.0
    assert isinstance(said["power"], list) and [row["loss"] for row in said["power"]] == [0.0, 0.01, 0.02, 0.05]  # type: ignore[index,call-overload]


def test_a_broken_change_fails_after_the_questions_it_took() -> None:
    result = judged("-" * 16 + "." * 234, "+" * 250)
    assert result.outcome == "fail"
    assert result.reason == (
        "16 right answers lost and 0 gained in 16 questions, where the asking stopped: harm beyond chance "
        "(e-value 7.71e+03, limit 500)"
    )
    assert result.statistic["not_asked"] == 234 and result.statistic["bare_cut_passes"] is None
    assert result.statistic["first_lost"][0] == {"question": "q0", "was": "5", "is": "4"}  # type: ignore[index,call-overload]


def test_losses_that_trickle_in_fail_at_the_end() -> None:
    """Nine lost of 250, too few to stop the asking: the share is still above the floor, and harm is shown."""
    candidate = ("+" * 26 + "-") * 9 + "+" * 7
    result = judged(candidate, "+" * 250, floor=0.9)
    assert result.outcome == "fail" and result.statistic["losses"] == 9
    assert result.reason == (
        "9 right answers lost and 0 gained in 250 questions: harm beyond chance (exact McNemar, one-sided p 0.002, "
        "limit 0.002)"
    )


def test_a_loss_that_chance_could_do_is_neither_failed_nor_passed() -> None:
    result = judged("+" * 245 + "-" * 5, "+" * 250)
    assert (
        result.outcome == "inconclusive" and "a loss of 2 points is not ruled out; ask more questions" in result.reason
    )
    short = judged("+" * 100, "+" * 100)
    assert short.outcome == "inconclusive" and short.reason.endswith("ask at least 189 questions")


def test_an_unchanged_engine_under_the_floor_is_said_and_the_pairs_decide() -> None:
    weak = "+" * 230 + "-" * 20
    result = judged(weak, weak)
    assert result.outcome == "pass" and "the unchanged engine itself is under the floor 96.5%" in result.reason
    assert result.statistic["flags"] == [
        "the unchanged engine itself is under the floor 96.5%: 230 of 250 right (92.0%)"
    ]
    assert judged("-" * 12 + weak[12:], weak).outcome == "fail"


def test_a_candidate_under_a_floor_that_the_unchanged_engine_holds_does_not_pass() -> None:
    result = judged("+" * 385 + "-" * 15, "+" * 386 + "-" * 14)
    assert result.outcome == "inconclusive"
    assert result.reason.endswith("under the floor 96.5%, which the unchanged engine holds")


def test_an_engine_that_cannot_do_the_sums_passes_nothing() -> None:
    result = judged("-" * 250, "-" * 250)
    assert result.outcome == "inconclusive" and "too little to lose" in result.reason
    assert judged("!" * 250, "!" * 250).outcome == "inconclusive"
    assert judged("+" * 250, "!" * 250).reason.startswith("no question was answered by both engines")


def test_questions_left_out_without_harm_pass_nothing() -> None:
    result = judged("+" * 240 + "." * 10, "+" * 250)
    assert result.outcome == "inconclusive"
    assert result.reason == "10 of 250 questions were not asked, and no harm is shown so far"


def test_a_reference_with_errors_leaves_its_questions_out() -> None:
    result = judged("+" * 250, "!!" + "+" * 248)
    assert result.outcome == "pass" and result.statistic["pairs"] == 248
    assert result.statistic["flags"] == ["the unchanged engine did not answer 2 questions; they are left out"]


def test_rising_accuracy_is_a_suspicion_and_no_verdict() -> None:
    result = judged("+" * 250, "-" * 8 + "+" * 242)
    assert result.outcome == "pass"
    (flag,) = result.statistic["flags"]  # type: ignore[misc,union-attr]
    assert isinstance(flag, str) and flag.startswith(
        "accuracy rose beyond chance (8 gained, 0 lost, one-sided mid-p 0.002)"
    )


def test_answers_that_are_cut_are_counted_and_flagged() -> None:
    result = judged("+" * 248 + "cc", "+" * 250)
    assert (result.statistic["truncated"], result.statistic["no_number"]) == (2, 2)
    assert result.statistic["flags"] == ["2 answers cut at 2048 tokens, 0 of the unchanged engine's"]


def test_only_like_is_compared_with_like() -> None:
    asked, known = questions(3), answers("+++")
    with pytest.raises(ValueError, match="the candidate answered other questions"):
        check(asked, known, answers("++"))
    with pytest.raises(ValueError, match="the unchanged engine answered other questions"):
        check(questions(2), known, answers("++"))
    for fields in ({"style": "vllm_eval"}, {"max_tokens": 100}):
        with pytest.raises(ValueError, match="asked in unlike ways"):
            check(asked, known, Answers.model_validate(answers("+++").model_dump() | fields))
