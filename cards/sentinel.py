"""Watches the card while something is measured: clocks, power, heat, throttling, and who else is on it.

    sentinel = Sentinel(card, own_pids=arms.pids)
    sentinel.start()                    # before the warm-up
    sentinel.window_start(); ...; sentinel.window_end()
    sentinel.stop()
    measurement.conditions |= sentinel.conditions()

One thread that reads small files (or NVML) twice a second. It may cost 1 % of a core and no more: a look that costs
more is taken less often, and the gaps are counted. benchmarks/sentinel_cost.py has the figures. What the card does not
tell is None; a sentinel that fails says so and never ends a night.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from pydantic import JsonValue

from cards import nvidia
from cards.card_state import CardState
from cards.cpu_state import CpuReader
from cards.processes import Process, cpu_times, cpu_used
from cards.state import HERE, read_state
from cards.tenancy import Tenancy, Walk, tenants, walk
from cards.window import GAP, MOST_NAMED, Sample, not_told, summary
from contracts import Card

PERIOD_S = 0.5
MOST_SHARE = 0.008  # of one core, for the looks at the card and the walks: under the 1 % that was promised
WALK_SHARE = 0.002  # of one core, for the walks through every process' open files, which find who came since
STOP_S = 10.0  # for the look that is under way; a card that has hung may hold it for good
NAMED_CORES = 0.05  # somebody else on the CPU is named from so many cores' worth on


class Sentinel:
    def __init__(
        self,
        card: Card,
        own_pids: Callable[[], Collection[int]],
        root: Path = HERE,
        period_s: float = PERIOD_S,
    ) -> None:
        """`own_pids` gives the processes of every engine of ours that is up, the idle twin's too."""
        self._card, self._own_pids, self._root, self._period_s = card, own_pids, root, period_s
        self._state = CpuReader(root).read if card.kind == "cpu" else self._read_card
        self._samples: list[Sample] = []
        self._window: list[float] = []
        self._own = {os.getpid()}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._walked: Walk | None = None
        self._walk_again = 0.0
        self._walk_s = 0.0
        self._error: str | None = None
        self._cpu: list[tuple[float, float]] = []  # (moment, CPU seconds of the thread) after each look
        self._before: tuple[float, dict[int, Process]] | None = None
        self._after: tuple[float, dict[int, Process]] | None = None

    def start(self) -> None:
        self._own.update(self._own_pids())
        self._before = (time.monotonic(), cpu_times(self._root))
        self._thread = threading.Thread(target=self._watch, name="sentinel", daemon=True)
        self._thread.start()

    def window_start(self) -> None:
        self._window = [time.monotonic()]

    def window_end(self) -> None:
        self._window.append(time.monotonic())

    def stop(self) -> None:
        """Safe to call twice. An engine's process that was born meanwhile is ours too."""
        if self._thread is None or self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(timeout=STOP_S)
        if self._thread.is_alive():
            self._error = f"the card did not answer for {STOP_S:.0f} s and more: nobody looked at it from then on"
        self._after = (time.monotonic(), cpu_times(self._root))
        self._own.update(self._own_pids())

    def samples(self) -> list[Sample]:
        """Those inside the window; all of them where no window was set."""
        first, last = (*self._window, float("inf"))[:2] if self._window else (0.0, float("inf"))
        return [s for s in self._samples if first <= s.at <= last]

    def foreign_cpu(self) -> list[Process]:
        """Who else took CPU time between start() and stop(), the most first."""
        if self._before is None or self._after is None:
            return []
        return cpu_used(self._before[1], self._after[1], frozenset(self._own))

    def cost(self) -> float | None:
        """CPU seconds of the sampler a second of the window (or of its whole life where no window was set)."""
        first, last = (*self._window, float("inf"))[:2] if self._window else (0.0, float("inf"))
        looks = [look for look in self._cpu if first <= look[0] <= last]
        if len(looks) < 2:
            return None
        return (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])

    def conditions(self) -> dict[str, JsonValue]:
        found = summary(self.samples(), frozenset(self._own), self._period_s)
        seconds = self._after[0] - self._before[0] if self._before and self._after else 0.0
        named: list[JsonValue] = [
            f"{p.name} (pid {p.pid}): {p.cpu_s / seconds:.2f} cores"
            for p in self.foreign_cpu()[:MOST_NAMED]
            if seconds and p.cpu_s / seconds >= NAMED_CORES
        ]
        cost = self.cost()
        return {
            **found,
            "card_gaps": int(str(found["card_gaps"])) + self._at_the_edges(),
            "card_not_told": list(not_told(found)),
            "foreign_cpu_named": named,
            "sentinel_cpu_share": None if cost is None else round(cost, 5),
            "sentinel_error": self._error,
        }

    def _at_the_edges(self) -> int:
        """Holes before the first look inside the window and after its last one; a window without a look is one."""
        if len(self._window) < 2:
            return 0
        looks = [sample.at for sample in self.samples()]
        edges = [self._window[0], *looks[:1]], [*looks[-1:], self._window[1]]
        holes = [edge for edge in edges if edge[-1] - edge[0] > GAP * self._period_s]
        return len(holes) if looks else int(self._window[1] - self._window[0] > GAP * self._period_s)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        with ExitStack() as held:
            if self._card.kind == "nvidia":
                held.enter_context(nvidia._nvml())  # kept open: each look would start and end the library otherwise
            while not self._ended.is_set():
                began = time.thread_time()
                try:
                    self._look()
                except Exception as error:  # a sampler's fault is one sample fewer, and is said
                    self._error = f"{type(error).__name__}: {error}"[:200]
                now = time.thread_time()
                self._cpu.append((time.monotonic(), now))
                self._ended.wait(max(self._period_s, (now - began - self._walk_s) / (MOST_SHARE - WALK_SHARE)))

    def _look(self) -> None:
        self._walk_s = 0.0
        tenancy = Tenancy() if self._card.kind == "cpu" else tenants(self._card, self._root, self._walk())
        state = self._state()
        self._samples.append(Sample(time.monotonic(), state, tenancy))

    def _read_card(self) -> CardState:
        return read_state(self._card, self._root)

    def _walk(self) -> Walk:
        """Done again once the last one's cost is WALK_SHARE of the time since."""
        now = time.monotonic()
        if self._walked is None or now >= self._walk_again:
            began = time.thread_time()
            self._walked = walk(self._card, self._root)
            self._walk_s = time.thread_time() - began
            self._walk_again = now + self._walk_s / WALK_SHARE
        return self._walked
