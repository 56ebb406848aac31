"""An engine under rocprofv3, for cards whose torch was built without its GPU profiler. Pure but for looking for it.

    tool = rocprofv3_for(environment)              # its path, or None
    spec = under_rocprofv3(spec, tool, folder, ...)  # engine/command.py then puts rocprofv3 before the engine's command
    ...                                            # launch, burst, stop: the CSVs are written as the processes end

Written from ROCm's manual (docs 6.4 to 7.1, "Using rocprofv3") and the sources of rocprofiler-sdk (source/bin, the
shell script rocprofv3.sh that came first and rocprofv3.py since). Never run by us, on no card. What the rest rests on:

- rocprofv3 sets variables and then becomes the application (`exec`; os.execvpe): the process that was started keeps its
  pid and start time and is the engine itself. Nothing breaks where it stays as a parent: it is then the one that is
  asked to stop, and the rest of the tree is asked once it is gone (engine/keeper.py).
- It records from the start to the end of each process, warm-up and graph capture too. Its times are CLOCK_BOOTTIME in
  nanoseconds (rocprofiler-sdk, common/utility.hpp: default_clock_id; the HSA runtime's system clock), which
  `boottime_ns` reads: so what was launched during a burst can be told from the rest.
- A file is written by a process as it ends, so it must end in peace. rocprofv3's own signal handlers wait for the
  children before they let the application's run, while vLLM's API server asks its children to end in that very handler
  (ROCm/rocm-systems, pull requests 6026 and 6717: servers that hung, or were killed with nothing written; there
  --disable-signal-handlers is advised for applications that handle signals, as vLLM does). The option is newer than
  some rocprofv3; the variable that it sets is not refused by any.
- A process that ends by os._exit writes nothing: multiprocessing's forked children do. `vllm serve` spawns its own
  where VLLM_WORKER_MULTIPROC_METHOD does not say otherwise (vLLM 0.32, entrypoints/serve/utils/api_utils.py).
- vLLM kills what has not ended some seconds after it was asked: 5 s, or 15 s on ROCm (vLLM 0.32). Where the installed
  vLLM has a longer patience to set, it gets it.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from contracts import EngineSpec

TOOL, INTO = "NIGHTGATE_ROCPROFV3", "NIGHTGATE_ROCPROFV3_INTO"  # of spec.env: the program, and where its files go
NO_HANDLERS = {"ROCPROF_SIGNAL_HANDLERS": "0"}
PATIENCE_FLAG, PATIENCE_VARIABLE = "shutdown-timeout", "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"
ROCM = Path("/opt")


def rocprofv3_for(environment: Mapping[str, str], root: Path = ROCM) -> str | None:
    """The rocprofv3 that an engine with this environment would find: on its PATH, in its ROCM_PATH, in /opt/rocm, or in
    the newest /opt/rocm-*; None where there is none."""
    versions = sorted(root.glob("rocm-*"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])
    own = environment.get("ROCM_PATH")
    folders = [*([Path(own)] if own else []), root / "rocm", *reversed(versions)]
    places = [environment.get("PATH", ""), *(str(folder / "bin") for folder in folders)]
    return shutil.which("rocprofv3", path=":".join(places))


def under_rocprofv3(
    spec: EngineSpec, tool: str, folder: Path, patience_s: float, flags: Collection[str], env: Collection[str]
) -> EngineSpec:
    """`spec` as an engine that rocprofv3 starts, with its files in `folder`: another spec, so that nothing takes it for
    the plain engine. `patience_s`: how long its processes may take to end; `flags` and `env` are the names that the
    installed vLLM knows."""
    patience = max(1, round(patience_s))
    own_flags = {PATIENCE_FLAG: patience} if PATIENCE_FLAG in flags else {}
    own_env = {PATIENCE_VARIABLE: str(patience)} if PATIENCE_VARIABLE in env else {}
    marks = {TOOL: tool, INTO: str(folder.absolute())}
    return spec.model_copy(
        update={"flags": {**own_flags, **spec.flags}, "env": {**NO_HANDLERS, **own_env, **spec.env, **marks}}
    )


def rocprof_command(command: list[str], env: Mapping[str, str]) -> list[str]:
    """`command`, under rocprofv3 where `env` (of a spec) says so. Every process of it that launches kernels writes
    FOLDER/<host>/<pid>_kernel_trace.csv as it ends."""
    if not (env.get(TOOL) and env.get(INTO)):
        return command
    return [env[TOOL], "--kernel-trace", "--output-format", "csv", "-d", env[INTO], "--", *command]


def boottime_ns() -> int:
    """Now, by the clock of rocprofv3's Start_Timestamp and End_Timestamp."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
