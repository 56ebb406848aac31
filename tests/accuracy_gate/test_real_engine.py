"""The real vLLM and the arithmetic model: an unchanged engine passes the gate in a fresh process, a skipped layer does
not. Two engines at a time, as a night has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from accuracy_gate import drift, gsm8k
from accuracy_gate.arithmetic.measure import spec
from accuracy_gate.collect import TokenRun, collect
from accuracy_gate.drift_collect import DriftRun, collect_drift
from accuracy_gate.gate import calibrate, check
from accuracy_gate.gsm8k.check import check as check_sums
from accuracy_gate.gsm8k.paired import stop_on_harm
from accuracy_gate.prompts import prompts
from accuracy_gate.reference import NightReference
from accuracy_gate.texts import fixed_texts
from contracts import Limits
from engine.server import Engine

ROOT = Path(__file__).parents[2]
LIMITS = Limits(engine_start_s=300, engine_stop_s=30)
WIDTH = 8
QUESTIONS = gsm8k.read("arithmetic:held_out_numbers", 48, seed=4)
STYLE = gsm8k.style("mi355x_night", max_tokens=200)

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


@contextmanager
def engines(folder: Path, faults: dict[str, str]) -> Iterator[list[Engine]]:
    """One for each launch ID, started together; all with the plugin of the planted faults on their path."""
    chosen = ROOT / ".engine-python"
    if not chosen.exists():
        pytest.skip("no engine here: run `make setup`")
    base = spec(Path(chosen.read_text().strip()), dtype="float32")  # bfloat16 crawls on a CPU without AVX-512
    with ExitStack() as stack:
        running = []
        for launch_id, fault in faults.items():
            env = base.env | ({"NIGHTGATE_PLANTED_FAULT": fault} if fault else {})
            one = base.model_copy(update={"env": env, "plugin_paths": (str(ROOT / "tests" / "planted"),)})
            running.append(stack.enter_context(Engine.start(one, launch_id, folder, LIMITS)))
        for engine in running:
            engine.wait_ready()
        yield running


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> NightReference:
    tokens: list[TokenRun] = []
    texts: list[DriftRun] = []
    with engines(tmp_path_factory.mktemp("unchanged"), {"L001": "", "L002": ""}) as running:
        for engine in running:
            tokens += [collect(engine, prompts(WIDTH), mode="concurrent", concurrency=WIDTH)]
            tokens += [collect(engine, prompts(4), mode="alone")]
            texts += [collect_drift(engine, fixed_texts(6), m, WIDTH, decode=32) for m in ("concurrent", "alone")]
            assert "PLANTED FAULT" not in engine.log_since(0)
        answers = gsm8k.ask(running[0], QUESTIONS, STYLE, 16)
    assert not answers.errors and answers.correct >= 44, answers.score
    return NightReference(tokens=calibrate(tokens), drift=drift.calibrate(texts), questions=QUESTIONS, answers=answers)


def test_an_unchanged_engine_passes_and_a_skipped_layer_fails(reference: NightReference, tmp_path: Path) -> None:
    assert reference.tokens.tokens_repeat["alone"], reference.tokens.mode  # measured: exact, log-probabilities too
    assert reference.drift is not None and reference.answers is not None
    with engines(tmp_path, {"L003": "", "L004": "skip_layer"}) as (unchanged, wrong):
        for run in (
            collect(unchanged, prompts(WIDTH), mode="concurrent", concurrency=WIDTH),
            collect(unchanged, prompts(4), mode="alone"),
        ):
            result = check(reference.tokens, run)
            assert result.outcome == "pass", result.reason
        result = drift.check(reference.drift, collect_drift(unchanged, fixed_texts(6), "concurrent", WIDTH))
        assert result.outcome == "pass", result.reason
        stop = stop_on_harm(reference.answers.answers)
        answers = gsm8k.ask(unchanged, QUESTIONS, STYLE, 16, after_wave=stop)
        assert not answers.stopped and answers.correct >= reference.answers.correct - 1

        assert "PLANTED FAULT active: skip_layer, decoder layer 4 of 8 is left out" in wrong.log_since(0)
        one_wave = check(reference.tokens, collect(wrong, prompts(WIDTH), mode="concurrent", concurrency=WIDTH))
        assert one_wave.outcome == "fail", one_wave.reason
        result = drift.check(reference.drift, collect_drift(wrong, fixed_texts(6), "concurrent", WIDTH))
        assert result.outcome == "fail", result.reason
        answers = gsm8k.ask(wrong, QUESTIONS, STYLE, 16, after_wave=stop)
    assert answers.stopped and answers.not_asked >= 16  # twelve straight losses are enough: one wave, or two
    result = check_sums(QUESTIONS, reference.answers, answers)
    assert result.outcome == "fail", result.reason
