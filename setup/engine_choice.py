"""Which Python runs the engine: the user's own, or the CPU engine that set-up installs.

| NIGHTGATE_ENGINE_PYTHON | GPU device | python3 can import vllm | engine |
| --- | --- | --- | --- |
| set | any | any | that Python, never modified; an error when it cannot import vllm |
| not set | yes | yes | python3, never modified |
| not set | yes | no | the CPU engine, with a warning |
| not set | no | any | the CPU engine |
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "NIGHTGATE_ENGINE_PYTHON"
GPU_DEVICES = (Path("/dev/kfd"), Path("/dev/nvidia0"))
# A first import of a GPU build of vLLM took 60 s from a cold disk; a hang must still end.
IMPORT_LIMIT_S = 300

CanImportVllm = Callable[[str], bool]


class EngineChoiceError(ValueError):
    """The named engine cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class EngineChoice:
    """`python` is None when set-up is to install the CPU engine."""

    python: str | None
    reason: str
    warning: str = ""


def can_import_vllm(python: str) -> bool:
    """Try it in a fresh process, from / so that no folder of this checkout is taken for a package."""
    try:
        done = subprocess.run([python, "-c", "import vllm"], cwd="/", capture_output=True, timeout=IMPORT_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def choose_engine(
    environment: Mapping[str, str],
    system_python: str,
    devices: tuple[Path, ...] = GPU_DEVICES,
    can_import: CanImportVllm = can_import_vllm,
) -> EngineChoice:
    """Apply the table above. Raises EngineChoiceError when the variable names a Python that cannot import vllm."""
    named = environment.get(VARIABLE, "").strip()
    if named:
        return EngineChoice(_named_python(named, can_import), f"{VARIABLE} names it")
    present = [str(device) for device in devices if device.exists()]
    if not present:
        return EngineChoice(None, "no GPU device here")
    if can_import(system_python):
        return EngineChoice(system_python, f"{present[0]} is present and this Python has vLLM")
    return EngineChoice(
        None,
        f"{present[0]} is present, but {system_python} cannot import vllm",
        f"a GPU is present ({present[0]}) but {system_python} cannot import vllm, so the CPU engine is used: "
        f"to tune the GPU, set {VARIABLE} to the Python that has its vLLM",
    )


def _named_python(named: str, can_import: CanImportVllm) -> str:
    found = shutil.which(os.path.expanduser(named))
    if found is None:
        raise EngineChoiceError(f"{VARIABLE}={named} is not a program: give the path of the Python that has vLLM")
    # Absolute but not resolved: behind a virtual environment's link lies a Python without its packages.
    python = os.path.abspath(found)
    if not can_import(python):
        raise EngineChoiceError(
            f"{VARIABLE}={named} cannot import vllm: run {python} -c 'import vllm' to see why, or unset {VARIABLE}"
        )
    return python
