"""Runs a job in this interpreter:  python -m nightgate_numerics JOB.json

The job: {"kernels": [{"case": name or module:attribute, "kernel": module:attribute}], "device": "auto" | "cpu" |
"cuda", "level": "auto" | a level's name, "seed": int, "seconds": per kernel, "out": file}. The i-th kernel gets the
numbers of seed + i, so that one that is listed twice is tried with other numbers. One JSON line for each thing, flushed
at once, so that whoever reads the file knows what was under way when this process died:

    {"event": "machine", ...}                                   what runs here
    {"event": "kernel", "index", "kernel", "case", "left_out"}  or with "not_run" / "raises": why it cannot be tried
    {"event": "try", "index", "what"}                           begun
    {"event": "seen", "index", "what", "label", "findings", "calls", "rms_ratio", "largest", ...}
    {"event": "replay", "index", "mode", "captures", "steps", "findings", ...}
    {"event": "end", "index", "seconds", "stopped": null, or why not everything was tried}
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO

import torch

from .case import Case, items, left_out
from .checks import RAISES, DeviceIsLost, Kernel, PlainIsOff, Seen, examine
from .operations import CASES
from .replay import replayed

Line = dict[str, Any]

# Seen with Triton 3.9.0: errors of up to 1 ulp, -0.5 on average, where the same kernel compiled has 0.5 and 0.
NOT_INTERPRETED = {"bfloat16": "Triton's interpreter cuts float32 to bfloat16 instead of rounding"}


class CannotTry(Exception):
    """Why; `outcome` is "not_run" or "raises"."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


class Out:
    def __init__(self, file: TextIO) -> None:
        self.file = file

    def say(self, event: str, **data: object) -> None:
        self.file.write(json.dumps({"event": event} | data) + "\n")
        self.file.flush()


def attribute(path: str) -> Any:
    """Raises CannotTry: not_run where triton (or torch) is missing here, raises where the module is at fault."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] == "triton":
            raise CannotTry("not_run", f"{path} needs Triton, which this interpreter does not have") from missing
        raise CannotTry("raises", f"{path} cannot be imported: {missing}") from missing
    except Exception as problem:  # a module may raise anything
        raise CannotTry("raises", f"{path} cannot be imported: {type(problem).__name__}: {problem}") from problem
    return found


def machine(device: torch.device) -> Line:
    try:
        triton: str | None = importlib.import_module("triton").__version__
    except Exception:  # absent, or broken in this interpreter
        triton = None
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": device.type, "name": name, "torch": torch.__version__, "triton": triton,
        "python": platform.python_version(),
    }  # fmt: skip


def interpreted(kernel: Kernel) -> bool:
    """Its module holds Triton code that runs in Triton's interpreter."""
    found = vars(sys.modules[kernel.__module__]).values()
    return any(type(value).__name__ == "InterpretedFunction" for value in found)


def try_kernel(out: Out, index: int, asked: Mapping[str, str], job: Line, device: torch.device) -> None:
    begun = time.monotonic()
    label = {"kernel": asked["kernel"], "case": asked["case"]}
    try:
        case: Case = CASES.get(asked["case"]) or attribute(asked["case"])
        kernel: Kernel = attribute(asked["kernel"])
        edges: Mapping[str, tuple[int, ...]] = getattr(sys.modules[kernel.__module__], "EDGES", {})
        name = job["level"] if job["level"] != "auto" else ("serving" if device.type == "cuda" else "small")
        level = case.levels[name]
        in_python = interpreted(kernel)
        dtypes = tuple(dtype for dtype in case.dtypes if not (in_python and dtype in NOT_INTERPRETED))
        todo = list(items(case, level, dtypes, edges))
    except CannotTry as cannot:
        return out.say("kernel", index=index, **label, **{cannot.outcome: str(cannot)})
    except (ValueError, KeyError) as problem:
        return out.say("kernel", index=index, **label, **{RAISES: f"cannot be tried: {problem}"})
    missed = [f"{dtype}: {NOT_INTERPRETED[dtype]}" for dtype in case.dtypes if dtype not in dtypes]
    missed += left_out(level, edges)
    seed = job["seed"] + index
    out.say("kernel", index=index, **label, level=name, items=len(todo), left_out=missed, interpreted=in_python)
    stopped: str | None = None
    try:
        for number, item in enumerate(todo):
            if time.monotonic() - begun > job["seconds"]:
                stopped = f"out of time ({job['seconds']:g} s) after {number} of {len(todo)} sizes and views"
                break
            free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else 0
            if item.layout.device_bytes > free:
                out.say("skip", index=index, what=str(item), why=f"needs {item.layout.device_bytes >> 30} GiB free")
                continue
            out.say("try", index=index, what=str(item))
            seen = examine(case, kernel, item, device, seed)
            say_seen(out, index, "seen", seen, what=str(item), label=item.label)
        else:
            out.say("try", index=index, what="graph replay")
            found = replayed(case, kernel, level, device, seed, traceable=not in_python)
            say_seen(out, index, "replay", found.seen, mode=found.mode, captures=found.captures, steps=found.steps)
    except PlainIsOff as problem:
        stopped = str(problem)
    except DeviceIsLost as lost:
        say_seen(out, index, "seen", Seen(findings=[(RAISES, str(lost))]), what="", label="the device was lost")
        out.say("end", index=index, seconds=time.monotonic() - begun, stopped="the device takes no further calls")
        raise
    out.say("end", index=index, seconds=round(time.monotonic() - begun, 3), stopped=stopped)


def say_seen(out: Out, index: int, event: str, seen: Seen, **data: object) -> None:
    out.say(event, index=index, **data, **asdict(seen))


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        job: Line = json.load(file)
    kind = job["device"] if job["device"] != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(kind)
    if kind == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before a kernel's module is imported
        torch.set_num_threads(1)  # tensors are small here: a second thread only waits, and sums keep one order
    torch.backends.cuda.matmul.allow_tf32 = False  # references and plain implementations are to be what they say
    with open(job["out"], "a", encoding="utf-8") as file:
        out = Out(file)
        out.say("machine", **machine(device))
        for index, asked in enumerate(job["kernels"]):
            try:
                try_kernel(out, index, asked, job, device)
            except DeviceIsLost:
                return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
