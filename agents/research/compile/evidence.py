"""Cross compiles in a child process, remembered on disk.

The text that is compiled comes from the audited tree, so running it is running that tree's code: it happens only with
an interpreter that the audit was given, in isolated mode (-I -P), in an empty folder that is removed afterwards, with
an environment of a few variables, and with limits on time and memory. It is not a sandbox: the code has the rights of
whoever runs the audit. One compile that is refused, crashes or hangs is a result, not the end.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from agents.research.compile.amdgcn import AssemblyError, KernelEvidence, parse_assembly
from agents.research.remembered import recall, remember
from contracts import Frozen, content_hash

WORKER = Path(__file__).with_name("worker.py")
FORMAT = 1  # raised when a remembered result would no longer be computed the same way
# 0.06 to 0.5 s for most kernels, 16 s for the worst of eight (2-core x86 machine, Triton 3.9.0).
EACH_S = 20.0
MEMORY_BYTES = 6 << 30  # of address space; LLVM's libraries alone map about 1 GiB
MAX_JOBS = 64  # in one child

_ASK = """
import importlib.util, json
spec = importlib.util.find_spec("triton")
print(json.dumps(spec.origin if spec else None))
"""


class Toolchain(Frozen):
    """An interpreter that has Triton."""

    python: str
    triton: str  # its version


class Job(Frozen):
    """Values are plain JSON, {"pointer": "bfloat16"} or {"dtype": "bfloat16"}. `launches`: one of them for a compile,
    one for each batch size for a count."""

    kind: Literal["compile", "count"]
    source: str  # a module's text that needs triton alone
    kernel: str
    arch: str
    launches: tuple[dict[str, JsonValue], ...]
    heuristics: dict[str, str] = {}  # of @triton.heuristics: parameter -> text of its lambda
    options: dict[str, JsonValue] = {}  # num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim, kpack


class Result(Frozen):
    """`kernel` after a compile, `variants` after a count."""

    outcome: Literal["done", "refused", "crash", "hang"]
    reason: str = ""
    kernel: KernelEvidence | None = None
    variants: int | None = None


def find_toolchain(python: str) -> Toolchain | None:
    """None unless `python` is a file and Triton can be imported there. Asked once for each interpreter."""
    path = Path(python)
    if not path.is_absolute() or not path.is_file():
        return None
    return _ask(python, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _ask(python: str, _changed: int) -> Toolchain | None:
    try:
        done = subprocess.run(
            [python, "-I", "-P", "-c", _ASK], capture_output=True, text=True, cwd="/", timeout=20, check=False, env={}
        )
        origin = json.loads(done.stdout) if done.returncode == 0 else None
        text = Path(origin).read_text(encoding="utf-8") if origin else ""
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"^__version__\s*=\s*[\"']([^\"']+)", text, re.MULTILINE)
    return Toolchain(python=python, triton=found.group(1)) if found else None


def run_jobs(toolchain: Toolchain, jobs: list[Job], cache: Path | None, each_s: float = EACH_S) -> list[Result]:
    """One result a job, in order. Results that the compiler would give again are remembered in `cache`, by the hash of
    text, arguments, options and Triton's version; a crash or a hang is not. None: nothing is remembered."""
    keys = [content_hash([FORMAT, toolchain.triton, job.model_dump(mode="json")], length=32) for job in jobs]
    found = {key: kept for key in set(keys) if cache is not None and (kept := recall(cache, key, Result)) is not None}
    missing = {key: job for key, job in zip(keys, jobs, strict=True) if key not in found}
    for start in range(0, len(missing), MAX_JOBS):
        part = list(missing.items())[start : start + MAX_JOBS]
        for (key, _), result in zip(part, _in_child(toolchain, [job for _, job in part], each_s), strict=True):
            found[key] = result
            if cache is not None and result.outcome in ("done", "refused"):
                remember(cache, key, result)
    return [found[key] for key in keys]


def _in_child(toolchain: Toolchain, jobs: list[Job], each_s: float) -> list[Result]:
    request = {"each_s": each_s, "memory_bytes": MEMORY_BYTES, "jobs": [job.model_dump(mode="json") for job in jobs]}
    limit = 60 + len(jobs) * (6 * each_s + 25)  # the worker ends each job before that
    with tempfile.TemporaryDirectory(prefix="nightgate-compile-") as folder:
        # Fusion as in Triton 3.9 and before: unset, 3.10 would decide otherwise.
        env = {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8"}
        env |= {"TRITON_CACHE_DIR": f"{folder}/triton", "TRITON_DEFAULT_FP_FUSION": "1"}
        try:
            done = subprocess.run(
                [toolchain.python, "-I", "-P", str(WORKER)],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                cwd=folder,
                env=env,
                timeout=limit,
                check=False,
            )
            out, why = done.stdout, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        except subprocess.TimeoutExpired as late:
            out = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
            why = f"the compiler's process took more than {limit:.0f} s"
        except OSError as error:
            out, why = "", f"{toolchain.python} cannot be run: {error.strerror or error}"
    lines = out.splitlines()[: len(jobs)]
    results = [_result(line, job) for line, job in zip(lines, jobs, strict=False)]
    return results + [Result(outcome="crash", reason=why[:300])] * (len(jobs) - len(results))


def _result(line: str, job: Job) -> Result:
    try:
        raw = json.loads(line)
        if raw["outcome"] != "done":
            return Result(outcome=raw["outcome"], reason=str(raw["reason"]))
        if job.kind == "count":
            return Result(outcome="done", variants=int(raw["variants"]))
        kernel = parse_assembly(raw["assembly"], job.arch, int(raw["warps"]), int(raw["shared"]), float(raw["seconds"]))
        return Result(outcome="done", kernel=kernel)
    except AssemblyError as error:
        return Result(outcome="refused", reason=str(error))
    except (ValueError, KeyError, TypeError) as error:
        return Result(outcome="crash", reason=f"the compiler's process answered with something else: {error!r}"[:300])
