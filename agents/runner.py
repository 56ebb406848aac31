"""From a configuration or a night's folder to an exit code: locks, signals, resume, and a report on every way out."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

from agents.command import Problem
from agents.config import dump_resolved, load_night
from agents.context import Interrupted, Night, NightProblem, guarded_files
from agents.night import checkpointed, run_graph
from agents.preflight import engine_versions
from agents.stages.opening import base_spec
from agents.state import Progress
from agents.tuning.overlay import Overlay, Tunable
from cards.choose import choose_card
from contracts import Card, Event, LaunchRecord, NightConfig
from engine.orphans import end_orphans
from ledger.errors import LedgerError, LedgerFull
from ledger.log import Ledger
from ledger.report import write_report
from ledger.schema import Interrupted as InterruptedLine
from ledger.schema import NightFinished, NightResumed, NightStarted
from ledger.view import NightView, fold

OnEvent = Callable[[Event, NightView], None]


def new_folder(root: Path, config: NightConfig) -> Path:
    """logs/NAME-DATE-TIME, created. Raises NightProblem when it cannot be written."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder, number = root / f"{config.name}-{stamp}", 1
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:  # another night of this name may begin in the same second
            try:
                folder.mkdir()
                break
            except FileExistsError:
                number += 1
                folder = root / f"{config.name}-{stamp}-{number}"
        (folder / "artifacts").mkdir()
        (folder / "night.yaml").write_text(dump_resolved(config))
    except OSError as error:
        raise NightProblem(f"{folder} cannot be written ({error.strerror}): choose another with --logs") from error
    return folder


def start(config: NightConfig, root: Path, on_event: OnEvent | None = None) -> tuple[Path, int]:
    """A new night. Returns its folder and the exit code. Raises NightProblem before anything was begun."""
    card, _ = choose_card(config)
    versions = engine_versions(config.engine.python, config.engine.container)
    folder = new_folder(root, config)
    with Ledger.create(folder) as ledger:
        base = base_spec(config)
        overlay = Overlay.create(folder / "overlay", base)
        night = _night(config, card, folder, ledger, overlay, 0.0, on_event)
        night.emit(
            "night_started",
            NightStarted(config=config, card=card, versions=versions, guarded_files=night.guarded),
        )
        return folder, _to_the_end(night, Progress(base=base, incumbent=base))


def resume(folder: Path, on_event: OnEvent | None = None) -> tuple[Path, int]:
    """Go on with a night that was killed or interrupted. Raises NightProblem when there is nothing to go on with."""
    if not (folder / "ledger.jsonl").exists():
        raise NightProblem(f"{folder} holds no night (no ledger.jsonl): give a folder under logs/")
    config = load_night(folder / "night.yaml")
    with Ledger.resume(folder) as ledger:
        view = fold(ledger.events)
        if view.finish is not None and view.finish.outcome in ("done", "budget"):
            raise NightProblem(f"{folder.name} is finished: read {folder / 'report.md'}, or start a new night")
        if view.config is None:
            raise NightProblem(f"{folder.name} was stopped before its first line: start a new one, without --resume")
        for part in ("engine", "workload", "gate", "judge"):
            if getattr(config, part) != getattr(view.config, part):
                raise NightProblem(
                    f"{folder / 'night.yaml'} says another {part} than when the night began: restore it, or start a "
                    "new night"
                )
        if view.kept_ids and not (folder / "overlay" / ".git" / "HEAD").exists():
            raise NightProblem(f"{folder / 'overlay'} with the kept changes is gone: restore it, or start a new night")
        orphans = end_orphans(o.launch for o in view.open_launches)
        overlay = Overlay.create(folder / "overlay", base_spec(config))
        card = view.card if view.card is not None else choose_card(config)[0]
        night = _night(config, card, folder, ledger, overlay, view.used_s(), on_event, view)
        night.arms.remember(_ready_launches(ledger.events))
        night.guarded = view.guarded_files or guarded_files()
        progress, at_stage = checkpointed(night)
        _same_night(night, ledger.events, progress)
        night.emit(
            "night_resumed",
            NightResumed(at_stage=at_stage, lost=_lost(ledger.events, at_stage), ended_orphans=orphans),
        )
        base = base_spec(config)
        return folder, _to_the_end(night, progress or Progress(base=base, incumbent=base))


def _same_night(night: Night, events: Sequence[Event], progress: Progress | None) -> None:
    """Raises NightProblem when checkpoint or overlay no longer belong to this ledger. Beginning again in the same night
    would spend its budget of false keeps a second time; keeping on another stack would keep what nobody measured."""
    if progress is None:
        if any(e.kind == "stage_left" and e.data["stage"] != "preflight" for e in events):
            where = night.folder / "checkpoint.sqlite"
            raise NightProblem(f"{where} is gone or empty: restore it, or start a new night; the report stays")
        return
    incumbents = {Tunable.of(progress.incumbent).text()}
    if progress.trial is not None and progress.trial.candidate is not None:  # killed between the commit and its line
        incumbents.add(Tunable.of(progress.trial.candidate).text())
    if night.overlay.current().text() not in incumbents:
        where = night.folder / "overlay"
        raise NightProblem(f"{where} holds other changes than this night kept: restore it, or start a new night")


