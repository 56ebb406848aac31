"""Asking a language model: whatever its server does, a typed outcome comes back in time and without the key."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import Any

import openai  # noqa: F401  its import takes a second, which is none of a question's time
import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from agents.llm import Client, key_for
from agents.llm_call import Answer, LlmSettings, Outcome, Refused
from agents.llm_text import one_line, read_object, safe
from tests.agents.scripted_llm import (
    KEY,
    Scripted,
    Turn,
    drips,
    echoes_the_key,
    endless,
    error,
    knows_no_schema,
    raw,
    says,
    scripted,
    slow,
)


class Fruit(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    pieces: int


GOOD = {"name": "pear", "pieces": 3}
QUESTION = [{"role": "user", "content": "Which fruit?"}]
FAST = {"timeout_s": 2.0, "backoff_s": 0.01}


def client(server: Scripted, key: str = KEY, **more: Any) -> Client:
    return Client(LlmSettings(base_url=server.url, model="m", **{**FAST, **more}), {"NIGHTGATE_LLM_API_KEY": key})


def ask(*turns: Turn, **more: Any) -> tuple[Answer[Fruit] | Refused, Scripted]:
    with scripted(*turns) as server:
        return client(server, **more).ask(QUESTION, Fruit), server


def test_a_good_answer_and_what_it_cost() -> None:
    came, server = ask(says(GOOD), price_in=2.0, price_out=10.0)
    assert isinstance(came, Answer) and came.value == Fruit(name="pear", pieces=3)
    used = came.used
    assert (used.requests, used.tokens_in, used.tokens_out, used.guessed, used.repaired) == (1, 100, 20, False, False)
    assert used.money == pytest.approx((100 * 2 + 20 * 10) / 1e6)
    (body,) = server.bodies
    assert body["model"] == "m" and body["temperature"] == 0 and body["max_tokens"] == 3000
    form = body["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["schema"]["additionalProperties"] is False
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("turn", "outcome", "said"),
    [
        (error(500, "a fault"), Outcome.SERVER_ERROR, "HTTP 500: a fault"),
        (error(507, "full"), Outcome.SERVER_ERROR, "HTTP 507: full"),
        (error(429, "slowly"), Outcome.RATE_LIMITED, "HTTP 429: slowly"),
        (error(429, "slowly", retry_after="3600"), Outcome.RATE_LIMITED, "it asks for a pause of 3,600 s"),
        (error(429, "slowly", retry_after="20"), Outcome.RATE_LIMITED, "would be past the wall time"),
        (error(404, "no model m"), Outcome.WRONG_REQUEST, "HTTP 404: no model m"),
        (error(400, "too long"), Outcome.WRONG_REQUEST, "HTTP 400: too long"),
        (raw(307, b"", location="http://elsewhere/v1"), Outcome.WRONG_REQUEST, "sends on to http://elsewhere/v1"),
        (says("I do not know."), Outcome.GARBAGE, "it holds no JSON object"),
        (says({"name": "pear"}), Outcome.GARBAGE, "pieces: Field required"),
        (says('{"name": "pear", "pieces": NaN}'), Outcome.GARBAGE, "no JSON object"),
        (says('{"a":' * 100_000), Outcome.GARBAGE, "no JSON object"),
        (says(""), Outcome.EMPTY, "an empty answer"),
        (says(None, reasoning_content="hm"), Outcome.EMPTY, "thought and then said nothing"),
        (says(None, refusal="I would rather not."), Outcome.DECLINED, "would not answer: I would rather not."),
        (says(None, end="content_filter"), Outcome.DECLINED, "a filter"),
        (says('{"name": "pe', end="length"), Outcome.CUT, "cut at its length of 20 tokens"),
        (raw(200, b"<html>hello</html>"), Outcome.GARBAGE, "no JSON object: '<html>"),
        (raw(200, {"error": "no such thing"}), Outcome.GARBAGE, "no choices: no such thing"),
        (raw(200, {"choices": [7], "usage": "much"}), Outcome.GARBAGE, "no choices"),
        (raw(200, b"\x1f\x8b", content_encoding="gzip"), Outcome.GARBAGE, "compressed"),
        (endless, Outcome.GARBAGE, "larger than 4 MiB"),
    ],
)
def test_every_bad_answer_is_one_word_and_one_line(turn: Turn, outcome: Outcome, said: str) -> None:
    came, _ = ask(turn)
    assert isinstance(came, Refused) and came.outcome is outcome, came
    assert said in came.reason and "\n" not in came.reason and len(came.reason) <= 300


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    came, server = ask(error(429, "slowly", retry_after="0.05"), error(503, "starting"), says(GOOD))
    assert isinstance(came, Answer) and came.used.requests == 3 and came.used.seconds >= 0.05
    _, server = ask(error(429, "slowly"))
    assert len(server.bodies) == 3
    _, server = ask(raw(429, {"error": {"message": "pay", "code": "insufficient_quota"}}))
    assert len(server.bodies) == 1


def test_one_repair_in_which_the_fault_is_told() -> None:
    came, server = ask(says({"name": "pear", "pieces": "many"}), says(GOOD))
    assert isinstance(came, Answer) and came.used.repaired and came.used.tokens_in == 200
    told = server.bodies[1]["messages"][-1]["content"]
    assert "pieces: Input should be a valid integer" in told
    _, server = ask(says("no"))
    assert len(server.bodies) == 2


def test_a_server_without_json_schema_is_asked_in_words_and_remembered() -> None:
    with scripted(knows_no_schema(says('Of course! {"name": "pear", "pieces": 3} Is that all?'))) as server:
        asking = client(server)
        first, second = asking.ask(QUESTION, Fruit), asking.ask(QUESTION, Fruit)
    assert isinstance(first, Answer) and isinstance(second, Answer) and not first.used.schema_enforced
    assert (first.used.requests, second.used.requests) == (2, 1)
    assert "Its JSON Schema: " in server.bodies[1]["messages"][-1]["content"]


def test_a_server_that_names_the_limit_otherwise() -> None:
    came, server = ask(error(400, "'max_tokens' is not supported, use 'max_completion_tokens'"), says(GOOD))
    assert isinstance(came, Answer) and came.used.schema_enforced
    assert server.bodies[1]["max_completion_tokens"] == 3000 and "max_tokens" not in server.bodies[1]


@pytest.mark.parametrize("turn", [slow(0.6), drips])
def test_no_answer_takes_longer_than_was_allowed(turn: Turn) -> None:
    began = time.monotonic()
    came, _ = ask(turn, timeout_s=0.3)
    assert isinstance(came, Refused) and came.outcome is Outcome.TOO_SLOW
    assert time.monotonic() - began < 0.6
    assert came.used.guessed and came.used.tokens_out == 3000  # it may have been paid for


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        came = Client(LlmSettings(base_url=url, model="m", **FAST), {}).ask(QUESTION, Fruit)
    assert isinstance(came, Refused) and came.outcome is Outcome.NO_CONNECTION
    assert f"nothing answers at {url}/v1" in came.reason and came.used.tokens_in == 0


def test_the_budget_ends_the_questions() -> None:
    with scripted(says(GOOD, {"prompt_tokens": 900, "completion_tokens": 100})) as server:
        asking = client(server, token_budget=1200, answer_tokens=500)
        assert isinstance(asking.ask(QUESTION, Fruit), Answer)
        came = asking.ask(QUESTION, Fruit)
        paying = client(server, price_in=1.0, price_out=1.0, money_budget=0.0012)
        assert isinstance(paying.ask(QUESTION, Fruit), Answer)
        broke = paying.ask(QUESTION, Fruit)
    assert isinstance(came, Refused) and came.outcome is Outcome.OVER_BUDGET and came.used.requests == 0
    assert "1,200 tokens: 1,000 are used and the question is about 4" in came.reason
    assert isinstance(broke, Refused) and "0.0012 in money: 0.0010 is used" in broke.reason
    assert server.bodies[0]["max_tokens"] == 500 and server.bodies[1]["max_tokens"] == 1195


@pytest.mark.parametrize("usage", [{"prompt_tokens": -5}, {"prompt_tokens": True, "completion_tokens": "3"}, [1]])
def test_without_a_usable_usage_the_characters_are_counted(usage: Any) -> None:
    came, _ = ask(says(GOOD, usage))
    assert isinstance(came, Answer) and came.used.guessed
    assert (came.used.tokens_in, came.used.tokens_out) == (4, 10)  # 12 and 29 characters, a third


# --- the key ------------------------------------------------------------------------------------------------------


def test_a_server_that_echoes_the_key_is_kept_from_telling_it(capfd: pytest.CaptureFixture[str]) -> None:
    came, _ = ask(echoes_the_key)
    assert isinstance(came, Refused) and came.outcome is Outcome.NOT_ALLOWED
    assert "no such key: Bearer [key]" in came.reason and KEY not in repr(came) + came.model_dump_json()
    hidden = KEY[:4] + "\u200b" + KEY[4:]
    told, server = ask(says({"name": f"{KEY} {KEY.upper()} {hidden}", "pieces": 1}))
    assert isinstance(told, Answer) and told.value.name == "[key] [key] [key]"
    escaped = '{"name": "' + "".join(f"\\u{ord(c):04x}" for c in KEY) + '", "pieces": 1}'
    told, _ = ask(says(escaped))
    assert isinstance(told, Answer) and told.value.name == "[key]"
    assert KEY not in repr(client(server)) and KEY not in "".join(capfd.readouterr())


def test_which_key_goes_where() -> None:
    both = {"NIGHTGATE_LLM_API_KEY": " ours\n", "OPENAI_API_KEY": "general"}
    assert key_for("http://far.example/v1", both) == "ours"
    general = {"OPENAI_API_KEY": "general"}
    assert key_for("https://far.example/v1", general) == key_for("http://127.0.0.1:8000/v1", general) == "general"
    assert key_for("http://far.example/v1", general) == ""  # not readable on the way


def test_nothing_else_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID"):
        monkeypatch.setenv(name, "private")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: private\nX-More: private")
    came, server = ask(says(GOOD), key="")
    assert isinstance(came, Answer)
    assert "private" not in repr(server.headers) and "authorization" not in server.headers[0]


def test_a_key_that_cannot_be_one_is_not_sent_and_not_told() -> None:
    came, server = ask(says(GOOD), key="two words")
    assert isinstance(came, Refused) and came.outcome is Outcome.NOT_ALLOWED and not server.bodies
    assert "two words" not in came.reason


@pytest.mark.parametrize(
    "bad",
    [
        {"base_url": "localhost:8000"},
        {"base_url": "ftp://x/v1"},
        {"base_url": f"http://me:{KEY}@x/v1"},
        {"base_url": f"http://x/v1?key={KEY}"},
        {"base_url": "http://x/v1", "money_budget": 1.0},
        {"base_url": "http://x/v1", "timeout_s": 0},
    ],
)
def test_settings_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LlmSettings(**{"model": "m", **bad})


# --- texts --------------------------------------------------------------------------------------------------------


def test_what_is_kept_of_a_text() -> None:
    assert one_line("a\x1b[31m\r\nb\u202e\x9b \ud800c") == "a[31m b c"
    assert one_line("x" * 50, 10) == "xxxxxxx..."
    assert safe("EMPTY emptying a%2Fkey%2Fof/9", ["EMPTY", "a/key/of/9"]) == "[key] emptying a%2Fkey%2Fof/9"
    assert safe("see a%2Fkey%2Fof%2F9", ["a/key/of/9"]) == "see [key]"


def test_the_first_object_of_a_text() -> None:
    assert read_object('```json\n{"a": {"b": 1}}\n``` and {"c": 2}') == {"a": {"b": 1}}
    assert read_object("{not this} {" * 60) is None and read_object('{"a": 1e999}') is None


def test_openai_is_not_imported_until_a_model_is_asked() -> None:
    check = "import sys, agents.llm, agents.audit_cli; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
