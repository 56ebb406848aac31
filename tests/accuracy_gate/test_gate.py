"""The rule on toy runs whose truth is known; the real engine's numbers are in docs/accuracy_gate.md."""

import json
import random

import pytest

from accuracy_gate.collect import TokenRun
from accuracy_gate.gate import BULK_FAIL, BULK_PASS, PEAK_FAIL, GateReference, calibrate, check, peak_limit
from tests.accuracy_gate.toy import Fault, toy_run


def calibrated(noise: float = 0.07) -> GateReference:
    """Equal tokens in two processes; alone differs from concurrent by rounding."""
    return calibrate(
        [
            toy_run(1, noise, launch="L1"),
            toy_run(1, noise, launch="L2"),
            toy_run(2, noise, mode="alone", launch="L1"),
            toy_run(2, noise, mode="alone", launch="L2"),
        ]
    )


@pytest.fixture(scope="module")
def reference() -> GateReference:
    return calibrated()


def test_calibration_says_the_mode_in_words_and_measures_the_band(reference: GateReference) -> None:
    assert reference.tokens_repeat == {"concurrent": True, "alone": True}
    assert "concurrent: exact (two fresh processes gave equal tokens)" in reference.mode
    assert reference.band.step == 0.125
    assert reference.band.shift_rms == pytest.approx(0.14, abs=0.03)  # two noises on each of two logits: 0.07 * 2
    assert reference.band.reason == "measured: alone against concurrent"


def test_an_engine_that_does_not_repeat_is_compared_statistically_and_passes_itself() -> None:
    moody = calibrate([toy_run(1, launch="L1"), toy_run(5, launch="L2")])
    assert moody.tokens_repeat == {"concurrent": False}
    assert "statistical (two fresh processes part in" in moody.mode
    assert check(moody, toy_run(6)).outcome == "pass"


def test_equal_tokens_pass_at_once(reference: GateReference) -> None:
    result = check(reference, toy_run(1))
    assert result.outcome == "pass" and result.reason == "all 1440 tokens of 24 prompts are equal"
    assert result.mode == "full: concurrent, 8 at a time; exact, and near-ties pass"


def test_rounding_that_changes_most_sequences_passes_and_the_evidence_is_kept(reference: GateReference) -> None:
    result = check(reference, toy_run(77))
    parted = result.statistic["diverged"]
    assert result.outcome == "pass" and isinstance(parted, int) and parted > 12
    assert "near-tie" in result.reason
    worst = result.statistic["worst"]
    assert isinstance(worst, list) and len(worst) == 5 and isinstance(worst[0], dict)
    assert {"prompt_id", "position", "reference_token", "candidate_token", "top2_gap", "size"} <= set(worst[0])
    assert len(json.dumps(result.statistic)) < 4000


def test_an_unchanged_engine_is_almost_never_blamed(reference: GateReference) -> None:
    """Fresh rounding noise in each run, so every run parts from the reference somewhere."""
    outcomes = [check(reference, toy_run(seed, prompts=24)).outcome for seed in range(1000, 1060)]
    assert outcomes.count("pass") == 60


def more_noise(factor: float, noise: float = 0.07) -> Fault:
    rng = random.Random(3)

    def fault(prompt: int, position: int, logits: list[float]) -> None:
        for index in range(len(logits)):
            logits[index] += rng.gauss(0, noise * factor)

    return fault


@pytest.mark.parametrize(("extra", "outcome"), [(0.3, "pass"), (2.0, "inconclusive"), (5.0, "fail"), (20.0, "fail")])
def test_the_bulk_tells_rounding_from_a_fault_and_admits_what_lies_between(
    reference: GateReference, extra: float, outcome: str
) -> None:
    """Extra noise in the candidate only, relative to each logit's rounding: R = sqrt(1 + extra^2 / 2)."""
    result = check(reference, toy_run(9, fault=more_noise(extra)))
    assert result.outcome == outcome, result.reason


def test_one_wrong_token_in_one_prompt_is_a_peak(reference: GateReference) -> None:
    def fault(prompt: int, position: int, logits: list[float]) -> None:
        if (prompt, position) == (5, 30):
            logits[4] += 20

    result = check(reference, toy_run(1, fault=fault))
    assert result.outcome == "fail" and "p5 moved a lead by" in result.reason and "at position 30" in result.reason


def test_wrong_from_the_40th_token_on_is_seen_though_most_positions_are_right(reference: GateReference) -> None:
    def fault(prompt: int, position: int, logits: list[float]) -> None:
        if position >= 40:
            logits[logits.index(max(logits))] -= 5

    assert check(reference, toy_run(1, fault=fault)).outcome == "fail"


def test_the_quick_form_sees_a_broken_model_in_a_few_prompts(reference: GateReference) -> None:
    result = check(reference, toy_run(9, prompts=4, fault=more_noise(20)))
    assert result.outcome == "fail" and result.mode.startswith("quick")
    assert check(reference, toy_run(1, prompts=4)).outcome == "pass"


