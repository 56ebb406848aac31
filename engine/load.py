"""The resident load generator: sends a planned request list to /v1/completions, streaming, and keeps every sample.

Resident, because `vllm bench serve` spends most of a short measurement on its own imports (docs/load_generator.md).

How the measured window excludes ramp-up and drain. The plan's phases follow each other without a gap: warm-up requests
bring the engine to its load, measured requests follow on the same connections, and fill requests keep the load up until
the last measured request has ended; then the rest is cancelled. The window runs from the first measured start to the
last measured token, and in a closed loop the number of requests in flight is the same all through it. Without the fill
the tail of a run is measured at falling concurrency, and without the overlap its head at a burst of prefills.

Open loop: requests go out at their planned times, whatever the engine does. In both loops the generator can itself be
late, when its process does not get a core; then its own slowness was measured and not the engine's, and
`LoadResult.generator_late` says so.

Times are seconds on this process's monotonic clock since the start of the run.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from engine.client import async_http_client
from engine.prompts import Phase, PlannedRequest

CONNECT_S = 10.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Late: one in twenty wake-ups (or sends of the open loop) later than the first bound, or a single one later than the
# second. Measured on 2 x86 cores beside vLLM 0.32.0 on the CPU and other work (load average 4 to 9, 2026-11-29), 13
# runs: 95th percentile 4 to 19 ms, longest 60 to 470 ms, but 1.2 and 3.4 s in two runs. A bound of 0.1 s on the longest
# would have called 12 of the 13 late.
LATE_P95_S = 0.05
LATE_MAX_S = 1.0
_LAG_PERIOD_S = 0.05

# Why a request failed. "stopped" (a fill request that was cancelled at the end of the window) is not a failure.
CONNECT, TIMEOUT, HTTP_STATUS, SHORT_OUTPUT, STREAM_BROKEN, NOT_SENT = (
    "connect", "timeout", "http_status", "short_output", "stream_broken", "not_sent",
)  # fmt: skip
STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. `chunks` are (arrival time, output tokens received up to and with this chunk): one for each moment
    at which tokens arrived, however many events they were sent in."""

    index: int
    phase: Phase
    planned_s: float | None  # open loop
    start_s: float | None  # None: never sent
    chunks: tuple[tuple[float, int], ...]
    end_s: float | None
    planned_prompt_tokens: int
    planned_output_tokens: int
    prompt_tokens: int | None  # as the engine counted
    output_tokens: int | None  # as the engine counted
    error: str | None = None
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class LoadResult:
    """All samples of one run, and what the generator cost. `window` is None when no measured request was sent."""

    samples: tuple[Sample, ...]
    window: tuple[float, float] | None
    cpu_s: float  # CPU time of the generator's thread over the whole run
    wall_s: float
    lag_s: tuple[
        float, ...
    ]  # in the window, every 50 ms: how late a sleeper woke, that is the error of our time stamps
    load_kept: bool  # no worker ran out of fill requests before the window ended

    @property
    def lateness_s(self) -> tuple[float, ...]:
        """Open loop: actual minus planned start of each request that was sent."""
        sent = (s for s in self.samples if s.planned_s is not None and s.start_s is not None)
        return tuple(s.start_s - s.planned_s for s in sent)  # type: ignore[operator]

    @property
    def generator_late(self) -> bool:
        return any(
            len(seen) > 0 and (max(seen) > LATE_MAX_S or float(np.percentile(seen, 95)) > LATE_P95_S)
            for seen in (self.lateness_s, self.lag_s)
        )


@dataclass
class Hooks:
    """What to do at the window's edges (short, they run between two requests) and alongside (for its whole length)."""

    window_start: Callable[[], None] = lambda: None
    window_end: Callable[[], None] = lambda: None
    alongside: Callable[[], Awaitable[None]] | None = None


def run_load(
    base_url: str,
    model: str,
    plan: Sequence[PlannedRequest],
    *,
    concurrency: int | None,
    request_s: float,
    run_s: float,
    hooks: Hooks | None = None,
) -> LoadResult:
    """Drive `plan` at the server and return every sample. `concurrency` None: open loop, by the plan's own times.

    A request that has not ended after `request_s` is a timeout. After `run_s` the run is cut: what is in flight becomes
    a timeout and what was not sent becomes not_sent; nothing is dropped. Raises nothing for a failing server, and
    KeyboardInterrupt, or what the handler raises, when one of ENDING arrives.
    """
    handlers = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}  # Python runs handlers in the main thread only
    heard, stops = list[signal.Signals](), list[Callable[[], object]]()
    run = _Run(base_url, model, plan, concurrency, request_s, hooks or Hooks())

    def hear(number: int, _frame: object) -> None:
        heard.append(signal.Signals(number))
        for stop in stops:
            stop()

    try:
        for number in handlers:
            signal.signal(number, hear)
        result = asyncio.run(_until_signal(run.drive(run_s), heard, stops))
    except asyncio.CancelledError:
        if not heard:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if heard:
        handlers[heard[0]](heard[0], None)
        raise KeyboardInterrupt
    return result


