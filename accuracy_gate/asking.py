"""How every check of the gate asks a running engine: in waves, on one client, each failure under its name.

Waves, because then a batch fills the same way every time and the first wave of a long run equals a short run of one
wave; a queue refilled as requests finish mixes prompts by timing (docs/accuracy_gate.md has the numbers). Nothing is
scored here, and a request that failed is a failure of its kind, never a wrong answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import httpx

from contracts import Frozen
from engine.client import http_client
from engine.running import RunningEngine

ErrorKind = Literal["timeout", "connection", "http", "malformed", "not_asked"]
Item = TypeVar("Item")
Answered = TypeVar("Answered")

# Greedy, and every default that a model's own generation_config.json may set put back to neutral.
NEUTRAL = {
    "temperature": 0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip


class Saved(Frozen):
    """What one launch answered, as a JSON file."""

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(exclude_defaults=True))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises OSError, or ValueError when the file holds something else."""
        return cls.model_validate_json(path.read_text())


class Asker:
    """`lost`: a time-out or a broken connection was met. `ended`: the caller has heard enough. Either way the waves
    that are left are not asked: an engine that hangs costs one time limit, not one for each request."""

    def __init__(self, client: httpx.Client, pool: ThreadPoolExecutor, model: str) -> None:
        self._client, self._pool, self.model = client, pool, model
        self.salt = uuid.uuid4().hex  # no prefix is taken from a cache that an earlier run filled
        self.lost = self.ended = False
        self.seconds = 0.0  # from the first request to the last answer; known when all is asked

    def waves(
        self, items: Sequence[Item], one: Callable[[Item], Answered], unasked: Callable[[Item], Answered], width: int
    ) -> Iterator[list[Answered]]:
        """The answers, a wave of `width` at a time, each asked when the last is done."""
        for wave in (items[i : i + width] for i in range(0, len(items), width)):
            if self.lost or self.ended:
                yield [unasked(item) for item in wave]
            else:
                yield list(self._pool.map(one, wave))

    def post(
        self,
        path: str,
        body: dict[str, Any],
        read: Callable[[Any], Answered],
        failed: Callable[[ErrorKind, str], Answered],
    ) -> Answered:
        """What `read` makes of the engine's JSON. It raises ValueError or a lookup error where a part is missing."""
        try:
            response = self._client.post(path, json=body)
        except httpx.TimeoutException as error:
            self.lost = True
            return failed("timeout", _words(error))
        except httpx.HTTPError as error:
            self.lost = True
            return failed("connection", _words(error))
        if response.status_code != 200:
            return failed("http", _short(f"HTTP {response.status_code}: {response.text}"))
        try:
            return read(response.json())
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:  # pydantic's too is a ValueError
            return failed("malformed", _words(error))


@contextmanager
def asking(engine: RunningEngine, width: int, timeout_s: float) -> Iterator[Asker]:
    """At most `width` requests at a time; `timeout_s` holds for each. The engine's identity is checked before, and
    after where no connection was lost. Raises EngineFailure when the engine is not (or no longer) ours."""
    engine.check()
    pool = ThreadPoolExecutor(max_workers=width)
    try:
        with http_client(engine.base_url, timeout_s, connections=width) as http:
            asker = Asker(http, pool, engine.served_name)
            started = time.monotonic()
            yield asker
            asker.seconds = time.monotonic() - started
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl+C does not wait for an engine that hangs
    if not asker.lost:
        engine.check()


def _words(error: Exception) -> str:
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
