"""A question to a language model and what came of it: the nouns of llm.py, which asks, and llm_wire.py, which sends."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator, model_validator

from contracts import Frozen

KEYS = ("NIGHTGATE_LLM_API_KEY", "OPENAI_API_KEY")  # environment variables, the first that is set counts
HERE = ("localhost", "127.0.0.1", "::1")
# An English text has about 4 characters a token, source code and numbers about 3 (judged): used before a request and
# where a server reports no usage.
CHARACTERS_A_TOKEN = 3
LEAST_ANSWER = 256  # tokens; with less room in the budget nothing is asked

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
