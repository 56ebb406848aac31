"""How much memory and time a big torch-profiler trace takes to read. Makes one up and prints a line.

    python -m benchmarks.trace_memory --megabytes 1000

What is asked of `agents/research/traces`: 1 GB in 500 MB of memory. The made-up trace has the mix of a real one with
stacks (a decode step of vLLM: half of the events are Python functions, a quarter arrows, a fifth kernels), a step
annotation each 400 kernels, and kernel names of 20 to 400 characters.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agents.research.traces.read import read_trace

KERNELS_A_STEP = 400
STEP_US = 10_000.0
NAMES = [f"kernel_{n}<{'float, ' * (n % 50)}int>" for n in range(300)]


def events() -> Iterator[dict[str, object]]:
    """Without end: for each kernel a launch, two arrows, a Python function, a cpu_op now and then."""
    number = 0
    while True:
        step, place = divmod(number, KERNELS_A_STEP)
        ts = step * STEP_US + place * 20.0
        host = {"ph": "X", "pid": 7, "tid": 7, "ts": ts, "dur": 9.5}
        if place == 0:
            name = f"execute_context_{int(step % 10 == 0)}({512 * (step % 10 == 0)})_generation_8(8)"
            yield {**host, "cat": "user_annotation", "name": name, "dur": 8000.0, "args": {"Ev Idx": number}}
        for depth in range(2):
            ids = {"Python parent id": number, "Python id": number + depth, "Ev Idx": number}
            yield {**host, "cat": "python_function", "name": f"vllm/model_{depth}.py(117): forward", "args": ids}
        if place % 4 == 0:
            dims = {"Input Dims": [[1024, 72], [], [32]], "Input type": ["int", "Scalar"], "Ev Idx": number}
            yield {**host, "cat": "cpu_op", "name": "aten::slice", "args": dims}
        yield {**host, "cat": "cuda_runtime", "name": "hipLaunchKernel", "args": {"correlation": number}}
        yield {"ph": "f", "id": number, "pid": 7, "tid": 7, "ts": ts, "cat": "ac2g", "name": "ac2g", "bp": "e"}
        args = {"device": 0, "stream": 0, "correlation": number, "kind": "Dispatch Kernel", "grid": [64, 1, 1]}
        gpu = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 0, "ts": ts + 500, "dur": 15.0, "args": args}
        yield {**gpu, "name": NAMES[number % len(NAMES)]}
        number += 1


def write(path: Path, size: int) -> int:
    """A trace of about `size` bytes; the number of its events."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "made up"}], "traceEvents": [\n  ')
        for event in events():
            file.write((",\n  " if count else "") + json.dumps(event))
            count += 1
            if count % 1000 == 0 and file.tell() >= size:
                break
        file.write("\n]}\n")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=1000.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made_up.json"
        count = write(path, int(asked.megabytes * 1e6))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.process_time()
        trace = read_trace(path)
        took = time.process_time() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = path.stat().st_size
    kernels = sum(phase.launches for phase in trace.phases)
    print(
        f"{size / 1e6:.0f} MB, {count} events, {kernels} kernels in {len(trace.steps)} steps: {took:.1f} s of CPU, "
        f"{count / took:,.0f} events/s, peak memory {peak / 1024:.0f} MiB ({before / 1024:.0f} MiB before)"
    )
    if trace.warnings:
        print("; ".join(trace.warnings))


if __name__ == "__main__":
    main()
