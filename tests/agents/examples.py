"""Small, complete examples that the tests of this folder start from."""

from __future__ import annotations

from typing import Any

from agents.research.dossier import Dossier
from agents.research.knobs import Knob, Knobs
from contracts import Card, EngineSpec, Measurement, Workload

# A dozen knobs of vLLM 0.32.0, as knobs.py reads them from its source.
KNOBS = Knobs(
    version="0.32.0",
    path="/nowhere/vllm",
    flags={
        k.name: k
        for k in (
            Knob(name="max-num-seqs", kind="int", optional=True, default_known=True, source="config/scheduler.py:62"),
            Knob(name="max-num-batched-tokens", kind="int", optional=True, default_known=True),
            Knob(name="max-model-len", kind="int", default_known=True),
            Knob(name="enforce-eager", kind="bool", default=False, default_known=True, default_text="False"),
            Knob(name="enable-prefix-caching", kind="bool", optional=True, default_known=True),
            Knob(name="dtype", kind="choice", choices=("auto", "half", "float32"), default="auto", default_known=True),
            Knob(name="block-size", kind="int", default_known=True),
            Knob(name="attention-backend", optional=True, default_known=True),
            Knob(name="speculative-config", kind="json", optional=True, default_known=True),
            Knob(name="kernel-config", kind="json"),
            Knob(name="compilation-config", kind="json"),
            Knob(name="tensor-parallel-size", kind="int", default=1, default_known=True),
            Knob(name="gpu-memory-utilization", kind="float", default=0.92, default_known=True),
            Knob(name="port", kind="int", default=8000, default_known=True),
        )
    },
    aliases={"tp": "tensor-parallel-size"},
    env={
        k.name: k
        for k in (
            Knob(name="VLLM_CPU_OMP_THREADS_BIND", kind="str", default="auto", default_known=True),
            Knob(name="VLLM_CPU_KVCACHE_SPACE", kind="int", optional=True, default=0, default_known=True),
            Knob(name="VLLM_ROCM_USE_AITER", kind="bool", default=False, default_known=True),
        )
    },
    compilation={
        k.name: k
        for k in (
            Knob(name="mode"),
            Knob(name="cudagraph_mode"),
            Knob(name="cudagraph_capture_sizes", kind="list", optional=True, default_known=True),
            Knob(name="pass_config", kind="json"),
        )
    },
    flag_keys={"kernel-config": ("ir_op_priority", "moe_backend")},
)

CPU = Card(arch="x86_64", kind="cpu", name="a CPU", memory_bytes=24 << 30, compute_units=2, source="/proc/cpuinfo")
GFX950 = Card(arch="gfx950", kind="amd", name="MI355X", memory_bytes=288 << 30, compute_units=256, source="KFD")


def spec(**fields: Any) -> EngineSpec:
    return EngineSpec(**{"python": "/engine/python", "model": "/model", **fields})


def workload(**fields: Any) -> Workload:
    base = {
        "name": "chat",
        "concurrency": 16,
        "requests": 32,
        "warmup_requests": 4,
        "input_tokens": (64, 128),
        "output_tokens": (32, 64),
    }
    return Workload(**{**base, **fields})


def dossier(**fields: Any) -> Dossier:
    return Dossier(**{"spec": spec(), "knobs": KNOBS, "workload": workload(), "card": CPU, **fields})


def run(arm: str, **conditions: Any) -> Measurement:
    return Measurement(
        launch_id=f"l-{arm}",
        arm="A" if arm == "A" else "B",
        launch_pair=0,
        run=0,
        prompt_seed=1,
        window_s=10.0,
        completed=32,
        failed=0,
        metrics={},
        conditions=conditions,
    )
