"""The rule on a toy engine whose truth is known; the real engine's numbers are in docs/accuracy_gate.md."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from accuracy_gate.collect import Mode, Position, TokenSequence
from accuracy_gate.drift import DriftReference, calibrate, check
from accuracy_gate.drift_collect import DriftRun

TEXTS, POSITIONS, WORDS, LISTED = 8, 120, 24, 20
Fault = Callable[[np.ndarray], np.ndarray]  # logits of one text, [positions, words], to faulty ones


def toy_run(
    noise_seed: int = 0,
    fault: Fault | None = None,
    mode: Mode = "alone",
    launch: str = "L1",
    texts: int = TEXTS,
    noise: float = 0.07,
) -> DriftRun:
    """`noise` is the standard deviation on each logit, in nats; equal seeds give equal noise. Logits come in steps."""
    rounding = np.random.default_rng(noise_seed)
    sequences = []
    for text in range(texts):
        model = np.random.default_rng([1, text])
        logits = model.normal(15, 4, (POSITIONS, WORDS))
        tokens = (logits + model.gumbel(0, 1, logits.shape)).argmax(1)  # as likely as the toy model finds them
        logits = fault(logits) if fault else logits
        logits = np.round((logits + rounding.normal(0, noise, logits.shape)) / 0.125) * 0.125
        logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        best = np.argsort(-logprobs, axis=1)[:, :LISTED]
        positions = tuple(
            Position.model_construct(
                token=int(token), logprob=float(row[token]), top=tuple((int(j), float(row[j])) for j in order)
            )
            for token, row, order in zip(tokens, logprobs, best, strict=True)
        )
        sequences.append(TokenSequence(prompt_id=f"t{text}", prompt_tokens_hash="same", positions=positions))
    return DriftRun(
        launch_id=launch, spec_id="toy", mode=mode, concurrency=1 if mode == "alone" else 8, texts_hash="toy",
        sequences=tuple(sequences), seconds=1.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> DriftReference:
    """Equal numbers in two processes; alone differs from concurrent by rounding."""
    return calibrate(
        [
            toy_run(1, launch="L1"),
            toy_run(1, launch="L2"),
            toy_run(2, mode="concurrent", launch="L1"),
            toy_run(2, mode="concurrent", launch="L2"),
        ]
    )


def test_calibration_measures_the_band_and_says_whether_processes_agree(reference: DriftReference) -> None:
    assert reference.mode == "; ".join(
        f"{mode}: two fresh processes agree to the last digit" for mode in ("alone 1", "concurrent 8")
    )
    assert reference.band == pytest.approx(0.11, abs=0.02)  # two noises of 0.07 and two roundings of 0.125 / sqrt(12)


def test_equal_numbers_pass_at_once(reference: DriftReference) -> None:
    result = check(reference, toy_run(1, launch="L3"))
    assert result.outcome == "pass" and result.reason == "all log-probabilities of 960 tokens are equal"
    assert result.check == "drift" and result.mode == "full: alone, 1 at a time"


def test_rounding_passes_and_tells_what_could_have_been_seen(reference: DriftReference) -> None:
    outcomes = [check(reference, toy_run(seed)) for seed in range(100, 106)]
    assert [result.outcome for result in outcomes] == ["pass"] * 6, [result.reason for result in outcomes]
    assert (
        outcomes[0].power and "960 positions in 8 texts. A fault fails that moves likelihood from" in outcomes[0].power
    )
    assert len(json.dumps(outcomes[0].statistic)) < 4000


def test_logits_that_lie_2_percent_farther_apart_fail_though_they_move_less_than_rounding_does(
    reference: DriftReference,
) -> None:
    result = check(reference, toy_run(9, fault=lambda logits: logits * 1.02))
    ratio = result.statistic["ratio"]
    assert result.outcome == "fail" and "sharpness moved by +0.0" in result.reason, result.reason
    assert isinstance(ratio, float) and ratio < 1.5


def test_a_fault_of_twice_the_size_of_rounding_fails_by_its_size(reference: DriftReference) -> None:
    more = np.random.default_rng(3)
    result = check(reference, toy_run(9, fault=lambda logits: logits + more.normal(0, 0.3, logits.shape)))
    assert result.outcome == "fail" and "over 2 is no rounding" in result.reason


def test_errors_pass_nothing_and_blame_nothing(reference: DriftReference) -> None:
    run = toy_run(1)
    lost = TokenSequence(prompt_id="t0", error="timeout", detail="after 120 s")
    broken = run.model_copy(update={"sequences": (lost, *run.sequences[1:])})
    result = check(reference, broken)
    assert result.outcome == "inconclusive" and "t0: candidate: timeout: after 120 s" in result.reason
    with pytest.raises(ValueError, match="did not read t0"):
        calibrate([run, broken])


def test_a_text_that_became_other_tokens_fails(reference: DriftReference) -> None:
    run = toy_run(1)
    other = run.sequences[0].model_copy(update={"prompt_tokens_hash": "other"})
    result = check(reference, run.model_copy(update={"sequences": (other, *run.sequences[1:])}))
    assert result.outcome == "fail" and "read t0 as other tokens" in result.reason


def test_fewer_texts_are_the_quick_form_and_like_is_compared_with_like(reference: DriftReference) -> None:
    assert check(reference, toy_run(1, texts=3)).mode.startswith("quick")
    with pytest.raises(ValueError, match="like with like: it has alone 1, concurrent 8, not concurrent 4"):
        check(reference, toy_run(2, mode="concurrent").model_copy(update={"concurrency": 4}))


def test_calibration_needs_two_processes() -> None:
    with pytest.raises(ValueError, match="two fresh processes"):
        calibrate([toy_run(1), toy_run(1)])
    with pytest.raises(ValueError, match="no runs"):
        calibrate([])
