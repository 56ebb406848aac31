"""The rule on a toy engine whose truth is known; the real engine's numbers are in docs/accuracy_gate.md."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from accuracy_gate.collect import Mode, Position, TokenSequence
from accuracy_gate.drift import FLOAT_FLOOR, DriftReference, calibrate, check
from accuracy_gate.drift_collect import DriftRun
from contracts import GateResult

TEXTS, POSITIONS, WORDS, LISTED = 8, 100, 16, 8
STEP = 0.125
Fault = Callable[[int, np.ndarray], np.ndarray]  # (text, logits [positions, words]) to faulty logits


def toy_sequences(seed: int, fault: Fault | None, texts: int, noise: float, step: float) -> tuple[TokenSequence, ...]:
    rounding = np.random.default_rng(seed)
    made = []
    for text in range(texts):
        model = np.random.default_rng([7, 7, text])
        logits = model.normal(15, 4, (POSITIONS, WORDS))
        tokens = (logits + model.gumbel(0, 1, logits.shape)).argmax(1)  # as likely as the toy model finds them
        logits = fault(text, logits) if fault else logits
        logits = logits + rounding.normal(0, noise, logits.shape)
        logits = np.round(logits / step) * step if step else logits
        logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        best = np.argsort(-logprobs, axis=1)[:, :LISTED]
        values = np.take_along_axis(logprobs, best, axis=1).tolist()
        positions = tuple(
            Position.model_construct(token=token, logprob=float(row[token]), top=tuple(zip(order, listed, strict=True)))
            for token, row, order, listed in zip(tokens.tolist(), logprobs, best.tolist(), values, strict=True)
        )
        made.append(TokenSequence.model_construct(prompt_id=f"t{text}", prompt_tokens_hash="same", positions=positions))
    return tuple(made)


def toy_run(
    seed: int = 0,
    fault: Fault | None = None,
    mode: Mode = "concurrent",
    launch: str = "L1",
    texts: int = TEXTS,
    noise: float = 0.07,
    step: float = STEP,
) -> DriftRun:
    """`noise` is the standard deviation on each logit, in nats; equal seeds give equal noise. Logits come in steps."""
    return DriftRun.model_construct(
        launch_id=launch, spec_id="toy", mode=mode, concurrency=1 if mode == "alone" else 8, texts_hash="toy",
        sequences=toy_sequences(seed, fault, texts, noise, step), seconds=1.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> DriftReference:
    """Equal numbers in two processes; what was decoded differs from what is read by rounding."""
    one = toy_run(1, launch="L1")
    decoded = one.model_copy(update={"decoded": toy_run(2, texts=4).sequences, "read_back": one.sequences[:4]})
    return calibrate([decoded, one.model_copy(update={"launch_id": "L2"})])


@pytest.fixture(scope="module")
def with_truth(reference: DriftReference) -> DriftReference:
    """And with float32 recorded, from which this engine has no trend."""
    one, other = reference.runs[0], reference.runs[0].model_copy(update={"launch_id": "L2"})
    return calibrate([one, other], truth=toy_run(noise=0.0, step=0.0))


def reason_of(result: GateResult, outcome: str) -> str:
    assert result.outcome == outcome, result.reason
    return result.reason


def test_calibration_measures_rounding_between_decoding_and_reading(reference: DriftReference) -> None:
    assert reference.mode == "concurrent 8: two fresh processes agree to the last digit"
    assert reference.band_source == "decoded against read"
    assert reference.band == pytest.approx(0.11, abs=0.02)  # two noises of 0.07 and two roundings of 0.125 / sqrt(12)
    assert reference.allowed["sharpness"] == (-0.0008, 0.0008)


def test_equal_numbers_pass_at_once(reference: DriftReference) -> None:
    result = check(reference, toy_run(1, launch="L3"))
    assert reason_of(result, "pass") == "all log-probabilities of 800 tokens are equal"
    assert result.check == "drift" and result.mode == "full: concurrent, 8 at a time"


def test_rounding_passes_and_tells_what_could_have_been_seen(with_truth: DriftReference) -> None:
    for seed in (100, 101, 102):
        result = check(with_truth, toy_run(seed))
        assert "and without a trend" in reason_of(result, "pass")
    assert result.power and "800 positions in 8 texts. A fault fails that puts likelihood below -0.0" in result.power
    assert "excess from float32 above 1." in result.power
    assert len(json.dumps(result.statistic)) < 4000


def test_logits_that_lie_2_percent_farther_apart_fail_though_they_move_no_more_than_rounding_does(
    reference: DriftReference,
) -> None:
    result = check(reference, toy_run(9, lambda _, logits: logits * 1.02))
    assert reason_of(result, "fail").startswith("sharpness moved by +0.0")
    ratio = result.statistic["ratio"]
    assert isinstance(ratio, float) and ratio < 1.5


def test_a_fault_that_grows_with_the_position_fails_though_it_is_no_larger_than_rounding(
    reference: DriftReference,
) -> None:
    """As a rotary base does that is a little off."""

    def fault(text: int, logits: np.ndarray) -> np.ndarray:
        far = np.arange(POSITIONS)[:, None] / POSITIONS
        return logits + far * np.random.default_rng(text).normal(0, 0.2, logits.shape)

    result = check(reference, toy_run(9, fault))
    assert reason_of(result, "fail").startswith("growth moved by +0.")
    ratio = result.statistic["ratio"]
    assert isinstance(ratio, float) and ratio < 1.5


def test_a_fault_of_half_the_size_of_rounding_shows_in_the_distance_from_float32(
    reference: DriftReference, with_truth: DriftReference
) -> None:
    more = np.random.default_rng(3)
    run = toy_run(9, lambda _, logits: logits + more.normal(0, 0.08, logits.shape))
    reason_of(check(reference, run), "pass")
    assert reason_of(check(with_truth, run), "fail").startswith("excess from float32 is 1.")


def test_a_fault_of_twice_the_size_of_rounding_fails_by_its_size(reference: DriftReference) -> None:
    more = np.random.default_rng(3)
    result = check(reference, toy_run(9, lambda _, logits: logits + more.normal(0, 0.3, logits.shape)))
    assert reason_of(result, "fail").startswith("logits moved ") and "limit 2" in result.reason


def test_a_fault_in_one_place_of_one_text_fails(reference: DriftReference) -> None:
    def fault(text: int, logits: np.ndarray) -> np.ndarray:
        logits = logits.copy()
        if text == 5:
            logits[40:60] += np.random.default_rng(3).normal(0, 1.5, (20, WORDS))
        return logits

    assert "t5 from token 33 on they moved" in reason_of(check(reference, toy_run(1, fault)), "fail")


def test_what_computes_more_exactly_than_the_unchanged_engine_passes() -> None:
    """The engine lies 1 % off float32, and the candidate is exact."""

    def dull(_: int, logits: np.ndarray) -> np.ndarray:
        return logits * 0.99

    exact = toy_run(noise=0.0, step=0.0)
    runs = [toy_run(1, dull, launch=launch) for launch in ("L1", "L2")]
    assert "sharpness moved by +0.01" in reason_of(check(calibrate(runs), exact), "fail")
    knowing = calibrate(runs, truth=exact)
    assert knowing.allowed["sharpness"] == (-0.0008, pytest.approx(0.01, abs=0.001))
    assert knowing.band_source == "against float32"
    reason_of(check(knowing, exact), "pass")


def test_float32_may_round_otherwise_though_that_grows_with_the_position_and_a_small_fault_still_fails() -> None:
    """Sums of more terms round more: in float32 a few millionths of a nat, of which nobody need be afraid."""
    exact = [toy_run(1, noise=0.0, step=0.0, launch=launch) for launch in ("L1", "L2")]
    single = calibrate(exact)
    assert single.band == FLOAT_FLOOR

    def rounding(text: int, logits: np.ndarray) -> np.ndarray:
        far = np.arange(POSITIONS)[:, None] / POSITIONS
        return logits + far * np.random.default_rng(text).normal(0, 5e-6, logits.shape)

    reason_of(check(single, toy_run(fault=rounding, noise=0.0, step=0.0)), "pass")
    slightly = check(single, toy_run(fault=lambda _, logits: logits * 1.0005, noise=0.0, step=0.0))
    assert "times rounding" in reason_of(slightly, "fail")


def test_errors_pass_nothing_and_blame_nothing(reference: DriftReference) -> None:
    run = toy_run(1)
    lost = TokenSequence(prompt_id="t0", error="timeout", detail="after 120 s")
    broken = run.model_copy(update={"sequences": (lost, *run.sequences[1:])})
    assert "t0: candidate: timeout: after 120 s" in reason_of(check(reference, broken), "inconclusive")
    with pytest.raises(ValueError, match="did not read t0"):
        calibrate([run, broken])


def test_a_text_that_became_other_tokens_fails(reference: DriftReference) -> None:
    run = toy_run(1)
    other = run.sequences[0].model_copy(update={"prompt_tokens_hash": "other"})
    result = check(reference, run.model_copy(update={"sequences": (other, *run.sequences[1:])}))
    assert "read t0 as other tokens" in reason_of(result, "fail")


def test_fewer_texts_are_the_quick_form_and_like_is_compared_with_like(with_truth: DriftReference) -> None:
    quick = check(with_truth, toy_run(7, texts=3))
    assert quick.mode == "quick: concurrent, 8 at a time, and distance from float32" and quick.outcome == "pass"
    with pytest.raises(ValueError, match="like with like: it has concurrent 8, not concurrent 4"):
        check(with_truth, toy_run(2).model_copy(update={"concurrency": 4}))


def test_without_a_measured_rounding_a_share_of_the_logits_step_is_assumed() -> None:
    still = calibrate([toy_run(1, texts=2), toy_run(1, texts=2, launch="L2")])
    assert still.band == 0.2 * STEP and "nothing was measured" in still.band_source


def test_calibration_needs_two_processes() -> None:
    with pytest.raises(ValueError, match="two fresh processes"):
        calibrate([toy_run(1, texts=1), toy_run(1, texts=1)])
    with pytest.raises(ValueError, match="no runs"):
        calibrate([])


def test_best_tokens_that_are_quite_others_are_no_small_move(reference: DriftReference) -> None:
    """With nothing in common no move can be taken, and nothing may be called equal."""
    known = reference.runs[0]

    def other(one: Position) -> Position:
        top = tuple((token + 1000, value) for token, value in one.top)
        return Position.model_construct(token=one.token, logprob=one.logprob - 5, top=top)

    moved = tuple(
        sequence.model_copy(update={"positions": tuple(other(one) for one in sequence.positions)})
        for sequence in known.sequences
    )
    reason = reason_of(check(reference, known.model_copy(update={"sequences": moved})), "fail")
    assert f"at {TEXTS * POSITIONS} of {TEXTS * POSITIONS} positions the best tokens are quite others" in reason


def test_one_text_has_no_spread_to_find_a_trend_by(reference: DriftReference) -> None:
    alone = toy_run(5, texts=1)
    result = check(reference, alone)
    assert result.outcome == "pass", result.reason
