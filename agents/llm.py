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
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from agents.llm_call import (
    CHARACTERS_A_TOKEN,
    HERE,
    KEYS,
    LEAST_ANSWER,
    Answer,
    Call,
    Dialect,
    LlmSettings,
    Message,
    NoAnswer,
    Outcome,
    Refused,
    T,
    Used,
)
from agents.llm_text import one_line, read_object, safe

if TYPE_CHECKING:
    from agents.llm_wire import Wire  # imported by ask(): it imports openai

MOST_RETRIES = 2  # of one request, where the server is busy or broken
MOST_REPAIR = 4000  # characters of a faulty answer that are sent back


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
