"""Where two runs part, and what the position of parting says."""

import pytest

from accuracy_gate.collect import Position
from accuracy_gate.compare import compare, max_abs, mean_abs, rms
from tests.accuracy_gate.runs import position, run, sequence


def test_equal_runs_are_exact_with_no_drift() -> None:
    one = run(sequence("p0", [position(1, 2), position(3, 4)]))
    found = compare(one, one)
    assert found.exact and found.drifts == (0.0, 0.0) and found.shifts == (0.0, 0.0) and not found.divergences


def test_a_near_tie_that_fell_the_other_way() -> None:
    reference = run(sequence("p0", [position(1, 2), position(3, 4, lead=0.125), position(5, 6)]))
    candidate = run(sequence("p0", [position(1, 2), position(4, 3, lead=0.125), position(7, 8)]))
    (parted,) = compare(reference, candidate).divergences
    assert (parted.position, parted.reference_token, parted.candidate_token) == (1, 3, 4)
    assert parted.candidate_rank == parted.reference_rank == 2  # each other's second choice
    assert parted.top2_gap == parted.reference_gap == 0.125 and parted.size == 0.25


def test_nothing_after_the_first_divergence_counts() -> None:
    reference = run(sequence("p0", [position(1, 2), position(3, 4, logprob=-0.5)]))
    candidate = run(sequence("p0", [position(2, 1), position(3, 4, logprob=-9.0)]))
    found = compare(reference, candidate)
    assert found.drifts == () and len(found.shifts) == 1


def test_a_token_that_the_reference_did_not_list_shows_a_bound_on_the_shift() -> None:
    reference = run(sequence("p0", [position(1, 2, lead=1.0)]))  # lists 1, 2 and, 8 nats behind, 9
    candidate = run(sequence("p0", [position(77, 1, lead=2.0)]))
    (parted,) = compare(reference, candidate).divergences
    assert parted.candidate_rank is None and parted.reference_gap == 8.0 and parted.size == 10.0


def test_a_rival_that_the_candidate_no_longer_lists_claims_no_shift_that_was_not_seen() -> None:
    reference = run(sequence("p0", [position(1, 2, lead=7.0)]))
    candidate = run(sequence("p0", [position(1, 3, lead=1.0)]))  # 2 lies at least 8 nats behind: 1 more than before
    assert compare(reference, candidate).shifts == (1.0,)


def test_drift_and_shift_are_seen_while_tokens_agree() -> None:
    reference = run(sequence("p0", [position(1, 2, lead=1.0, logprob=-0.5), position(1, 2)]))
    candidate = run(sequence("p0", [position(1, 2, lead=1.5, logprob=-0.25), position(1, 2)]))
    found = compare(reference, candidate)
    assert found.drifts == (0.25, 0.0) and found.shifts == (0.5, 0.0)
    assert (mean_abs(found.drifts), max_abs(found.drifts)) == (0.125, 0.25)
    assert rms(found.shifts) == pytest.approx(0.5 / 2**0.5)


def test_a_truncated_answer_is_short_not_equal() -> None:
    reference = run(sequence("p0", [position(1, 2)] * 3), tokens=3)
    candidate = run(sequence("p0", [position(1, 2)] * 2, finish_reason="stop"), tokens=3)
    (prompt,) = compare(reference, candidate).prompts
    assert prompt.outcome == "short" and prompt.detail == "2 tokens, reference 3, asked 3"


def test_a_sampler_that_is_not_greedy_gives_itself_away_without_any_reference() -> None:
    reference = run(sequence("p0", [position(1, 2)]))
    wrong = position(1, 2).model_copy(update={"token": 2, "logprob": -1.5})
    (prompt,) = compare(reference, run(sequence("p0", [wrong]))).prompts
    assert prompt.outcome == "not_greedy" and "led by 1.000" in prompt.detail


def test_an_exact_tie_is_greedy_whichever_token_is_taken() -> None:
    tie = position(1, 2, lead=0.0)
    other = tie.model_copy(update={"token": 2})
    found = compare(run(sequence("p0", [tie])), run(sequence("p0", [other])))
    assert found.prompts[0].outcome == "diverged" and found.divergences[0].size == 0.0


def test_errors_are_their_own_class() -> None:
    reference = run(sequence("p0", [position(1, 2)]), sequence("p1", [position(1, 2)]))
    candidate = run(sequence("p0", [position(1, 2)]), sequence("p1", [], error="timeout", detail="after 2 s"))
    found = compare(reference, candidate)
    assert [p.outcome for p in found.prompts] == ["equal", "error"] and not found.exact
    assert found.prompts[1].detail == "candidate: timeout: after 2 s"


def test_another_reading_of_the_prompt_is_not_blamed_on_the_model() -> None:
    reference = run(sequence("p0", [position(1, 2)], prompt_tokens_hash="a"))
    candidate = run(sequence("p0", [position(2, 1)], prompt_tokens_hash="b"))
    assert compare(reference, candidate).prompts[0].outcome == "other_prompt"


def test_the_quick_form_is_compared_on_the_prompts_that_it_asked() -> None:
    reference = run(sequence("p0", [position(1, 2)]), sequence("p1", [position(1, 2)]))
    assert compare(reference, run(sequence("p1", [position(1, 2)]))).exact


def test_runs_that_were_not_asked_alike_are_refused() -> None:
    one = run(sequence("p0", [position(1, 2)]))
    with pytest.raises(ValueError, match="same prompts"):
        compare(one, run(sequence("q7", [position(1, 2)])))
    with pytest.raises(ValueError, match="1 and 2 tokens"):
        compare(one, run(sequence("p0", [position(1, 2)] * 2)))


def test_a_near_tie_does_not_end_what_was_promised_for_the_rest() -> None:
    """After two runs part, tokens can no longer be compared; that an answer is whole and greedy still can."""
    known = run(sequence("p", [position(1, 2), position(1, 2, lead=0.1), position(1, 2), position(1, 2)]))
    near_tie = position(2, 1, lead=0.1)
    cut = run(sequence("p", [position(1, 2), near_tie]), tokens=4)
    (prompt,) = compare(known, cut).prompts
    assert prompt.outcome == "short" and prompt.detail == "2 tokens, reference 4, asked 4"

    worse = Position(token=3, logprob=-7.5, top=((1, -0.5), (2, -1.5)))
    (prompt,) = compare(known, run(sequence("p", [position(1, 2), near_tie, worse, worse]))).prompts
    assert prompt.outcome == "not_greedy" and prompt.detail.startswith("position 2: took token 3")

    (prompt,) = compare(known, run(sequence("p", [position(1, 2), near_tie, position(4, 5), position(6, 5)]))).prompts
    assert prompt.outcome == "diverged"