async def _until_signal(
    load: Coroutine[Any, Any, LoadResult], heard: list[signal.Signals], stops: list[Callable[[], object]]
) -> LoadResult:
    """A handler that raised inside asyncio would leave exceptions in tasks, which asyncio prints, or half an event
    loop. So a signal only cancels the load here; its handler runs when asyncio has been left in order. Not by the
    loop's own add_signal_handler: before it and as the loop closes there are moments without it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
    try:
        if heard:
            load.close()
            raise asyncio.CancelledError
        return await load
    finally:
        stops.clear()


@dataclass
class _Run:
    base_url: str
    model: str
    plan: Sequence[PlannedRequest]
    concurrency: int | None
    request_s: float
    hooks: Hooks
    origin: float = 0.0
    turn: float | None = None
    samples: dict[int, Sample] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)
    open_measured: set[int] = field(default_factory=set)
    window_open: bool = False
    load_kept: bool = True
    all_measured: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> float:
        return time.perf_counter() - self.origin

    def arrival(self) -> float:
        """The time of what arrives now: one for all that the event loop handles in one turn, since it was all there
        when the turn began. Else our own parsing time (0.1 ms an event) would tell events of one read apart."""
        if self.turn is None:
            self.turn = self.now()
            asyncio.get_running_loop().call_soon(self._next_turn)
        return self.turn

    def _next_turn(self) -> None:
        self.turn = None

    async def drive(self, run_s: float) -> LoadResult:
        self.open_measured = {r.index for r in self.plan if r.phase == "measured"}
        timeout = httpx.Timeout(self.request_s, connect=min(CONNECT_S, self.request_s), pool=None)
        cpu = time.thread_time()
        async with async_http_client(self.base_url, timeout) as client:
            self.origin = time.perf_counter()
            aside = [asyncio.create_task(self._watch_lag())]
            if self.hooks.alongside is not None:
                aside.append(asyncio.ensure_future(self.hooks.alongside()))
            sending = asyncio.create_task(self._closed(client) if self.concurrency else self._open(client))
            measured = asyncio.create_task(self.all_measured.wait())
            try:
                await asyncio.wait({sending, measured}, timeout=run_s, return_when=asyncio.FIRST_COMPLETED)
                cut = self.now()
                if self.window_open:
                    self.hooks.window_end()
            finally:
                for task in (sending, measured, *aside):
                    task.cancel()
                outcome = await asyncio.gather(sending, measured, *aside, return_exceptions=True)
        for problem in outcome:
            while isinstance(problem, ExceptionGroup):
                problem = problem.exceptions[0]
            if isinstance(problem, Exception):
                raise problem  # a fault of ours or of a hook; the server's faults are in the samples
        for request in self.plan:
            if request.phase != "fill" and request.index not in self.samples:
                detail = f"the run was cut after {cut:.1f} s"
                self.samples[request.index] = _sample(request, error=NOT_SENT, detail=detail)
        samples = tuple(self.samples[i] for i in sorted(self.samples))
        return LoadResult(
            samples, _window(samples), time.thread_time() - cpu, self.now(), tuple(self.lags), self.load_kept
        )

    async def _closed(self, client: httpx.AsyncClient) -> None:
        """`concurrency` workers on one queue: each sends the next request as soon as its own has ended."""
        queue = iter(self.plan)
        async with asyncio.TaskGroup() as workers:
            for _ in range(self.concurrency or 1):
                workers.create_task(self._worker(client, queue))

    async def _worker(self, client: httpx.AsyncClient, queue: Iterator[PlannedRequest]) -> None:
        for request in queue:
            await self._send(client, request)
        self.load_kept = self.load_kept and not self.open_measured

    async def _open(self, client: httpx.AsyncClient) -> None:
        async with asyncio.TaskGroup() as flying:
            for request in self.plan:
                delay = (request.at_s or 0.0) - self.now()
                if delay > 0:
                    await asyncio.sleep(delay)
                flying.create_task(self._send(client, request))
            self.load_kept = not self.open_measured

    async def _send(self, client: httpx.AsyncClient, request: PlannedRequest) -> None:
        if request.phase == "measured" and not self.window_open:
            self.window_open = True
            self.hooks.window_start()
        start, chunks, usage = self.now(), [], _Usage()  # type: ignore[var-annotated]
        error, detail = None, ""
        try:
            async with asyncio.timeout(self.request_s):
                await self._stream(client, request, chunks, usage)
            if usage.output_tokens != request.output_tokens:
                error = SHORT_OUTPUT if (usage.output_tokens or 0) < request.output_tokens else STREAM_BROKEN
                detail = f"{usage.output_tokens} output tokens, asked for {request.output_tokens}"
        except asyncio.CancelledError:
            error = STOPPED if request.phase == "fill" or not self.open_measured else TIMEOUT
            detail = "the run ended"
            raise
        except _BadStatus as answer:
            error, detail = HTTP_STATUS, str(answer)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout) as late:
            error, detail = TIMEOUT, f"no end after {self.request_s:g} s ({type(late).__name__})"
        except (httpx.ConnectError, httpx.ConnectTimeout) as refused:
            error, detail = CONNECT, str(refused) or type(refused).__name__
        except (httpx.TransportError, _BadStream) as broken:
            error, detail = STREAM_BROKEN, f"{type(broken).__name__}: {broken}"
        finally:
            self.samples[request.index] = _sample(
                request, start_s=start, chunks=tuple(chunks), end_s=self.now(), prompt_tokens=usage.prompt_tokens,
                output_tokens=usage.output_tokens, error=error, detail=detail[:300],
            )  # fmt: skip
            self.open_measured.discard(request.index)
            if self.window_open and not self.open_measured:
                self.all_measured.set()

    async def _stream(
        self, client: httpx.AsyncClient, request: PlannedRequest, chunks: list[tuple[float, int]], usage: _Usage
    ) -> None:
        body = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.output_tokens,
            "min_tokens": request.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            # continuous: every chunk then says how many tokens there are so far, since one chunk can hold several
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode(errors="replace")
                raise _BadStatus(f"{response.status_code}: {text[:200]}")
            rest, done = b"", False
            async for data in response.aiter_raw():
                at = self.arrival()
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    done = self._event(event, at, chunks, usage) or done
            if not done:
                raise _BadStream("the stream ended without [DONE]")

    @staticmethod
    def _event(event: bytes, at: float, chunks: list[tuple[float, int]], usage: _Usage) -> bool:
        """Take in one server-sent event; True for the last one."""
        if not event.startswith(b"data: "):
            return False  # a comment or a keep-alive
        if event == b"data: [DONE]":
            return True
        try:
            message: dict[str, Any] = json.loads(event[6:])
            if "error" in message:
                raise _BadStream(f"the engine sent an error: {message['error']}")
            if counts := message.get("usage"):
                usage.prompt_tokens, usage.output_tokens = counts["prompt_tokens"], counts["completion_tokens"]
            if message["choices"]:
                before = chunks[-1][1] if chunks else 0
                tokens = usage.output_tokens if counts else before + 1  # no count in this chunk: take it for one token
                if tokens is not None and tokens > before:
                    if chunks and chunks[-1][0] == at:
                        chunks.pop()  # they came together, so they are one chunk
                    chunks.append((at, tokens))
        except (ValueError, KeyError, TypeError, AttributeError) as bad:
            raise _BadStream(f"not a completion chunk ({type(bad).__name__} {bad}): {event[:120]!r}") from bad
        return False

    async def _watch_lag(self) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                due = self.now() + _LAG_PERIOD_S
                await asyncio.sleep(_LAG_PERIOD_S)
                if self.window_open:
                    self.lags.append(max(0.0, self.now() - due))


class _BadStatus(Exception):
    pass


class _BadStream(Exception):
    pass


@dataclass(slots=True)
class _Usage:
    prompt_tokens: int | None = None
    output_tokens: int | None = None


def _sample(request: PlannedRequest, **seen: Any) -> Sample:
    blank: dict[str, Any] = {"start_s": None, "chunks": (), "end_s": None, "prompt_tokens": None, "output_tokens": None}
    return Sample(
        index=request.index, phase=request.phase, planned_s=request.at_s, planned_prompt_tokens=len(request.prompt),
        planned_output_tokens=request.output_tokens, **(blank | seen),
    )  # fmt: skip


def _window(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """From the first measured start to the last measured token (or end, for a request that failed)."""
    measured = [s for s in samples if s.phase == "measured" and s.start_s is not None]
    if not measured:
        return None
    ends = [s.chunks[-1][0] if s.ok and s.chunks else s.end_s for s in measured]
    return min(s.start_s for s in measured if s.start_s is not None), max(e for e in ends if e is not None)
