"""Where set-up puts things, its steps, and what each step is made from."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from setup.engine_choice import GPU_DEVICES, VARIABLE
from setup.stamps import Stamps, key_of

PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True)
class Layout:
    """All paths, below one checkout."""

    root: Path

    @property
    def room(self) -> Path:
        return self.root / "setup"

    @property
    def loop(self) -> Path:
        return self.root / ".venv"

    @property
    def cpu_engine(self) -> Path:
        return self.root / ".venv-engine"

    @property
    def model(self) -> Path:
        return self.root / ".models" / "smollm2-135m-instruct"

    @property
    def engine_python(self) -> Path:
        """One line: the path of the Python that runs the engine."""
        return self.root / ".engine-python"

    @property
    def stamps(self) -> Stamps:
        return Stamps(self.root / ".stamps")

    def log(self, step: str) -> Path:
        return self.stamps.folder / f"{step}.log"


@dataclass(frozen=True)
class Step:
    """One thing to make: done when its stamp holds `key` and `made` exists."""

    name: str
    key: str
    made: Path

    def is_done(self, at: Layout) -> bool:
        return at.stamps.is_current(self.name, self.key, self.made)


def loop_step(at: Layout) -> Step:
    # The root is part of the key because an environment's scripts hold its path: a moved checkout makes it anew.
    return Step("loop", key_of(at.room / "loop.lock", PYTHON_VERSION, str(at.root)), at.loop / "bin" / "python")


def cpu_engine_step(at: Layout) -> Step:
    key = key_of(at.room / "engine-cpu.lock", PYTHON_VERSION, str(at.root))
    return Step("engine", key, at.cpu_engine / "bin" / "python")


def model_step(at: Layout) -> Step:
    sources = ("model.lock", "model.sha256", "convert_smollm2.py", "smollm2_documents.py", "gguf_file.py")
    return Step("model", key_of(*(at.room / name for name in sources)), at.model / "model.safetensors")


def choice_step(at: Layout) -> Step:
    """Keyed by what the choice depends on, as far as that is quick to see: importing vllm each time is not."""
    present = [str(device) for device in GPU_DEVICES if device.exists()]
    has_vllm = importlib.util.find_spec("vllm") is not None
    parts = (os.environ.get(VARIABLE, ""), repr(present), repr(has_vllm), sys.executable, str(at.root))
    return Step("choice", key_of(*parts), at.engine_python)
