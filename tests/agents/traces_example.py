"""A small torch-profiler trace, written event by event: what the tests of traces start from. Times are microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PREFILL = "execute_context_2(512)_generation_0(0)"
DECODE = "execute_context_0(0)_generation_2(2)"
MIXED = "execute_768_context_1(sq766sk766sqsq586756sqsk586756)_generation_2(sq2sk900sqsq2sqsk900)"


def gpu(name: str, ts: Any, dur: Any, correlation: int | None = None, **fields: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 0} | ({} if correlation is None else {"correlation": correlation})
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 0, "ts": ts, "dur": dur, "args": args} | fields


def launch(ts: float, correlation: int, name: str = "hipLaunchKernel") -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": 4, "args": args}


def annotation(name: str, ts: float, dur: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, "args": {"Ev Idx": 1}}


def night() -> list[dict[str, Any]]:
    """One prefill step and two decode steps; the GPU runs behind the host.

    prefill, host 0-100:   attention 1000-1400, GEMM 1300-1900 on another stream
    decode,  host 200-300: copy 2000-2010, attention to 2110, GEMM to 2150, all-reduce 2140-2160, argmax 2170-2175
    decode,  host 400-500: attention 2300-2400, GEMM to 2440, argmax 2450-2455
    """
    copied = gpu("Memcpy DtoD (Device -> Device)", 2000, 10, 3, cat="gpu_memcpy")
    return [
        {"ph": "M", "name": "process_name", "pid": 7, "ts": 0, "args": {"name": "python3"}},
        annotation(PREFILL, 0, 100),
        launch(10, 1),
        launch(20, 2),
        annotation(DECODE, 200, 100),
        launch(210, 3, "hipMemcpyAsync"),
        launch(220, 4, "hipGraphLaunch"),
        launch(320, 5),  # sampling, after the annotation
        annotation(DECODE, 400, 100),
        launch(410, 6, "hipGraphLaunch"),
        launch(520, 7),
        gpu("kernel_unified_attention_2d", 1000, 400, 1),
        gpu("Cijk_Alik_Bljk_MT256x128x64", 1300, 600, 2),
        copied,
        gpu("kernel_unified_attention_3d", 2010, 100, 4),
        gpu("Cijk_Alik_Bljk_MT16x16x256", 2110, 40, 4),
        gpu("ncclDevKernel_AllReduce_Sum_bf16", 2140, 20, 4),
        gpu("at::native::ArgMaxOps", 2170, 5, 5),
        gpu("kernel_unified_attention_3d", 2300, 100, 6),
        gpu("Cijk_Alik_Bljk_MT16x16x256", 2400, 40, 6),
        gpu("at::native::ArgMaxOps", 2450, 5, 7),
    ]


def launches_one_by_one() -> list[dict[str, Any]]:
    """A decode step of 20 kernels of 4 us, one launched each 10 us: the GPU waits for the host."""
    events = [annotation(DECODE, 0, 210)]
    for i in range(20):
        events += [launch(10 * i, i), gpu("void vllm::act_and_mul_kernel", 5 + 10 * i, 4, i)]
    return events


def text(events: list[dict[str, Any]], **header: Any) -> str:
    properties = [{"name": "", "numSms": 256, "totalGlobalMem": 288 << 30, "warpSize": 64}]
    return json.dumps({"schemaVersion": 1, "deviceProperties": properties, **header, "traceEvents": events}, indent=1)


def write(folder: Path, events: list[dict[str, Any]], name: str = "rank0.trace.json", **header: Any) -> Path:
    path = folder / name
    path.write_text(text(events, **header), encoding="utf-8")
    return path
