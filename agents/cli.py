"""What each command does: talk to the rooms, print, and turn every expected fault into one line and an exit code."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agents import runner
from agents.config import ConfigError, load_night
from agents.context import NightProblem
from agents.live import live
from agents.preflight import doctor, preflight
from agents.research.knobs import KnobsError
from agents.research.rank import UnknownReader, reader_names
from agents.tuning.overlay import OverlayError
from cards.choose import choose_card
from contracts import Hypothesis, NightConfig
from ledger.errors import LedgerError, NoNight
from ledger.follow import follow
from ledger.line import LEDGER, read_events
from ledger.report import write_report
from ledger.screen import watch
from ledger.summary import summary
from ledger.verify import verify
from ledger.view import NightView, fold

DONE, PROBLEM, USAGE = 0, 1, 2


def guarded_command(work: Callable[[], int]) -> int:
    """Run a command; faults that a user can mend become one line each on standard error."""
    try:
        return work()
    except ConfigError as error:
        return say(error.lines, USAGE)
    except UnknownReader as error:
        return say([f"readers: {error}"], USAGE)
    except NoNight as error:
        return say([str(error)], USAGE)
    except (NightProblem, OverlayError, LedgerError, KnobsError) as error:
        return say([str(error)], PROBLEM)
    except BrokenPipeError:  # `report NIGHT | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PROBLEM
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return say([f"{error.strerror or error}{where}: check the path and its permissions"], PROBLEM)
    except KeyboardInterrupt:
        return say(["stopped"], PROBLEM)
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="nightgate-error-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return say([f"a fault in nightgate itself ({what}): please report it with {file.name}"], PROBLEM)


def say(lines: Any, code: int) -> int:
    for line in lines:
        print(f"nightgate: {line}", file=sys.stderr)
    return code


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


# --- run ----------------------------------------------------------------------------------------------------------


def run_command(config_path: Path, hours: float | None, resume: bool, dry_run: bool, logs: Path, as_json: bool) -> int:
    def work() -> int:
        overrides = {"minutes": hours * 60} if hours is not None else {}
        config = load_night(config_path, overrides)
        reader_names(config.readers)
        if dry_run:
            return dry(config, logs, as_json)
        with live(plain=as_json) as on_event:
            if resume:
                folder, code = runner.resume(newest_unfinished(logs, config), on_event)
            else:
                folder, code = runner.start(config, logs, on_event)
        return closing_words(folder, code, as_json)

    return guarded_command(work)


def newest_unfinished(logs: Path, config: NightConfig) -> Path:
    """The latest night of this name. Raises NoNight when there is none."""
    nights = [p.parent for p in logs.glob(f"{config.name}-*/ledger.jsonl")]
    if not nights:
        raise NoNight(f"no night of {config.name} under {logs} to go on with: leave out --resume to start one")
    return max(nights, key=lambda night: night.name)


def closing_words(folder: Path, code: int, as_json: bool) -> int:
    """What the night came to. A ledger that was taken away meanwhile is a problem of the night, not of the command."""
    try:
        view = read_view(folder)
    except LedgerError as error:
        return say([str(error)], code or PROBLEM)
    if as_json:
        print_json(summary(view))
    elif view.finish is not None:
        print(f"{view.finish.outcome}: {view.finish.reason}" if view.finish.reason else view.finish.outcome)
    if (folder / "report.md").exists():  # on a full disk it is not, and why has been said
        print(f"report: {folder / 'report.md'} and report.html", file=sys.stderr if as_json else sys.stdout)
    return code


def dry(config: NightConfig, logs: Path, as_json: bool) -> int:
    """Everything that needs no engine: preflight, and what the readers would try before a profile exists."""
    from agents.research.rank import research
    from agents.stages.opening import first_dossier

    card, why = choose_card(config)
    problems = preflight(config, card, logs / config.name)
    found = research(first_dossier(config, card), config.readers)
    if as_json:
        print_json(
            {
                "card": card.model_dump(mode="json"),
                "problems": [p.model_dump(mode="json") for p in problems],
                "hypotheses": [h.model_dump(mode="json") for h in found.hypotheses],
                "dropped": list(found.dropped),
            }
        )
    else:
        console = Console()
        console.print(f"card: {card.name} ({card.arch}), {why}")
        for problem in problems:
            console.print(f"{'PROBLEM' if problem.fatal else 'warning'}: {problem.what}: {problem.fix}", markup=False)
        console.print(hypotheses_table(found.hypotheses))
        for line in found.dropped:
            console.print(f"dropped: {line}", markup=False)
        console.print("Nothing was started. Readers that need a profile add theirs in the night itself.")
    return PROBLEM if any(p.fatal for p in problems) else DONE


def hypotheses_table(hypotheses: tuple[Hypothesis, ...]) -> Table:
    table = Table("#", "change", "says", "gain", "p", "cost s", "why", title="What would be tried, best first")
    for number, h in enumerate(hypotheses, 1):
        table.add_row(
            str(number),
            str(h.change),
            h.proposer,
            f"{h.predicted_gain:.2f}x",
            f"{h.probability:.2f}",
            f"{h.cost_s:.0f}",
            h.why,
        )
    return table


# --- reading a night ----------------------------------------------------------------------------------------------


def night_folder(given: Path) -> Path:
    """A night's folder, given it or the ledger in it. Raises NoNight."""
    folder = given.parent if given.name == LEDGER else given
    if not (folder / LEDGER).is_file():
        raise NoNight(f"{given} holds no night (no {LEDGER}): give a night's folder, for example logs/NIGHT")
    return folder


def read_view(folder: Path) -> NightView:
    """A night that may still be running. Raises NoNight, LedgerError."""
    return fold(read_events(folder))


def report_command(folder: Path, as_json: bool) -> int:
    def work() -> int:
        night = night_folder(folder)
        view = read_view(night)
        if as_json:
            print_json(summary(view))
            return DONE
        write_report(view, night)
        print((night / "report.md").read_text(), flush=True)
        return DONE

    return guarded_command(work)


def watch_command(folder: Path, as_json: bool) -> int:
    def work() -> int:
        if as_json:
            return follow_as_json(night_folder(folder))
        view = watch(night_folder(folder))
        return view.finish.exit_code if view.finish else PROBLEM

    return guarded_command(work)


def follow_as_json(folder: Path) -> int:
    """Every ledger line as it comes, until the night's last, or until its writer is gone without one."""
    last = None
    for last in follow(folder):
        print(last.model_dump_json(), flush=True)
    if last is not None and last.kind == "night_finished":
        return int(last.data["exit_code"])
    return say(["the process that wrote this night is gone and wrote no end: go on with it by --resume"], PROBLEM)


def verify_command(folder: Path, as_json: bool) -> int:
    def work() -> int:
        path = night_folder(folder) / LEDGER
        found = verify(path)
        if as_json:
            print_json(found.model_dump(mode="json"))
        elif found.ok:
            print(f"{path}: {found.lines} lines, the chain holds")
        else:
            print(f"{path}: {found.reason}")
        return DONE if found.ok else PROBLEM

    return guarded_command(work)


def doctor_command(config_path: Path | None, as_json: bool) -> int:
    def work() -> int:
        config = load_night(config_path) if config_path else None
        reader_names(config.readers if config else None)
        found = doctor(config)
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            for line in found.lines():
                print(line)
        return DONE if found.fit else PROBLEM

    return guarded_command(work)
