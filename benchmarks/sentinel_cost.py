"""What the sentinel costs: CPU time of its thread a second of a measurement window. The bound is 1 % of one core.

    .venv/bin/python -m benchmarks.sentinel_cost

The card's row reads files in the kernel's format on this machine's disk: it shows what our own work costs. What amdgpu
adds when it answers (gpu_metrics asks the card's firmware) is not in it; no AMD card was at hand. A GPU of this
machine, where it has one, gets a row of its own.

On 2026-11-30, a 2-core x86 virtual machine (AMD EPYC, Python 3.11.7) with other work on it:

| what is watched | of one core | looks | CPU a look |
| --- | --- | --- | --- |
| 8 x MI300X by files, 1508 processes | 0.48% | 59 in 30 s | 2.55 ms |
| 8 x MI300X by files, 1508 processes, five times as often | 0.62% | 81 in 30 s | 2.31 ms |
| this machine's CPU (2 cores) | 0.10% | 60 in 30 s | 0.48 ms |

and one NVIDIA H200 on a host of 16 cores (driver 580.159.04, Python 3.12.3, windows of 10 s), the same day:

| what is watched | of one core | looks | CPU a look |
| --- | --- | --- | --- |
| NVIDIA H200, by NVML | 0.30% | 19 in 10 s | 1.76 ms |
| this machine's CPU (16 cores) | 0.16% | 20 in 10 s | 0.74 ms |

In the first table the second row is the sentinel's own limit at work: 300 looks were asked for, 81 were taken. What did
not do: reading every DRM client's file at each look, which took 4.5 ms a look and 0.80 % of a core at the usual pace.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from cards.detect import detect
from cards.sentinel import PERIOD_S, Sentinel
from contracts import Card
from tests.cards.tenants import mi300x_host

PROCESSES, FILES_EACH = 1500, 25  # beside the engine's, on the fixture host
BOUND = 0.01


def cost(card: Card, own: frozenset[int], root: Path, seconds: float, period_s: float) -> tuple[float, int, float]:
    """(CPU seconds a second, looks, median milliseconds of CPU a look) of one window."""
    sentinel = Sentinel(card, lambda: own, root, period_s)
    sentinel.start()
    time.sleep(2 * PERIOD_S)  # the first look walks through every process' files, before the window as in a night
    sentinel.window_start()
    time.sleep(seconds)
    sentinel.window_end()
    sentinel.stop()
    share = sentinel.cost()
    steps = [b[1] - a[1] for a, b in zip(sentinel._cpu, sentinel._cpu[1:], strict=False)]
    return share or 0.0, len(sentinel.samples()), 1000 * median(steps or [0.0])


def rows(seconds: float) -> list[tuple[str, float, int, float]]:
    folder = Path(tempfile.mkdtemp(prefix="sentinel-cost-"))
    try:
        cards = mi300x_host(folder, PROCESSES, FILES_EACH)
        cpu = next(card for card in detect() if card.kind == "cpu")
        own = frozenset(range(101, 109))
        real = [card for card in detect() if card.kind != "cpu"][:1]
        host = f"8 x MI300X by files, {PROCESSES + 8} processes"
        return [
            (host, *cost(cards[0], own, folder, seconds, PERIOD_S)),
            (f"{host}, five times as often", *cost(cards[0], own, folder, seconds, PERIOD_S / 5)),
            (f"this machine's CPU ({cpu.compute_units} cores)", *cost(cpu, frozenset(), Path("/"), seconds, PERIOD_S)),
            *((card.name, *cost(card, frozenset(), Path("/"), seconds, PERIOD_S)) for card in real),
        ]
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="What the sentinel costs, of one core")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each window")
    seconds = parser.parse_args().seconds
    found = rows(seconds)
    print("| what is watched | of one core | looks | CPU a look |\n| --- | --- | --- | --- |")
    for what, share, looks, each_ms in found:
        print(f"| {what} | {share:.2%} | {looks} in {seconds:.0f} s | {each_ms:.2f} ms |")
    over = [what for what, share, *_ in found if share > BOUND]
    print(f"over 1 % of a core: {'; '.join(over)}" if over else "all under 1 % of a core")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
