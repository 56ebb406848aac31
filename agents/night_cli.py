"""`run_night.py report`, `watch` and `verify`: what a night's ledger says, whether it still runs or not."""

from __future__ import annotations

from pathlib import Path

from agents.command import DONE, PROBLEM, guarded_command, print_json, say
from ledger.errors import NoNight
from ledger.follow import follow
from ledger.line import LEDGER, read_events
from ledger.report import write_report
from ledger.screen import watch
from ledger.summary import summary
from ledger.verify import verify
from ledger.view import NightView, fold


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
        print((night / "report.md").read_text(encoding="utf-8", errors="replace"), flush=True)
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
