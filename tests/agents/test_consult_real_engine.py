"""The real vLLM as the language model. What it serves can do sums and nothing else: what counts is that a typed outcome
comes back in time and that the audit's own ranking stands."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from agents.llm import Client
from agents.llm_call import Answer, LlmSettings, Outcome
from agents.research.audit import Audit, audit
from agents.research.consult import consult
from agents.research.dossier import Dossier
from engine.server import Engine
from tests.agents.examples import dossier

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(600)]


def subject() -> tuple[Dossier, Audit]:
    about = dossier()
    return about, audit(about, ["batch_limits", "defaults"])


def test_a_typed_outcome_comes_back_and_our_ranking_stands(real: Engine) -> None:
    about, before = subject()
    settings = LlmSettings(base_url=real.base_url, model=real.served_name, timeout_s=120, answer_tokens=256)
    said = consult(before, about, Client(settings, {}))
    # Nonsense of the right form, cut at its length, garbage, no chat template, or a prompt too long for 1024 tokens.
    expected = {Outcome.ANSWERED, Outcome.CUT, Outcome.GARBAGE, Outcome.EMPTY, Outcome.WRONG_REQUEST}
    assert said.outcome in expected, said
    assert said.used.requests >= 1 and said.used.seconds <= 121
    assert (said.outcome is Outcome.ANSWERED) == (not said.reason)
    assert all(p.reader == "model" for p in said.proposals)
    assert subject()[1] == before
    real.check()


def test_a_model_that_the_server_does_not_have_is_one_line(real: Engine) -> None:
    about, before = subject()
    settings = LlmSettings(base_url=real.base_url, model="no-such-model", timeout_s=60, answer_tokens=256)
    said = consult(before, about, Client(settings, {}))
    assert said.outcome is Outcome.WRONG_REQUEST and "\n" not in said.reason


class Sum(BaseModel):
    model_config = ConfigDict(extra="forbid")
    total: int


def test_a_question_that_fits_is_answered_inside_its_schema(real: Engine) -> None:
    """An audit's message is longer than the 1024 tokens of this model; this one is not."""
    settings = LlmSettings(base_url=real.base_url, model=real.served_name, timeout_s=120, answer_tokens=256)
    came = Client(settings, {}).ask([{"role": "user", "content": "Fay has 6 cases of 17 cups. How many?"}], Sum)
    if isinstance(came, Answer):
        assert isinstance(came.value.total, int) and came.used.tokens_out > 0 and not came.used.guessed
    else:
        assert came.outcome in (Outcome.CUT, Outcome.GARBAGE, Outcome.EMPTY, Outcome.WRONG_REQUEST), came