def _night(
    config: NightConfig,
    card: Card,
    folder: Path,
    ledger: Ledger,
    overlay: Overlay,
    used_s: float,
    on_event: OnEvent | None,
    view: NightView | None = None,
) -> Night:
    current = view if view is not None else NightView()

    def told(event: Event) -> None:
        nonlocal current
        current = current.after(event)
        if on_event:
            on_event(event, current)

    return Night(config, card, folder, ledger, overlay, used_s, told)


def _lost(events: Sequence[Event], at_stage: str | None) -> tuple[str, ...]:
    """In words: what was in flight when the night stopped and will be done again."""
    lost: list[str] = []
    began = max((i for i, e in enumerate(events) if e.kind == "stage_entered"), default=None)
    if began is None:
        return ()
    since = events[began:]
    if not any(e.kind == "stage_left" for e in since) or since[0].data["stage"] == at_stage:
        experiment = since[0].data.get("experiment_id")
        of = f" of experiment {experiment}" if experiment else ""
        lost.append(f"stage {since[0].data['stage']}{of} was in flight; it is done again")
        runs = sum(e.kind == "measured" for e in since)
        if runs:
            lost.append(f"the {runs} runs that it had measured stay in the ledger but count for nothing")
    return tuple(lost)


def _ready_launches(events: Sequence[Event]) -> list[LaunchRecord]:
    return [LaunchRecord.model_validate(e.data["launch"]) for e in events if e.kind == "launch_ready"]


def _to_the_end(night: Night, first: Progress) -> int:
    """Run, and on every way out: engines down, a last line, a report. The exit code says which way it was."""
    with _signals(night):
        finish = _finish(night, first)
        _last_words(night, finish)
    return finish.exit_code


def _finish(night: Night, first: Progress) -> NightFinished:
    def problem(reason: str) -> NightFinished:
        return NightFinished(outcome="problem", reason=reason, exit_code=1)

    try:
        try:
            last = run_graph(night, first)
        finally:
            night.end()
    except Interrupted as stop:
        reason = f"{stop} arrived; go on with --resume"
        return NightFinished(outcome="interrupted", reason=reason, exit_code=1)
    except Problem as found:
        return problem(str(found))
    except (LedgerError, OSError, sqlite3.Error) as error:
        return problem(_storage_problem(night.folder, error))
    except Exception as error:
        return problem(_bug(night.folder, error))
    return NightFinished(outcome="budget" if last.outcome == "budget" else "done", reason=last.reason, exit_code=0)


def _last_words(night: Night, finish: NightFinished) -> None:
    try:
        if finish.outcome == "interrupted":
            night.emit("interrupted", InterruptedLine(signal=finish.reason.split()[0]))
        night.emit("night_finished", finish)
    except (LedgerError, OSError) as error:
        print(f"the last lines could not be written to the ledger: {error}", file=sys.stderr)
    try:
        write_report(fold(night.ledger.events), night.folder)
    except (LedgerError, OSError) as error:
        print(f"the report could not be written: {error}", file=sys.stderr)


def _storage_problem(folder: Path, error: Exception) -> str:
    full = isinstance(error, LedgerFull) or getattr(error, "errno", None) == errno.ENOSPC or "full" in str(error)
    if full:
        return f"the disk under {folder} is full: free some space, then go on with --resume; nothing written is lost"
    return f"{type(error).__name__}: {error}: see to it, then go on with --resume"


def _bug(folder: Path, error: Exception) -> str:
    try:
        (folder / "artifacts" / f"error-{int(time.time())}.txt").write_text(traceback.format_exc())
    except OSError:
        traceback.print_exc()
    return (
        f"a fault in nightgate itself ({type(error).__name__}: {error}): please report it with artifacts/error-*.txt; "
        "the night can go on with --resume"
    )


@contextmanager
def _signals(night: Night) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the night in order; a second one while it is ending changes nothing. A SIGHUP that
    was ignored when we were started (nohup) stays ignored: the terminal may close."""
    stopping = False

    def handler(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            # not print: the signal may have come in the middle of one, and a buffered writer refuses to be re-entered
            os.write(2, b"already stopping: ending the engines and writing the report\n")
            return
        stopping = True
        night.interrupt(signal.Signals(number).name)

    ending = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    before = {n: signal.signal(n, handler) for n in ending}
    # Where the handler raises inside a finaliser or a weak reference's callback, Python drops that and prints it; the
    # night remembers the signal and raises at its next step (Night.check_interrupted), so nothing is to be said here.
    print_dropped = sys.unraisablehook
    sys.unraisablehook = lambda told: None if issubclass(told.exc_type, Interrupted) else print_dropped(told)
    try:
        yield
    finally:
        sys.unraisablehook = print_dropped
        for number, old in before.items():
            signal.signal(number, old)
