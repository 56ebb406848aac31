"""What one function or flag of an installed vLLM answers on a card: a few files of the tree, nothing of it is run."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.research.gates.evaluate import UNKNOWN, Raises
from agents.research.gates.files import MOST_BYTES, Files
from agents.research.gates.survey import Survey, survey
from agents.research.regular_file import read_regular

PLATFORM = "platforms/rocm.py"
AITER_OPS = "_aiter_ops.py"


def answer_of(package: Path, file: str, name: str, arch: str, **given: Any) -> Any:
    """`name` as the module `file` of the folder vllm has it, on an AMD card: its value, or UNKNOWN, which also stands
    for a name that is not there. `given`: names whose value is known."""
    try:
        states = tuple((f, (package / f).stat().st_mtime_ns) for f in (PLATFORM, file))
        found = _survey(package, arch, states)
    except (OSError, ValueError):
        return UNKNOWN
    module = found.files.module(f"{package.name}/{file}")
    module.parse(re.compile(rf"\bdef {name}\b"))
    functions = module.functions.get(name, [])
    if len(functions) != 1 or name in module.unsure:
        return UNKNOWN
    said = found.evaluator(module, **given).function(functions[0].node)
    return UNKNOWN if isinstance(said, Raises) else said


@lru_cache(maxsize=16)
def _survey(package: Path, arch: str, states: tuple[tuple[str, int], ...]) -> Survey:
    files = Files(package, arch=arch)
    for file in dict(states):
        files.texts[f"{package.name}/{file}"] = read_regular(str(package / file), MOST_BYTES)
    return survey(files, arch)
