"""One question to an interpreter that is not ours: a short program that it runs, and that answers with JSON.

The child starts in an empty folder and without our PYTHON* variables: it sees what an engine would see, and no folder
of this project. Whatever else it prints (a sitecustomize, a warning) does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cards.ask_container import question as in_image
from contracts import Container

LIMIT_S = 30.0  # 0.1 s on a warm 2-core machine; a cold network file system may take many
IMAGE_LIMIT_S = 120.0  # a container is made in about a second; the first one of a large image may take a minute
IMAGE_FIX = "correct engine.container.image, .python or .runtime (`run_night.py doctor` says more)"
MARK = "nightgate-answer:"  # on a line of its own, before the JSON
# The question is the first argument. It is given `answer`, and its own arguments as sys.argv[1:].
RUN = f"""
import json, sys
def answer(value): print("\\n{MARK}" + json.dumps(value), flush=True)
exec(compile(sys.argv.pop(1), "question", "exec"), {{"__name__": "__main__", "answer": answer}})
"""


class NoAnswer(Exception):
    """One line with the fix. `what` is the part of it that follows the interpreter's name: "does not exist"."""

    def __init__(self, who: str, what: str, fix: str) -> None:
        super().__init__(f"{who} {what}: {fix}")
        self.what = what


def ask(
    python: str,
    question: str,
    arguments: tuple[str, ...] = (),
    *,
    container: Container | None = None,  # its image's interpreter is asked; `given` and `env` do not reach it
    given: object = None,
    env: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> Any:
    """What `question` hands to `answer`. `given` is JSON on its standard input; `env` is added to our variables. An
    answer counts whatever the exit code. Raises NoAnswer."""
    limit_s = limit_s or (LIMIT_S if container is None else IMAGE_LIMIT_S)
    if container is None:
        who, fix = python, "set engine.python to the engine's interpreter"
        line = [_found(python, fix), "-c", RUN, question, *arguments]
    else:
        who, fix = f"{container.python} in {container.image}", IMAGE_FIX
        line = in_image(container, RUN, (question, *arguments))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory(prefix="nightgate-ask-") as neutral:
        try:
            done = subprocess.run(
                line, cwd=neutral, env={**ours, **(env or {})}, input=json.dumps(given), capture_output=True,
                encoding="utf-8", errors="replace", timeout=limit_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoAnswer(who, f"did not answer within {limit_s:g} s", fix) from None
        except OSError as error:
            absent = container is not None and isinstance(error, FileNotFoundError)
            why = f"{line[0]} is not installed" if absent else error.strerror
            raise NoAnswer(who, f"could not be run ({why})", fix) from None
    why = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    _, mark, told = done.stdout.rpartition(MARK)
    if mark:
        try:
            return json.loads(told.partition("\n")[0])
        except ValueError:
            why = "its answer is no JSON"
    why = "".join(filter(str.isprintable, " ".join(why.split())))[:120]
    raise NoAnswer(who, f"is no Python that answers (exit code {done.returncode}: {why})", fix)


def _found(python: str, fix: str) -> str:
    """Its path from any folder; a name alone is looked for in PATH. Links are kept: a virtual environment is one."""
    if (found := shutil.which(python)) is not None:
        return os.path.abspath(found)
    path = Path(python)
    what = "is a folder" if path.is_dir() else "cannot be run by this user" if path.exists() else "does not exist"
    raise NoAnswer(python, what, fix)
