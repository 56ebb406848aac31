"""Reads earlier nights' ledgers for memory.py. A ledger that cannot be read is one line and no more."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from agents.research.memory import Memory, PastNight, Stack, difference, model_identity, remember, stack_of_night
from agents.research.regular_file import read_regular
from judge.words import count
from ledger.errors import LedgerError
from ledger.line import LEDGER, read_events
from ledger.view import NightView, fold
from ledger.words import stand_in

MOST_NIGHTS = 50  # the newest, by when their ledgers were last written
MOST_FOLDERS = 5_000  # that are looked at for their age
MOST_BYTES = 20 << 20  # of one ledger; a night of 8 hours writes a few hundred KB
MOST_CONFIG_BYTES = 1 << 20  # of a model's config.json


def read_nights(
    logs: Path, tonight: Stack | None = None, leave_out: Path | None = None, most: int = MOST_NIGHTS
) -> tuple[tuple[PastNight, ...], tuple[str, ...]]:
    """The newest nights of a folder, and a line for each that cannot be used. No folder: no nights.

    tonight: nights of another stack are then given up after their first line. leave_out: the folder of a night that
    is running, which cannot be its own past.
    """
    folders, notes = _folders(logs)
    nights: list[PastNight] = []
    others = 0
    for folder in folders[:most]:
        if leave_out is not None and folder.resolve() == leave_out.resolve():
            continue
        try:
            night = _night(folder, tonight)
        except (LedgerError, OSError, ValueError) as error:
            said = error.strerror or "cannot be read" if isinstance(error, OSError) else " ".join(str(error).split())
            notes.append(f"{folder.name}: its ledger is left out: {said.replace(str(folder), folder.name)[:200]}")
            continue
        if night is None:
            others += 1
        else:
            nights.append(night)
    if others:
        notes.append(f"{count(others, 'night')} of another stack, left out")
    if len(folders) > most:
        notes.append(f"not read: {count(len(folders) - most, 'older night')}; the newest {most} are")
    return tuple(nights), tuple(notes)


def earlier_nights(folder: Path) -> Memory:
    """What the nights beside this one say about its stack: its own ledger says which stack that is."""
    own = _night(folder, None)
    tonight = stack_of_night(own) if own else None
    if tonight is None:
        return Memory()
    nights, notes = read_nights(folder.parent, tonight, leave_out=folder)
    memory = remember(nights, tonight)
    return memory.model_copy(update={"notes": (*notes, *memory.notes)})


def _folders(logs: Path) -> tuple[list[Path], list[str]]:
    """Folders that hold a ledger, the one that was written last first."""
    found: list[tuple[float, Path]] = []
    notes: list[str] = []
    try:
        with os.scandir(logs) as entries:
            for number, entry in enumerate(entries):
                if number >= MOST_FOLDERS:
                    notes.append(f"more than {MOST_FOLDERS} entries beside each other: the rest is not looked at")
                    break
                try:
                    held = os.stat(Path(entry.path) / LEDGER)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # no night
                except OSError as error:
                    notes.append(f"{entry.name}: its ledger is left out: {error.strerror}")
                    continue
                if stat.S_ISREG(held.st_mode):
                    found.append((held.st_mtime, Path(entry.path)))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"earlier nights are not read: {error.strerror}"]
    return [path for _, path in sorted(found, key=lambda f: (-f[0], f[1].name))], notes


def _night(folder: Path, tonight: Stack | None) -> PastNight | None:
    """None: of another stack. Raises LedgerError, OSError, ValueError."""
    size = (folder / LEDGER).stat().st_size
    if size > MOST_BYTES:
        raise LedgerError(f"it has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read")
    events = read_events(folder)
    view = NightView()
    while view.config is None and (event := next(events, None)) is not None:  # a night's first line, as a rule
        view = view.after(event)
    path = view.config.engine.model if view.config else ""
    night = PastNight(name=folder.name, model=model_identity(path, _config(path)), view=view)
    stack = stack_of_night(night)
    if stand_in(view):
        return night  # memory.py says so; the rest of it counts for nothing
    if tonight is not None and stack is not None and difference(stack, tonight):
        return None
    return night.model_copy(update={"view": fold(events, view)})


def _config(model: str) -> dict[str, Any] | None:
    """The model's config.json as it is now, or None."""
    try:
        held = json.loads(read_regular(Path(model) / "config.json", MOST_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) else None
