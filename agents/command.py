"""What all commands do alike: print, and turn every expected fault into one line and an exit code.

Imports nothing heavy: `report`, `verify` and `watch` answer without loading the night's machinery.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from ledger.errors import LedgerError, NoNight

DONE, PROBLEM, USAGE = 0, 1, 2


class Problem(Exception):
    """What a user can mend. Its text is one line that names the fix, or one line a problem."""

    exit_code = PROBLEM

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(str(self).splitlines())


def guarded_command(work: Callable[[], int]) -> int:
    """Run a command; faults that a user can mend become one line each on standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character that the terminal has not is no fault
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return work()
    except Problem as error:
        return say(error.lines, error.exit_code)
    except NoNight as error:
        return say([str(error)], USAGE)
    except LedgerError as error:
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


def say(lines: Iterable[str], code: int) -> int:
    for line in lines:
        print(f"nightgate: {line}", file=sys.stderr)
    return code


def print_json(value: Any) -> None:
    """What standard output's encoding has no character for is written as \\uXXXX, which every reader of JSON knows."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")  # None: standard output is closed
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    print(text)
