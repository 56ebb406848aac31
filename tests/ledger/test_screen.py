"""The live screen, the plain lines, and watching a night from another process."""

from __future__ import annotations

import io
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from contracts import Event
from ledger import schema
from ledger.errors import LedgerBroken, NoNight
from ledger.follow import Follower
from ledger.line import read_events
from ledger.log import Ledger
from ledger.screen import plain_lines, render, watch
from ledger.view import NightView, fold
from tests.ledger.nights import interrupted_night, running_night


def drawn(view: NightView, width: int = 120, **at: object) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), color_system=None)
    console.print(render(view, **at))  # type: ignore[arg-type]
    return console.export_text()


def test_a_running_night_shows_where_it_is(tmp_path: Path) -> None:
    night = running_night(tmp_path)
    view = fold(night.ledger.events)
    shown = drawn(view, now=night.now + timedelta(seconds=17))
    for text in (
        "nightgate · made-up-night",
        "4 min 22 s used, 20 min 38 s left",
        "launch  e02-",
        "enforce-eager: true → default  for 17 s",
        "engine B (pid 4099) to start, 17 s so far, at most 5 min 00 s",
        "1.76×  estimate of 1 kept change, not confirmed",
        "in hand",
        "1.71× to 1.81×",
    ):
        assert text in shown, text
    assert all(len(line) <= 60 for line in drawn(view, width=60).splitlines())
    night.ledger.close()


def test_a_finished_night_shows_its_result(view: NightView) -> None:
    shown = drawn(view)
    assert "2.03× output tokens/s, confirmed" in shown and "ran to its end" in shown and "inconclusive" in shown
    assert "night" in drawn(NightView())
    assert "rehearsal" in drawn(view.but(versions={"vllm": "0.0.0+standin"}))


def test_plain_lines_tell_the_night(events: list[Event]) -> None:
    lines = [line for event in events if (line := plain_lines(event))]
    assert lines[1] == "01:30:00 night made-up-night: 25 minutes on Made-up CPU, 2 cores, vLLM 0.32.0"
    told = "\n".join(lines)
    for text in (
        " KEEP 1.76× (1.71× to 1.81×): ",
        "arm B, pair 1, run 2: ",
        "VOID: prefix cache hit unequally",
        "A/A arm A",
        "resumed at launch, lost: the launch of arm B",
        "engine L090 failed: refused configuration",
        "in use? absent: ",
        "CONFIRMED 2.03× (1.95× to 2.11×)",
        "night over (done): every hypothesis was tried",
    ):
        assert text in told, text
    assert all("\n" not in line and "\x1b" not in line for line in lines)


def pipe() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_watching_a_night_that_is_over(tmp_path: Path) -> None:
    console = pipe()
    view = watch(interrupted_night(tmp_path), console, poll_s=0.01)
    assert view.finish and "night over (interrupted)" in text_of(console).splitlines()[-1]
    assert "KEEP 1.76×" in text_of(console)
    with pytest.raises(NoNight, match="logs/NIGHT"):
        watch(tmp_path / "nothing", console)


def test_watching_a_night_whose_process_is_gone(tmp_path: Path) -> None:
    running_night(tmp_path).ledger.close()
    console = pipe()
    assert watch(tmp_path, console, poll_s=0.01).running
    assert "is gone and wrote no end: go on with it by --resume" in text_of(console)


@pytest.mark.parametrize("terminal", [False, True])
def test_watching_a_night_while_it_is_written(tmp_path: Path, terminal: bool) -> None:
    night = running_night(tmp_path)

    def end() -> None:
        time.sleep(0.1)
        for line in range(30):
            night.add("warned", schema.Warned(message=f"line {line}"))
        night.finish("done", "every hypothesis was tried")

    writing = threading.Thread(target=end)
    writing.start()
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    view = watch(tmp_path, console, poll_s=0.02)
    writing.join()
    assert view.finish and view.lines == len(list(read_events(tmp_path)))
    if terminal:
        assert "made-up-night" in text_of(console)
    else:
        assert sum("warning: line" in line for line in text_of(console).splitlines()) == 30


def test_a_follower_survives_a_line_that_was_taken_back(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.append("warned", schema.Warned(message="one"))
    follower = Follower(tmp_path)
    assert [e.seq for e in follower.poll()] == [1]
    whole = ledger.path.read_bytes()
    with ledger.path.open("ab") as file:
        file.write(b'{"half a li')
    assert follower.poll() == []
    ledger.append("warned", schema.Warned(message="two"))
    assert [e.seq for e in follower.poll()] == [2] and follower.poll() == []
    ledger.path.write_bytes(whole)  # an acknowledged line does not go; one cut off by a signal may
    assert follower.poll() == [] and follower.view.lines == 1
    ledger.path.write_bytes(whole + b"nonsense\n")
    with pytest.raises(LedgerBroken, match="line 2"):
        follower.poll()
    ledger.path.write_bytes(whole)
    ledger.close()
