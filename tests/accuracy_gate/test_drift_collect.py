"""Texts, and answers in vLLM's shape; a real engine is asked in test_drift_real.py."""

import math
from pathlib import Path
from typing import Any

import pytest

from accuracy_gate.drift_collect import DriftRun, parse
from accuracy_gate.texts import fixed_texts


def test_texts_are_fixed_by_their_seed_and_the_first_of_many_are_the_few() -> None:
    texts = fixed_texts(6, seed=3, tokens=300)
    assert texts == fixed_texts(12, seed=3, tokens=300)[:6]
    assert texts != fixed_texts(6, seed=4, tokens=300)
    assert [text.kind for text in texts] == ["sums", "mixed"] * 3
    assert texts[0].text.startswith("Question: ") and "\nAnswer: " in texts[0].text and "#### " in texts[0].text


def test_lengths_differ_and_stay_under_what_was_asked() -> None:
    lengths = [len(text.text) for text in fixed_texts(3, tokens=300)]
    assert 580 < lengths[0] <= 600 and 400 < lengths[1] <= 420 and 220 < lengths[2] <= 240


def answer(**changes: Any) -> dict[str, Any]:
    """A text of three tokens in the shape of vLLM 0.32.0; `changes` replace parts of its choice."""
    listed = [
        None,
        {"7": {"logprob": -2.5, "rank": 3, "decoded_token": "a"}, "4": {"logprob": -0.2, "rank": 1}},
        {"9": {"logprob": -0.1, "rank": 1, "decoded_token": "b"}, "4": {"logprob": -3.0, "rank": 2}},
    ]
    return {"choices": [{"prompt_token_ids": [1, 7, 9], "prompt_logprobs": listed} | changes]}


def test_an_answer_of_vllm_is_read() -> None:
    first, second = parse("t0", answer()).positions
    assert (first.token, first.logprob, first.top) == (7, -2.5, ((4, -0.2), (7, -2.5)))
    assert second.token == 9 and second.top[0] == (9, -0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt_token_ids": None},
        {"prompt_token_ids": [1, 7]},
        {"prompt_logprobs": None},
        {"prompt_logprobs": [None, {}, {}]},
        {"prompt_logprobs": [None, {"7": {"logprob": math.nan}}, {"9": {"logprob": -0.1}}]},
        {"prompt_logprobs": [None, {"7": {"logprob": -9999.0}}, {"9": {"logprob": -0.1}}]},
        {"prompt_logprobs": [None, None, {"9": {"logprob": -0.1}}]},
    ],
)
def test_half_an_answer_is_malformed_never_a_number(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        parse("t0", answer(**changes))


def test_a_run_survives_a_file(tmp_path: Path) -> None:
    run = DriftRun(
        launch_id="L1", spec_id="made up", mode="concurrent", concurrency=8, texts_hash="made up",
        sequences=(parse("t0", answer()),), seconds=1.0,
    )  # fmt: skip
    run.save(tmp_path / "deep" / "run.json")
    assert DriftRun.load(tmp_path / "deep" / "run.json") == run
