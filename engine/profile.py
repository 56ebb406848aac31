"""A bounded profile of an engine: a few engine steps under vLLM's own torch profiler.

    spec = profiled(spec, folder)          # before the launch: the flag that lets the profiler be switched on
    start_profile(engine)                  # then a short burst of requests
    traces = stop_profile(engine, folder)  # paths of the finished traces

A profiled engine is not the engine that is measured, so both arms get the flag, in launches of their own.
For cards whose torch was built without its GPU profiler there is engine/rocprof.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from contracts import EngineSpec, Failure, FailureKind
from engine.client import http_client
from engine.running import EngineFailure, RunningEngine

# Engine steps that are recorded: enough for a prompt and some decode steps of each request of a burst. One decode step
# of a large model has some 400 kernels (a real trace of vLLM on an MI300X); judged.
STEPS = 64
STOP_S = 120.0  # until the worker has written its trace; the torch profiler writes before it answers
SETTLE_S = 0.5  # a file that did not grow for this long, and was there at two looks, is whole
FLAG = "profiler-config"


def profiled(spec: EngineSpec, folder: Path, steps: int = STEPS) -> EngineSpec:
    """`spec` with vLLM's torch profiler built in but off; it records at most `steps` engine steps from start_profile on
    (vLLM 0.30 to 0.33, config/profiler.py). `folder` is absolute. Stacks are left out: they make an event some 30 times
    as long (agents/research/traces/stream.py)."""
    asked = {
        "profiler": "torch",
        "torch_profiler_dir": str(folder.absolute()),
        "torch_profiler_with_stack": False,
        "ignore_frontend": True,  # the API server's own process has no kernels
        "max_iterations": steps,
    }
    return spec.model_copy(update={"flags": {**spec.flags, FLAG: asked}})


def start_profile(engine: RunningEngine) -> None:
    """Raises EngineFailure: dead, or started without the flag of `profiled`."""
    _post(engine, "/start_profile")


def stop_profile(engine: RunningEngine, folder: Path, already: frozenset[Path] = frozenset()) -> tuple[Path, ...]:
    """Ends the recording (it may have ended by itself) and waits until its traces are written. `already`: traces of
    earlier recordings in the same folder. Raises EngineFailure when no trace came."""
    _post(engine, "/stop_profile")
    deadline, before = time.monotonic() + STOP_S, dict[Path, int]()
    while time.monotonic() < deadline:
        now = {path: path.stat().st_size for path in traces_in(folder) if path not in already}
        if now and now == before and all(now.values()):
            return tuple(sorted(now))
        before = now
        time.sleep(SETTLE_S)
    engine.check()
    raise _failed(f"the profiler wrote no trace into {folder} within {STOP_S:g} s; see the engine's log")


def traces_in(folder: Path) -> tuple[Path, ...]:
    """Finished or not: rank0.<n>.pt.trace.json.gz of each worker, or rocprofv3's *_kernel_trace.csv."""
    if not folder.is_dir():
        return ()
    found = [*folder.rglob("*.pt.trace.json*"), *folder.rglob("*_kernel_trace.csv")]
    return tuple(sorted(path for path in found if "async_llm" not in path.name))


def _post(engine: RunningEngine, path: str) -> None:
    try:
        with http_client(engine.base_url, STOP_S) as http:
            status = http.post(path).status_code
    except httpx.HTTPError as error:
        engine.check()  # dead or replaced: says so better than the failed request
        raise _failed(f"{path} was not answered: {type(error).__name__}: {error}") from error
    if status == 404:
        raise _failed(f"{path} is unknown to this engine: it was started without --{FLAG}, or its vLLM has none")
    if status != 200:
        engine.check()
        raise _failed(f"{path} answers {status}; see the engine's log")


def _failed(reason: str) -> EngineFailure:
    return EngineFailure(Failure(kind=FailureKind.HANG, reason=reason))
