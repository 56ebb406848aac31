"""Starts the numerics process in the engine's interpreter and watches it. A crash and a hang are outcomes, not errors.

Imports no third-party package, so that benchmarks/kernel_numerics.py runs on a machine that has nothing but torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from engine.link import KeeperLink, KeeperLost, NotStarted

INSIDE = Path(__file__).resolve().parent / "inside"
# Inherited variables that would change what the kernels are or how they run.
DROPPED_PREFIXES = ("PYTHON", "VIRTUAL_ENV", "TRITON_", "TORCH_COMPILE", "TORCHINDUCTOR_", "TORCHDYNAMO_")
GRACE_S = 1.0  # a hung kernel does not hear SIGTERM
LOG_LINES = 12

Line = dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """`kernel`: module:attribute in one of the folders put on the path. `case`: a name of inside/operations, or
    module:attribute."""

    case: str
    kernel: str


@dataclass(frozen=True)
class Limits:
    """Seconds. `silent_s` without a new line ends the process: no single size takes that long. It also covers the
    import of torch, 60 s from a cold disk."""

    kernel_s: float = 300.0
    silent_s: float = 120.0


LIMITS = Limits()


@dataclass(frozen=True)
class Ended:
    """`lines` is what the process said, in order (inside/nightgate_numerics/__main__.py)."""

    how: Literal["finished", "crashed", "silent", "not_started"]
    words: str
    lines: tuple[Line, ...] = ()
    log_tail: tuple[str, ...] = ()


def environment(folders: Sequence[Path], inherited: Mapping[str, str], cache: Path) -> dict[str, str]:
    """Pure. The checkout itself is never on the path."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(DROPPED_PREFIXES)}
    path = [str(INSIDE), *(str(folder.absolute()) for folder in folders)]
    return kept | {"PYTHONPATH": os.pathsep.join(path), "TRITON_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}


def run_inside(
    python: str,
    kernels: Sequence[Kernel],
    folders: Sequence[Path],
    device: str = "auto",
    level: str = "auto",
    seed: int = 0,
    limits: Limits = LIMITS,
) -> Ended:
    """Runs all checks of these kernels, one after the other, in one process of `python`, from an empty folder."""
    with tempfile.TemporaryDirectory(prefix="nightgate-numerics-") as name:
        folder = Path(name)
        said, log = folder / "said.jsonl", folder / "log"
        job = {
            "kernels": [asdict(kernel) for kernel in kernels], "device": device, "level": level, "seed": seed,
            "seconds": limits.kernel_s, "out": str(said),
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job))
        said.touch()
        cwd = folder / "empty"
        cwd.mkdir()
        argv = [python, "-m", "nightgate_numerics", str(folder / "job.json")]
        try:
            link = KeeperLink(argv, environment(folders, os.environ, folder / "triton"), cwd, log, GRACE_S)
        except NotStarted as problem:
            return Ended("not_started", f"{python} cannot be run ({problem}): set engine.python")
        try:
            how, words = _watch(link, said, limits.silent_s)
        finally:
            with contextlib.suppress(KeeperLost):
                link.end()
        tail = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        if how == "crashed" and tail:
            words += f"; it said: {tail[-1][:300]}"
        return Ended(how, words, _lines(said), tuple(tail))


def _watch(link: KeeperLink, said: Path, silent_s: float) -> tuple[Literal["finished", "crashed", "silent"], str]:
    size, heard = 0, time.monotonic()
    while True:
        try:
            code = link.exit_code(wait_s=0.1)
        except KeeperLost:
            return "crashed", "the process lost its keeper"
        if code is not None:
            return ("finished", "") if code == 0 else ("crashed", f"the process {_exit_words(code)}")
        if (now := said.stat().st_size) != size:
            size, heard = now, time.monotonic()
        elif time.monotonic() - heard > silent_s:
            return "silent", f"no answer for {silent_s:g} s"


def _exit_words(code: int) -> str:
    if code > 0:
        return f"ended with code {code}"
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"


def _lines(path: Path) -> tuple[Line, ...]:
    """What was written whole; a process that died in mid-line leaves half a one."""
    found: list[Line] = []
    for text in path.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(text))
    return tuple(found)
