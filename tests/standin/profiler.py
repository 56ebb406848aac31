"""What the stand-in writes when it is profiled: a trace in the torch profiler's form, or a list of launches for the
stand-in rocprofv3 (rocm/bin/rocprofv3), of kernels that nobody ran."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

WARM_UP = 40  # launches of each kernel before it listens


def kernels(eager: bool) -> list[str]:
    return ["standin_step"] if eager else ["standin_step", "standin_compiled_step"]


class Profiler:
    """Made from --profiler-config's JSON, or None without that flag."""

    def __init__(self, config: str | None, eager: bool) -> None:
        asked: dict[str, Any] = json.loads(config) if config else {}
        self.folder = asked.get("torch_profiler_dir")
        self._names = kernels(eager)
        self._since: int | None = None

    def start(self, steps: int) -> None:
        self._since = steps

    def stop(self, steps: int) -> None:
        if self._since is None or self.folder is None:
            return
        kind = "cpu_op" if os.environ.get("STANDIN_NO_KERNELS") else "kernel"
        event = {"ph": "X", "cat": kind, "ts": 1.0, "dur": 1.0, "args": {"grid": [1, 1, 1], "block": [64, 1, 1]}}
        events = [{**event, "name": name} for _ in range(steps - self._since) for name in self._names]
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        with gzip.open(folder / f"rank0.{time.time_ns()}.pt.trace.json.gz", "wt") as file:
            json.dump({"traceEvents": events}, file)
        self._since = None


class Launches:
    """Appends "NAME START END" (CLOCK_BOOTTIME, ns) for every launch to the file STANDIN_LAUNCHES, where it is set: a
    warm-up, with a kernel that never comes again, and one of each kernel a token."""

    def __init__(self, eager: bool) -> None:
        path = os.environ.get("STANDIN_LAUNCHES")
        self._file = open(path, "a", buffering=1) if path else None  # noqa: SIM115
        self._names = kernels(eager)
        for name in ("standin_warm_up_only", *self._names) * WARM_UP:
            self._launch(name)

    def token(self) -> None:
        for name in self._names:
            self._launch(name)

    def _launch(self, name: str) -> None:
        if self._file:
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self._file.write(f"{name} {now} {now + 1000}\n")
