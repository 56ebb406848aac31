"""One request over the wire, by the package `openai`, and what its answer means. Imported only when a model is asked.

What the package would do by itself and is switched off: retries, redirects (a prompt goes where it was sent, nowhere
else), headers and organisations from its own environment variables.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2  # what openai is built on
import openai
from pydantic import BaseModel

from agents.llm_call import HERE, KEYS, Call, Dialect, LlmSettings, Message, NoAnswer, Outcome

MOST_BYTES = 4 << 20  # of one answer; an answer of 3000 tokens has about 12 kB
MOST_WAIT_S = 30.0  # a server that asks for a longer pause is not waited for
# The last one is how the package remembers that it was asked for the plain response.
_HEADERS = {"host", "content-type", "content-length", "accept", "connection", "user-agent", "authorization",
            "x-stainless-raw-response"}  # fmt: skip
_BUSY = (429, 503)
_BROKEN = (500, 502, 504)
_OTHER_FORM = (400, 422, 501)  # what servers answer to a parameter that they do not know


class _Bounded(httpx2.SyncByteStream):
    """A body that ends with NoAnswer where it grows too large or takes too long."""

    def __init__(self, stream: httpx2.SyncByteStream, call: Call) -> None:
        self._stream, self._call = stream, call

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if size > MOST_BYTES:
                raise NoAnswer(Outcome.GARBAGE, f"the answer is larger than {MOST_BYTES >> 20} MiB")
            if self._call.left_s <= 0:
                raise NoAnswer(Outcome.TOO_SLOW, "the answer did not end in time")
            yield part

    def close(self) -> None:
        self._stream.close()


class Wire:
    """A context: the connection of one ask."""

    def __init__(self, settings: LlmSettings, key: str, call: Call) -> None:
        self._settings, self._key, self._call = settings, key, call
        here = urlsplit(settings.base_url).hostname in HERE
        self._http = httpx2.Client(
            follow_redirects=False,
            trust_env=not here,  # a proxy is not asked for what runs on this machine
            verify=settings.base_url.startswith("https"),  # without TLS there is nothing to verify, and it costs 30 ms
            event_hooks={"request": [self._only_ours], "response": [self._bounded]},
        )
        self._openai = openai.OpenAI(
            base_url=settings.base_url, api_key=key or "none", admin_api_key="", max_retries=0, http_client=self._http
        )

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _only_ours(self, request: httpx2.Request) -> None:
        for name in [n for n in request.headers if n.lower() not in _HEADERS]:
            del request.headers[name]
        request.headers["accept-encoding"] = "identity"  # so that MOST_BYTES bounds what lies in memory
        if self._key:
            request.headers["authorization"] = f"Bearer {self._key}"
        else:
            request.headers.pop("authorization", None)

    def _bounded(self, response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise NoAnswer(Outcome.GARBAGE, "the answer is compressed, which was not asked for")
        response.stream = _Bounded(response.stream, self._call)  # type: ignore[arg-type]

    def send(self, talk: list[Message], schema: type[BaseModel], room: int, dialect: Dialect) -> str:
        """The text of the answer; what it cost is counted. Raises NoAnswer."""
        call = self._call
        if call.stop.is_set() or call.left_s <= 0:
            raise NoAnswer(Outcome.TOO_SLOW, "no time is left")
        body: dict[str, Any] = {"model": self._settings.model, "messages": talk, dialect.limit: room}
        if dialect.temperature:
            body["temperature"] = 0
        if dialect.schema:
            form = {"name": schema.__name__, "schema": schema.model_json_schema(), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        call.requests += 1
        try:
            raw = self._openai.chat.completions.with_raw_response.create(**body, timeout=max(call.left_s, 0.01))
        except NoAnswer:  # from _Bounded
            call.land(None, None)
            raise
        except openai.APIStatusError as error:
            call.land(0, 0)
            raise self._refused(error) from None
        except openai.APITimeoutError:
            call.land(None, None)
            raise NoAnswer(Outcome.TOO_SLOW, f"no answer within {self._settings.timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            raise self._unreached(error) from None
        return self._content(raw.http_response.content.decode("utf-8", "replace"))

    def _unreached(self, error: openai.APIConnectionError) -> NoAnswer:
        cause = error.__cause__
        connected = not isinstance(cause, httpx2.ConnectError | httpx2.UnsupportedProtocol)
        self._call.land(*((None, None) if connected else (0, 0)))
        what = "the connection broke" if connected else "nothing answers"
        return NoAnswer(Outcome.NO_CONNECTION, f"{what} at {self._settings.base_url}: {cause or error}")

    def _refused(self, error: openai.APIStatusError) -> NoAnswer:
        """What an HTTP status says."""
        status, said = error.status_code, f"HTTP {error.status_code}: {_words(error)}"
        if 300 <= status < 400:
            place = error.response.headers.get("location", "another address")
            return NoAnswer(Outcome.WRONG_REQUEST, f"the server sends on to {place}: give that address if you trust it")
        if status in (401, 403, 407):
            hint = "" if self._key else f"; no key was sent, set {KEYS[0]}"
            return NoAnswer(Outcome.NOT_ALLOWED, said + hint)
        if status in _BUSY and error.code != "insufficient_quota":
            wait = _retry_after(error.response.headers)
            outcome = Outcome.RATE_LIMITED if status == 429 else Outcome.SERVER_ERROR
            if wait > MOST_WAIT_S:
                return NoAnswer(outcome, f"{said}; it asks for a pause of {wait:,.0f} s")
            return NoAnswer(outcome, said, wait_s=wait)
        if status == 429:
            return NoAnswer(Outcome.RATE_LIMITED, said)
        if status in _BROKEN:
            return NoAnswer(Outcome.SERVER_ERROR, said, wait_s=0)
        if status >= 500 and status != 501:
            return NoAnswer(Outcome.SERVER_ERROR, said)
        return NoAnswer(Outcome.WRONG_REQUEST, said, another_form=status in _OTHER_FORM)

    def _content(self, text: str) -> str:
        try:
            reply = json.loads(text)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            self._call.land(None, None, len(text))
            raise NoAnswer(Outcome.GARBAGE, f"the server's answer is no JSON object: {text[:80]!r}")
        usage = _dict(reply.get("usage"))
        choices = reply.get("choices")
        choice = _dict(choices[0]) if isinstance(choices, list) and choices else {}
        message = _dict(choice.get("message"))
        content, refusal, end = message.get("content"), message.get("refusal"), choice.get("finish_reason")
        seen = content if isinstance(content, str) else ""
        self._call.land(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), len(seen))
        if not choice:
            error = reply.get("error")
            raise NoAnswer(Outcome.GARBAGE, f"the server's answer has no choices{f': {error}' if error else ''}")
        if isinstance(refusal, str) and refusal:
            raise NoAnswer(Outcome.DECLINED, f"the model would not answer: {refusal}")
        if end == "content_filter":
            raise NoAnswer(Outcome.DECLINED, "a filter of the server ended the answer")
        if end == "length":
            out = _count(usage.get("completion_tokens"))
            raise NoAnswer(Outcome.CUT, f"the answer was cut at its length{f' of {out} tokens' if out else ''}")
        if not seen.strip():
            thought = message.get("reasoning_content") or message.get("reasoning")
            raise NoAnswer(Outcome.EMPTY, "the model thought and then said nothing" if thought else "an empty answer")
        return seen


def _words(error: openai.APIStatusError) -> str:
    """What the server says, in whatever form it says it."""
    body = error.body
    if isinstance(body, dict):
        return str(body.get("message") or body.get("detail") or body.get("error") or body)
    return str(body or error.response.reason_phrase)


def _retry_after(headers: httpx2.Headers) -> float:
    """Seconds that the server asks for; 0 where it names no time or none that can be read."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
            seconds = (at - datetime.fromtimestamp(time.time(), UTC if at.tzinfo else None)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    """A number of tokens that can be one."""
    fine = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if fine else None
