"""What a night shows while it runs: a live screen on a terminal, one line an event elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from contracts import Event
from ledger.screen import plain_lines, render
from ledger.view import NightView


@contextmanager
def live(plain: bool = False) -> Iterator[Callable[[Event, NightView], None]]:
    """A function to be told of every event. `plain`: lines on standard error, whatever it is."""
    console = Console(stderr=plain)
    if plain or not console.is_terminal:
        yield lambda event, _view: _print(event)
        return
    view = NightView()

    def now() -> datetime:
        return datetime.now(UTC)

    with Live(get_renderable=lambda: render(view, now()), console=console, refresh_per_second=2) as screen:

        def told(_event: Event, current: NightView) -> None:
            nonlocal view
            view = current
            screen.refresh()

        yield told


def _print(event: Event) -> None:
    line = plain_lines(event)
    if line:
        print(line, file=sys.stderr, flush=True)
