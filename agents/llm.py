"""One question to a language model behind an OpenAI-compatible server, and a typed answer: the value, or in one word
and one line why there is none. Whatever the server does, ask() returns within its wall time.

The package `openai` is imported by ask() and nowhere else. It speaks the protocol; retries, time and budget are ours,
because its own would not fit into a bound.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from agents.llm_text import one_line, read_object, safe
from contracts import Frozen

if TYPE_CHECKING:
    from agents.llm_wire import Wire

KEYS = ("NIGHTGATE_LLM_API_KEY", "OPENAI_API_KEY")  # environment variables, the first that is set counts
HERE = ("localhost", "127.0.0.1", "::1")
# An English text has about 4 characters a token, source code and numbers about 3 (judged): used before a request and
# where a server reports no usage.
CHARACTERS_A_TOKEN = 3
LEAST_ANSWER = 256  # tokens; with less room in the budget nothing is asked
MOST_RETRIES = 2  # of one request, where the server is busy or broken
MOST_REPAIR = 4000  # characters of a faulty answer that are sent back

Message = dict[str, str]  # role, content
T = TypeVar("T", bound=BaseModel)


class LlmSettings(Frozen):
    """Seconds are wall time of one ask(), retries and repair included. Prices are for a million tokens, in any
    currency; without them only tokens count. The key is no setting: see key_for()."""

    base_url: str  # http(s)://host[:port][/path]; without a path /v1 is meant
    model: str = Field(min_length=1)
    timeout_s: float = Field(180.0, gt=0, le=86_400)
    answer_tokens: int = Field(3000, ge=LEAST_ANSWER)  # the most of one answer
    token_budget: int = Field(60_000, ge=1)  # of all asks of one client, in and out
    price_in: float | None = Field(None, ge=0, allow_inf_nan=False)
    price_out: float | None = Field(None, ge=0, allow_inf_nan=False)
    money_budget: float | None = Field(None, ge=0, allow_inf_nan=False)
    backoff_s: float = Field(1.0, gt=0)  # before the first retry where the server names no time; doubled then

    @field_validator("base_url")
    @classmethod
    def an_address_without_secrets(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fine = False
        if not fine:
            raise ValueError("write the server's address as http://host:port/v1")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(f"the address holds more than host, port and path; a key goes into {KEYS[0]}")
        return url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + "/v1"

    @model_validator(mode="after")
    def money_needs_prices(self) -> LlmSettings:
        if self.money_budget is not None and (self.price_in is None or self.price_out is None):
            raise ValueError("a budget in money needs the prices of a million tokens in and out")
        return self


class Outcome(StrEnum):
    """What came of a question. The words are kept in reports."""

    ANSWERED = "answered"
    NO_CLIENT = "no_client"  # the package openai cannot be imported
    NO_CONNECTION = "no_connection"
    TOO_SLOW = "too_slow"
    NOT_ALLOWED = "not_allowed"  # no key, or one that the server does not take
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    WRONG_REQUEST = "wrong_request"  # unknown model, too long a prompt
    DECLINED = "declined"  # the model or a filter would not answer
    EMPTY = "empty"
    CUT = "cut"  # ended at its allowed length
    GARBAGE = "garbage"  # no JSON, or not of the schema, also after one repair
    OVER_BUDGET = "over_budget"
    FAULT = "fault"  # of nightgate or of the package


class Used(Frozen):
    """Of one ask. `guessed`: the server reported no usage for a request, so its characters were counted."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    guessed: bool = False
    money: float | None = None  # None: no prices are known
    seconds: float = 0.0
    schema_enforced: bool = True  # False: the server took no json_schema, so it was asked in words
    repaired: bool = False


@dataclass(frozen=True)
class Answer(Generic[T]):
    value: T
    used: Used


class Refused(Frozen):
    outcome: Outcome
    reason: str  # one line, without a key
    used: Used


class NoAnswer(Exception):
    """Inside this room only: becomes a Refused."""

    def __init__(self, outcome: Outcome, reason: str, wait_s: float | None = None, another_form: bool = False) -> None:
        super().__init__(reason)
        self.outcome, self.reason = outcome, reason
        self.wait_s = wait_s  # worth another try after so long; 0: the server names no time
        self.another_form = another_form  # perhaps only the form of the request was refused


