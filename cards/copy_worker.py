"""How fast does this card copy memory and multiply matrices? Run by the engine's interpreter, by cards/ask.py.

JSON in on stdin: {"device": "cpu" | "gpu", "buffer_bytes", "repeats", "matmul": bool, "seconds"}. JSON out on the last
line, after "nightgate-answer:". Standard library and torch only, and nothing of this repository. Imported by nobody.

Copying: two buffers of `buffer_bytes` each, one written from the other, by `copy_` and by adding a constant; bytes read
plus bytes written a second. What a processor reads because it is about to write is not counted. Multiplying: 2 n^3 / s.
On a GPU the time is between two events of the device's own queue, on a CPU it is the wall clock's.

The GPU half follows torch's interface, which is the same for CUDA and ROCm builds; it was not yet run on an AMD card.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

WARM_UP = 3
FREE_SHARE = 8  # each buffer takes at most this part of the memory that is free
LEAST_SAMPLE_S = 0.002  # a sample is repeated inside until it lasts so long: an event's grain is about a microsecond
MOST_INSIDE = 64
EDGE = {"gpu": 4096, "cpu": 1024}  # of the square matrices
DTYPES = {"gpu": ("fp16", "bf16", "fp32"), "cpu": ("fp32", "bf16")}


def main() -> None:
    asked = json.load(sys.stdin)
    import torch

    on_gpu = asked["device"] == "gpu"
    if on_gpu and not torch.cuda.is_available():
        answer(problem="torch sees no GPU")
        return
    until = time.monotonic() + float(asked["seconds"])
    device = torch.device("cuda" if on_gpu else "cpu")
    clock = _gpu_clock(torch) if on_gpu else _wall_clock
    size = int(asked["buffer_bytes"])
    if on_gpu:
        free, _ = torch.cuda.mem_get_info()
        size = min(size, free // FREE_SHARE)
    ways = copies(torch, device, size, clock, int(asked["repeats"]), until)
    rates = products(torch, device, asked["device"], clock, int(asked["repeats"]), until) if asked["matmul"] else {}
    answer(
        buffer_bytes=size,
        copy_gb_s={name: [2 * size / t / 1e9 for t in times] for name, times in ways.items()},
        matmul_tflops=rates,
        identity=identity(torch) if on_gpu else {},
        threads=None if on_gpu else torch.get_num_threads(),
        torch=torch.__version__,
        hip=torch.version.hip,
        cuda=torch.version.cuda,
    )


def answer(**facts: Any) -> None:
    print("nightgate-answer:" + json.dumps(facts), flush=True)


Clock = Callable[[Callable[[], Any], int], float]


def _wall_clock(work: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def _gpu_clock(torch: Any) -> Clock:
    def clock(work: Callable[[], Any], times: int) -> float:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(times):
            work()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / times

    return clock


def samples(work: Callable[[], Any], clock: Clock, repeats: int, until: float) -> list[float]:
    """Seconds of one piece of work, `repeats` times after a warm-up; fewer, but one at least, once time is up."""
    for _ in range(WARM_UP):
        once = clock(work, 1)
        if time.monotonic() > until:
            break
    inside = max(1, min(MOST_INSIDE, int(LEAST_SAMPLE_S / max(once, 1e-6)) + 1))
    found = [clock(work, inside)]
    while len(found) < repeats and time.monotonic() < until:
        found.append(clock(work, inside))
    return [t for t in found if t > 0]


def copies(torch: Any, device: Any, size: int, clock: Clock, repeats: int, until: float) -> dict[str, list[float]]:
    """Seconds by way of copying. Ones, not zeros: pages of zeros that nobody wrote may all be one page."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.ones_like(source)
    ways: dict[str, Callable[[], Any]] = {
        "copy_": lambda: target.copy_(source),
        "add": lambda: torch.add(source, 1.0, out=target),
    }
    half = time.monotonic() + max(0.0, until - time.monotonic()) / 3
    return {name: samples(way, clock, repeats, half if name == "copy_" else until) for name, way in ways.items()}


def products(torch: Any, device: Any, kind: str, clock: Clock, repeats: int, until: float) -> dict[str, list[float]]:
    """TFLOPS by dtype; a dtype that this build cannot multiply is left out, and so is one that time did not reach."""
    dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    edge, found = EDGE[kind], {}
    for name in DTYPES[kind]:
        if time.monotonic() > until:
            break
        try:
            left = torch.full((edge, edge), 0.5, dtype=dtypes[name], device=device)
            out = torch.empty_like(left)
            times = samples(partial(torch.matmul, left, left, out=out), clock, repeats, until)
        except RuntimeError:
            continue
        found[name] = [2 * edge**3 / t / 1e12 for t in times]
    return found


def identity(torch: Any) -> dict[str, Any]:
    """What torch says of the card that it measured; a field that this version has not is absent."""
    told = torch.cuda.get_device_properties(0)
    names = ("name", "gcnArchName", "pci_domain_id", "pci_bus_id", "pci_device_id")
    return {name: getattr(told, name) for name in names if hasattr(told, name)}


if __name__ == "__main__":
    main()
