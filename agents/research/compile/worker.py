"""Compiles Triton kernels for a card that is not here. Run by an interpreter that has Triton: `python -I -P worker.py`.

JSON in on stdin: {"each_s", "memory_bytes", "jobs": [...]}. One JSON line out for each job, in order, then the end.
Standard library and triton only, and nothing of this repository: the interpreter is the engine's.

A job is {"kind": "compile" | "count", "source", "kernel", "arch", "launches": [{parameter: value}], "heuristics",
"options"}. A value is plain JSON, {"pointer": "bfloat16"} or {"dtype": "bfloat16"}. `compile` compiles the first launch
and answers with the assembly; `count` compiles nothing and answers with the number of different cache keys.

Each job runs in a fork of its own, with limits on time and memory: a crash, a hang or a refusal is that job's answer.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from typing import Any


def wall_limit(seconds: float) -> float:
    """For a job that may take `seconds` of processor time: what waits is ended too, but a busy machine is no hang."""
    return 6 * seconds + 20


class _Pointer:
    """Looks like a tensor to Triton's binder: aligned to 16 bytes, under 2 GiB."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        return 0

    def ptr_range(self) -> int:
        return 0


class _Driver:
    """Says which card there would be. Nothing can be launched with it."""

    def __init__(self, arch: str) -> None:
        self.arch = arch

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", self.arch, 64 if self.arch.startswith("gfx9") else 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


def _value(raw: Any) -> Any:
    if isinstance(raw, dict) and "pointer" in raw:
        return _Pointer(raw["pointer"])
    if isinstance(raw, dict) and "dtype" in raw:
        import triton.language as tl

        return getattr(tl, raw["dtype"])
    return raw


def _load(job: dict[str, Any]) -> Any:
    """The job's text as a module. From a file, because Triton reads a kernel's source back."""
    name = f"kernel_{os.getpid()}"
    path = os.path.join(os.getcwd(), f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(job["source"])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _arguments(job: dict[str, Any], module: Any, launch: dict[str, Any]) -> dict[str, Any]:
    """By name, with the values that @triton.heuristics would add."""
    arguments = {name: _value(raw) for name, raw in launch.items()}
    for name, text in job.get("heuristics", {}).items():
        if name not in arguments:
            try:
                arguments[name] = eval(text, vars(module))({**arguments, **job.get("options", {})})
            except Exception as error:
                raise ValueError(f"the heuristic of {name} cannot be computed: {error!r}") from None
    return arguments


def _compile(job: dict[str, Any]) -> dict[str, Any]:
    module = _load(job)
    arguments = _arguments(job, module, job["launches"][0])
    began = time.process_time()  # of the processor: the machine may be busy with something else
    compiled = getattr(module, job["kernel"]).warmup(grid=(1,), **arguments, **job.get("options", {}))
    seconds = time.process_time() - began
    return {
        "outcome": "done",
        "assembly": compiled.asm["amdgcn"],
        "shared": compiled.metadata.shared,
        "warps": compiled.metadata.num_warps,
        "seconds": seconds,
    }


def _count(job: dict[str, Any]) -> dict[str, Any]:
    """Different keys that the binder asks the cache for. The hook says that each is compiled already."""
    import triton

    keys: set[str] = set()

    def seen(*_args: Any, **kwargs: Any) -> bool:
        keys.add(str(kwargs["key"]))
        return True

    knobs = getattr(triton, "knobs", None)
    if knobs is not None:
        knobs.runtime.jit_cache_hook = seen
    else:  # before Triton 3.4
        triton.runtime.jit.JITFunction.cache_hook = seen
    module = _load(job)
    kernel = getattr(module, job["kernel"])
    for launch in job["launches"]:
        kernel.warmup(grid=(1,), **_arguments(job, module, launch), **job.get("options", {}))
    return {"outcome": "done", "variants": len(keys)}


def _work(job: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    try:
        from triton.runtime.driver import driver

        driver.set_active(_Driver(job["arch"]))
        return _compile(job) if job["kind"] == "compile" else _count(job)
    except MemoryError:
        return {"outcome": "refused", "reason": "out of the memory that one compile may take"}
    except BaseException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return {"outcome": "refused", "reason": f"{type(error).__name__}: {lines[-1] if lines else ''}"[:400]}


def _child(job: dict[str, Any], out: int, seconds: float, memory: int) -> None:
    """Never returns."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # what a kernel's text prints is no answer
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(int(wall_limit(seconds)) + 2)  # should the worker die before it
    answer = json.dumps(_work(job)).encode()
    while answer:
        answer = answer[os.write(out, answer) :]
    os._exit(0)


def _guarded(job: dict[str, Any], seconds: float, memory: int) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _child(job, writing, seconds, memory)
        finally:
            os._exit(70)
    os.close(writing)
    parts: list[bytes] = []
    deadline = time.monotonic() + wall_limit(seconds)
    hung = False
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            hung = True
            break
        part = os.read(reading, 1 << 16)
        if not part:
            break
        parts.append(part)
    os.close(reading)
    if hung:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    stopped = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if hung or stopped in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM):
        return {"outcome": "hang", "reason": f"not done within {seconds:g} s"}
    try:
        answer = json.loads(b"".join(parts))
        return answer if isinstance(answer, dict) else {"outcome": "crash", "reason": "no answer"}
    except ValueError:
        how = signal.Signals(stopped).name if stopped else f"exit status {os.waitstatus_to_exitcode(status)}"
        return {"outcome": "crash", "reason": f"the compiler ended by {how}"}


class _NoTorch:
    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("no torch in here", name="torch")


def _preload() -> None:
    """What every job needs, once and before the forks: the code generator, and the hash of all of Triton's own files
    for its cache's keys. Where a version keeps them elsewhere, each job does it for itself. Triton's AMD part imports
    torch where there is one, only to look at tensors: 2 s of every job's 3, so here there is none."""
    sys.meta_path.insert(0, _NoTorch())
    import triton  # noqa: F401

    with contextlib.suppress(Exception):
        from triton.backends.amd import compiler

        compiler._load_amd_codegen(compiler.get_amd_codegen_path())
    with contextlib.suppress(Exception):
        from triton.runtime.cache import triton_key

        triton_key()


def main() -> None:
    request = json.load(sys.stdin)
    _preload()
    for job in request["jobs"]:
        print(json.dumps(_guarded(job, request["each_s"], request["memory_bytes"])), flush=True)


if __name__ == "__main__":
    main()