@dataclass
class Call:
    """One ask in flight; its worker writes, and after the wall time nobody reads it any more."""

    deadline: float
    stop: threading.Event = field(default_factory=threading.Event)
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    guessed: bool = False
    repaired: bool = False
    flying: tuple[int, int] | None = None  # most tokens in and out of a request without an answer yet

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def land(self, tokens_in: int | None, tokens_out: int | None, characters: int = 0) -> None:
        """Count the request in flight. None: not reported; then by its size, an unseen answer as if it were full."""
        most_in, most_out = self.flying or (0, 0)
        self.flying = None
        self.guessed |= tokens_in is None or tokens_out is None
        self.tokens_in += most_in if tokens_in is None else tokens_in
        guess = -(-characters // CHARACTERS_A_TOKEN) if characters else most_out
        self.tokens_out += guess if tokens_out is None else tokens_out


@dataclass
class Dialect:
    """What this server was seen to take; found out once a client."""

    schema: bool = True
    temperature: bool = True
    limit: str = "max_tokens"  # newer servers want max_completion_tokens

    def adapt(self, said: str) -> bool:
        """Whether a request that was refused with these words is worth another try in another form."""
        if self.limit == "max_tokens" and "max_completion_tokens" in said:
            self.limit = "max_completion_tokens"
        elif self.temperature and "temperature" in said:
            self.temperature = False
        elif self.schema:
            self.schema = False
        else:
            return False
        return True


def key_for(base_url: str, environ: Mapping[str, str]) -> str:
    """The key, or "". OPENAI_API_KEY, which was not set for us, does not go to another machine unencrypted."""
    own, general = (environ.get(name, "").strip() for name in KEYS)
    parts = urlsplit(base_url)
    return own or (general if parts.scheme == "https" or parts.hostname in HERE else "")


class Client:
    """One server, one model, one budget. Not for several threads at once."""

    def __init__(self, settings: LlmSettings, environ: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self.tokens = 0  # spent so far
        self.money = 0.0
        self.dialect = Dialect()
        self._key = key_for(settings.base_url, os.environ if environ is None else environ)

    def __repr__(self) -> str:
        return f"Client({self.settings!r})"

    def safe(self, text: str) -> str:
        """`text` without the key and without control characters."""
        return safe(text, self._keys)

    @property
    def _keys(self) -> tuple[str, ...]:
        return (self._key,) if self._key else ()

    def ask(self, messages: Sequence[Message], schema: type[T]) -> Answer[T] | Refused:
        """Returns after at most settings.timeout_s (and what the first import of the package takes). Never raises."""
        try:
            from agents.llm_wire import Wire  # imports openai
        except ImportError as error:
            return Refused(outcome=Outcome.NO_CLIENT, reason=f"{error}: make setup installs it", used=Used())
        logging.getLogger("openai").setLevel(logging.WARNING)  # at its debug level it writes what is sent
        began = time.monotonic()
        call = Call(deadline=began + self.settings.timeout_s)
        done: list[T | NoAnswer] = []

        def work() -> None:
            try:
                if any(not "!" <= c <= "~" for c in self._key):
                    raise NoAnswer(Outcome.NOT_ALLOWED, "the key in the environment holds a blank or a sign no key has")
                with Wire(self.settings, self._key, call) as wire:
                    done.append(self._talk(list(messages), schema, call, wire))
            except NoAnswer as no:
                done.append(no)
            except Exception as error:
                done.append(NoAnswer(Outcome.FAULT, f"{type(error).__name__}: {error}"))

        # A thread, since no time-out of a socket bounds a name look-up or a server that sends a byte a second.
        worker = threading.Thread(target=work, daemon=True)
        try:
            worker.start()
            worker.join(self.settings.timeout_s)
        finally:
            call.stop.set()
        came = done[0] if done else NoAnswer(Outcome.TOO_SLOW, self._slow())
        if call.flying:
            call.land(None, None)
        used = self._used(call, time.monotonic() - began)
        if isinstance(came, NoAnswer):
            return Refused(outcome=came.outcome, reason=one_line(self.safe(came.reason)), used=used)
        return Answer(came, used)

    def _slow(self) -> str:
        return f"no answer within {self.settings.timeout_s:g} s"

    def _used(self, call: Call, seconds: float) -> Used:
        s = self.settings
        money = None
        if s.price_in is not None and s.price_out is not None:
            money = (call.tokens_in * s.price_in + call.tokens_out * s.price_out) / 1e6
            self.money += money
        self.tokens += call.tokens_in + call.tokens_out
        return Used(
            requests=call.requests,
            tokens_in=call.tokens_in,
            tokens_out=call.tokens_out,
            guessed=call.guessed,
            money=money,
            seconds=round(seconds, 3),
            schema_enforced=self.dialect.schema,
            repaired=call.repaired,
        )

    def _talk(self, talk: list[Message], schema: type[T], call: Call, wire: Wire) -> T:
        """The question, and once more with what was wrong with the answer. Raises NoAnswer."""
        for repair in (False, True):
            call.repaired = repair
            content = self._request(talk, schema, call, wire)
            found = read_object(content, self._keys)
            try:
                if found is not None:
                    return schema.model_validate(found)
                wrong = "it holds no JSON object"
            except ValidationError as error:
                wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
            wrong = one_line(self.safe(wrong))
            again = f"That cannot be used: {wrong}. Answer again, with one JSON object of the schema and nothing else."
            held = self.safe(content)[:MOST_REPAIR]
            talk = [*talk, {"role": "assistant", "content": held}, {"role": "user", "content": again}]
        raise NoAnswer(Outcome.GARBAGE, f"two answers that cannot be used; of the second: {wrong}")

    def _request(self, talk: list[Message], schema: type[T], call: Call, wire: Wire) -> str:
        """The text of one answer, with a server's other dialect and a few retries. Raises NoAnswer."""
        tries = 0
        while True:
            sent = talk if self.dialect.schema else [*talk, _in_words(schema)]
            sent = [m | {"content": self.safe(m["content"])} for m in sent]
            characters = sum(len(m["content"]) for m in sent)
            room = self._room(-(-characters // CHARACTERS_A_TOKEN), call)
            try:
                return wire.send(sent, schema, room, self.dialect)
            except NoAnswer as no:
                if no.another_form and self.dialect.adapt(no.reason):
                    continue
                if no.wait_s is None or tries >= MOST_RETRIES:
                    raise
                wait = no.wait_s or self.settings.backoff_s * 2**tries
                tries += 1
                if wait >= call.left_s:
                    late = f"{no.reason}; waiting {wait:g} s would be past the wall time"
                    raise NoAnswer(no.outcome, late) from None
                if call.stop.wait(wait):
                    raise

    def _room(self, tokens_in: int, call: Call) -> int:
        """Tokens that the next answer may have; the request counts as in flight from here. Raises NoAnswer."""
        s = self.settings
        spent = self.tokens + call.tokens_in + call.tokens_out
        room = min(s.answer_tokens, s.token_budget - spent - tokens_in)
        what = f"{s.token_budget:,} tokens: {spent:,} are used and the question is about {tokens_in:,}"
        if s.money_budget is not None and s.price_in is not None and s.price_out is not None:
            paid = self.money + (call.tokens_in * s.price_in + call.tokens_out * s.price_out) / 1e6
            left = s.money_budget - paid - tokens_in * s.price_in / 1e6
            affordable = int(left * 1e6 / s.price_out) if s.price_out else (room if left >= 0 else 0)
            if affordable < room:
                room, what = affordable, f"{s.money_budget:g} in money: {paid:.4f} is used"
        if room < LEAST_ANSWER:
            raise NoAnswer(Outcome.OVER_BUDGET, f"nothing was asked: no room for an answer in the budget of {what}")
        call.flying = (tokens_in, room)
        return room


def _in_words(schema: type[BaseModel]) -> Message:
    """For a server that takes no json_schema."""
    text = json.dumps(schema.model_json_schema(), separators=(",", ":"))
    return {"role": "user", "content": f"Answer with one JSON object and nothing else. Its JSON Schema: {text}"}
