"""The real vLLM and the arithmetic model: an unchanged engine passes the gate in a fresh process, a skipped layer and a
wrong end token do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from accuracy_gate import drift, gsm8k
from accuracy_gate.arithmetic.generate import problems
from accuracy_gate.arithmetic.measure import ask
from accuracy_gate.arithmetic.problem import final_number
from accuracy_gate.collect import TokenRun, collect
from accuracy_gate.drift_collect import DriftRun, collect_drift
from accuracy_gate.gate import calibrate, check
from accuracy_gate.gsm8k import Answers
from accuracy_gate.gsm8k.check import check as check_sums
from accuracy_gate.gsm8k.paired import stop_on_harm
from accuracy_gate.prompts import prompts
from accuracy_gate.reference import NightReference
from accuracy_gate.texts import fixed_texts
from engine.server import Engine
from tests.real import LIMITS, real_spec

WIDTH = 8
QUESTIONS = gsm8k.read("arithmetic:held_out_numbers", 48, seed=4)
STYLE = gsm8k.style("mi355x_night", max_tokens=200)

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


@contextmanager
def engines(folder: Path, faults: dict[str, str]) -> Iterator[list[Engine]]:
    """One for each launch ID, started together."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(Engine.start(real_spec(fault), launch_id, folder, LIMITS))
            for launch_id, fault in faults.items()
        ]
        for engine in running:
            engine.wait_ready()
        yield running


def tokens_of(engine: Engine) -> list[TokenRun]:
    concurrent = collect(engine, prompts(WIDTH), mode="concurrent", concurrency=WIDTH)
    return [concurrent, collect(engine, prompts(4), mode="alone")]


def texts_of(engine: Engine) -> list[DriftRun]:
    return [collect_drift(engine, fixed_texts(6), mode, WIDTH, decode=32) for mode in ("concurrent", "alone")]


@dataclass(frozen=True)
class Unchanged:
    """Two processes as a night's reference, and what a third one answered."""

    reference: NightReference
    tokens: list[TokenRun]
    texts: DriftRun
    answers: Answers


@pytest.fixture(scope="module")
def unchanged(real: Engine, tmp_path_factory: pytest.TempPathFactory) -> Unchanged:
    known = gsm8k.ask(real, QUESTIONS, STYLE, 16)
    assert not known.errors and known.correct >= 44, known.score
    with engines(tmp_path_factory.mktemp("unchanged"), {"L002": "", "L003": ""}) as (second, third):
        reference = NightReference(
            tokens=calibrate([*tokens_of(real), *tokens_of(second)]),
            drift=drift.calibrate([*texts_of(real), *texts_of(second)]),
            questions=QUESTIONS,
            answers=known,
        )
        assert "PLANTED FAULT" not in real.log_since(0) + second.log_since(0)
        return Unchanged(
            reference=reference,
            tokens=tokens_of(third),
            texts=collect_drift(third, fixed_texts(6), "concurrent", WIDTH),
            answers=gsm8k.ask(third, QUESTIONS, STYLE, 16, after_wave=stop_on_harm(known.answers)),
        )


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """A layer is skipped; answers end too early."""
    faults = {"L004": "skip_layer", "L005": "stop_token"}
    with engines(tmp_path_factory.mktemp("wrong"), faults) as (skips, cuts):
        yield skips, cuts


def test_an_unchanged_engine_passes_in_a_fresh_process(unchanged: Unchanged) -> None:
    reference = unchanged.reference
    assert reference.tokens.tokens_repeat["alone"], reference.tokens.mode  # measured: exact, log-probabilities too
    assert reference.drift is not None and reference.answers is not None
    for run in unchanged.tokens:
        result = check(reference.tokens, run)
        assert result.outcome == "pass", result.reason
    result = drift.check(reference.drift, unchanged.texts)
    assert result.outcome == "pass", result.reason
    assert not unchanged.answers.stopped and unchanged.answers.correct >= reference.answers.correct - 1


def test_a_skipped_layer_fails_in_each_check(unchanged: Unchanged, wrong: tuple[Engine, Engine]) -> None:
    reference, (skips, _) = unchanged.reference, wrong
    assert reference.drift is not None and reference.answers is not None
    assert "PLANTED FAULT active: skip_layer, decoder layer 4 of 8 is left out" in skips.log_since(0)
    one_wave = check(reference.tokens, collect(skips, prompts(WIDTH), mode="concurrent", concurrency=WIDTH))
    assert one_wave.outcome == "fail", one_wave.reason
    result = drift.check(reference.drift, collect_drift(skips, fixed_texts(6), "concurrent", WIDTH))
    assert result.outcome == "fail", result.reason
    answers = gsm8k.ask(skips, QUESTIONS, STYLE, 16, after_wave=stop_on_harm(reference.answers.answers))
    assert answers.stopped and answers.not_asked >= 16  # twelve straight losses are enough: one wave, or two
    result = check_sums(QUESTIONS, reference.answers, answers)
    assert result.outcome == "fail", result.reason


def test_a_wrong_end_token_cuts_answers_that_ignoring_it_does_not_show(wrong: tuple[Engine, Engine]) -> None:
    """The token gate ignores end tokens, so that it cannot see this fault; problems asked as a chat show it."""
    _, cuts = wrong
    assert cuts.log_since(0).count("PLANTED FAULT active: stop_token, token") == 1
    score = ask(cuts, problems("held_out_numbers", 16, seed=4))
    run = collect(cuts, prompts(4), mode="concurrent", concurrency=4)
    assert score.errors == 0 and score.right <= 12
    assert all("9" not in text and final_number(text) != problem.result for problem, text in score.wrong)
    assert [len(sequence.ids) for sequence in run.sequences] == [60] * 4
