"""Where an interpreter has the folder of a package: asked of the interpreter itself, importing nothing."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from agents.tuning.placed import PlacementError

TIME_LIMIT_S = 30.0  # as in cards/installed.py: 0.1 s on a warm machine, many on a cold network file system

# find_spec of a name without a dot imports nothing. What can be laid over is a folder with an __init__.py.
QUESTION = """
import importlib.util as u, json, os, sys
found = {}
for name in sys.argv[1:]:
    try: spec = u.find_spec(name)
    except (ImportError, ValueError): spec = None
    origin = spec.origin if spec is not None else None
    folder = os.path.dirname(origin) if origin and os.path.basename(origin) == "__init__.py" else None
    found[name] = folder if folder and os.path.isdir(folder) else None
print("nightgate-answer:" + json.dumps(found))
"""
# Of a name that is found and is no such folder: what it is.
OTHER = """
import importlib.util as u, os, sys
try: spec = u.find_spec(sys.argv[1])
except (ImportError, ValueError): spec = None
if spec is not None:
    origin = spec.origin or ""
    print("nightgate-answer:" + (
        "in a ZIP file" if os.path.basename(origin) == "__init__.py" else
        "a single module" if spec.submodule_search_locations is None else "a namespace package, without __init__.py"))
"""


@lru_cache(maxsize=64)
def package_folder(python: str, name: str, before: tuple[str, ...] = ()) -> Path | None:
    """The folder that `import name` reads in an interpreter with nothing but `before` on its PYTHONPATH, or None where
    there is none. The answer is kept for the life of this process. Raises PlacementError where it does not answer."""
    answer = ask(python, QUESTION, (name,), python_path=before).splitlines()
    told = [line.removeprefix("nightgate-answer:") for line in answer if line.startswith("nightgate-answer:")]
    if not told:
        raise PlacementError(f"{python} does not say where {name} is: set engine.python to a Python that answers")
    found = json.loads(told[-1])[name]
    return Path(found) if found else None


def need_package(python: str, name: str) -> Path:
    """The same. Raises PlacementError where there is none."""
    folder = package_folder(python, name)
    if folder is None:
        told = ask(python, OTHER, (name,)).strip().rpartition("nightgate-answer:")[2]
        if told:
            raise PlacementError(f"{name} of {python} is {told}: only a package's folder can be laid over; take it out")
        raise PlacementError(f"{python} has no package {name}: install it there, or take the change out")
    return folder


def ask(
    python: str,
    question: str,
    arguments: tuple[str, ...] = (),
    stdin: bytes = b"",
    python_path: tuple[str, ...] = (),
) -> str:
    """What `question` prints in this interpreter, started in an empty folder and without our variables; "" where it
    failed. Raises PlacementError where it cannot be run at all."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment |= {"PYTHONPATH": ":".join(python_path)} if python_path else {}
    with tempfile.TemporaryDirectory(prefix="nightgate-ask-") as neutral:
        try:
            done = subprocess.run(
                [python, "-c", question, *arguments],
                cwd=neutral, env=environment, input=stdin, capture_output=True, timeout=TIME_LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PlacementError(f"{python} did not answer within {TIME_LIMIT_S:.0f} s: set engine.python") from None
        except OSError as error:
            raise PlacementError(f"{python} cannot be run ({error.strerror}): set engine.python") from None
    return done.stdout.decode(errors="replace")
