"""The knobs of the vLLM that an interpreter would import: it is asked where its vllm folder is, nothing of vLLM is
imported, and the rest is read from source. A knob of another version is thereby dropped with a reason, never silently
applied."""

from __future__ import annotations

import functools
from pathlib import Path

from agents.research.image_tree import vllm_of
from agents.research.knobs import Knobs, KnobsError
from agents.research.vllm_source import knobs_from_source
from cards.installed import installed
from contracts import Container


def read_knobs(python: str, container: Container | None = None) -> Knobs:
    """The knobs of the vLLM that `python` would import. Raises KnobsError with one line where there is none."""
    package = find_vllm(python) if container is None else vllm_of(container)
    return _read(str(package), (package / "engine" / "arg_utils.py").stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(package: str, _changed: int) -> Knobs:
    return knobs_from_source(Path(package))


def find_vllm(python: str) -> Path:
    """The folder of the package `vllm`, whatever its distribution is called. Raises KnobsError."""
    answer = installed(python)
    if answer.vllm_folder and (Path(answer.vllm_folder) / "engine" / "arg_utils.py").is_file():
        return Path(answer.vllm_folder)
    if answer.problem:
        raise KnobsError(f"{python} {answer.problem}; set engine.python to the engine's interpreter")
    raise KnobsError(f"{python} has no vLLM; install one there, or set engine.python to an interpreter that has it")