def test_sequences_that_part_at_once_say_too_little_to_pass() -> None:
    """Every first token is a near-tie that falls the other way: no peak, but no evidence about the rest either."""

    def first_token(*levels: float) -> Fault:
        def fault(prompt: int, position: int, logits: list[float]) -> None:
            if position == 0:
                logits[:2] = levels

        return fault

    tie = first_token(20.125, 20.0)
    close = calibrate([toy_run(1, fault=tie, launch="L1"), toy_run(2, fault=tie, launch="L2")])
    result = check(close, toy_run(1, fault=first_token(20.0, 20.125)))
    assert result.outcome == "inconclusive" and "so early that only 24 of 1440 positions" in result.reason


def test_an_engine_without_visible_rounding_still_leaves_room_for_one_step_of_its_logits() -> None:
    """One request at a time, so alone and concurrent are the same and nothing was measured."""
    still = calibrate([toy_run(1, launch="L1"), toy_run(1, launch="L2")])
    assert still.band.measured_rms == 0 and still.band.shift_rms == 0.125
    assert still.band.reason == "one step of the logits (0.125)"
    assert check(still, toy_run(2)).outcome == "pass"


def test_errors_pass_nothing_and_blame_nothing(reference: GateReference) -> None:
    run = toy_run(1)
    lost = run.sequences[3].model_copy(update={"positions": (), "error": "timeout", "detail": "after 120 s"})
    broken = run.model_copy(update={"sequences": (*run.sequences[:3], lost, *run.sequences[4:])})
    result = check(reference, broken)
    assert result.outcome == "inconclusive" and "p3: candidate: timeout: after 120 s" in result.reason
    with pytest.raises(ValueError, match="did not answer p3"):
        calibrate([run, broken])


def test_truncated_answers_fail_though_every_token_is_right(reference: GateReference) -> None:
    run = toy_run(1)
    short = run.sequences[0].model_copy(update={"positions": run.sequences[0].positions[:59]})
    result = check(reference, run.model_copy(update={"sequences": (short, *run.sequences[1:])}))
    assert result.outcome == "fail" and "shorter than asked" in result.reason


def test_a_token_that_the_reference_does_not_list_is_not_passed(reference: GateReference) -> None:
    run = toy_run(1)
    first = run.sequences[0].positions[-1]
    # Five tokens within a hair, and the candidate takes a sixth.
    flat = first.model_copy(update={"top": tuple((token, -1.6) for token in range(5)), "token": 0, "logprob": -1.6})
    other = flat.model_copy(update={"top": ((50, -1.6), *flat.top[:4]), "token": 50})

    def ending(position: object) -> object:
        last = run.sequences[0].model_copy(update={"positions": (*run.sequences[0].positions[:-1], position)})
        return run.model_copy(update={"sequences": (last, *run.sequences[1:])})

    flat_reference = reference.model_copy(update={"runs": (ending(flat),)})
    result = check(flat_reference, ending(other))  # type: ignore[arg-type]
    assert result.outcome == "inconclusive" and "does not list" in result.reason


def test_like_is_compared_with_like(reference: GateReference) -> None:
    with pytest.raises(ValueError, match="like with like: it has concurrent 8 x 60 tokens, alone 1 x 60 tokens"):
        check(reference, toy_run(1).model_copy(update={"concurrency": 4}))


def test_several_widths_are_calibrated_and_each_is_compared_with_its_own() -> None:
    def at(width: int, noise_seed: int, launch: str, prompts: int = 8) -> TokenRun:
        return toy_run(noise_seed, prompts=prompts, launch=launch).model_copy(update={"concurrency": width})

    many = calibrate(
        [at(8, 1, "L1"), at(8, 1, "L2"), at(12, 3, "L1", 12), at(12, 4, "L2", 12)]
        + [toy_run(2, prompts=4, mode="alone", launch=launch) for launch in ("L1", "L2")]
    )
    assert many.tokens_repeat == {"concurrent": False, "alone": True}
    assert many.mode.startswith(
        "concurrent 8: exact (two fresh processes gave equal tokens); concurrent 12: statistical"
    )
    names = [spread.name for spread in many.band.spreads]
    assert names[-2:] == ["alone against concurrent 8", "alone against concurrent 12"]
    assert check(many, at(12, 3, "L3", 12)).mode.startswith("full: concurrent, 12 at a time")
    with pytest.raises(ValueError, match="mode concurrent 12 was collected in one process only"):
        calibrate([at(8, 1, "L1"), at(8, 1, "L2"), at(12, 3, "L1")])


def test_calibration_needs_two_processes() -> None:
    with pytest.raises(ValueError, match="two fresh processes"):
        calibrate([toy_run(1), toy_run(1)])
    with pytest.raises(ValueError, match="no runs"):
        calibrate([])


def test_power_is_told_in_nats_and_in_words(reference: GateReference) -> None:
    power = check(reference, toy_run(77)).power
    band = reference.band.shift_rms
    assert power and f"by {band * (BULK_FAIL**2 - 1) ** 0.5:.2f} nats rms fails" in power
    assert f"by {band * (BULK_PASS**2 - 1) ** 0.5:.2f} is not passed" in power and "batches above 8" in power


def test_the_peak_limit_grows_with_the_positions_looked_at(reference: GateReference) -> None:
    few, many = (peak_limit(reference.band, n, PEAK_FAIL) for n in (30, 3000))
    assert few < many < 1.5 * few
