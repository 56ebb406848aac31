"""Does the CPU engine compute on fewer cores than it may use, because its default keeps some for the server?"""

from __future__ import annotations

from agents.research.dossier import Dossier
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Hypothesis, Lever

NAME = "cpu_threads"
KEY = "VLLM_CPU_OMP_THREADS_BIND"

# Cores 1 -> 2: 97-110 -> 143-148 output tokens/s (three runs each, one launch each), 1.37 where the bound was 2:
# 2 ** 0.45. Measured on a 2-core x86 (AVX-512) machine, SmolLM2-135M bf16, eager, at most 12 sequences, vLLM 0.32.0
# (CPU build), 2026-11-29. The rest of the bound goes to the server, which then shares a core.
SHARE_OF_BOUND = 0.45


def read(dossier: Dossier) -> list[Hypothesis]:
    return [] if dossier.arms == "twin" else _offered(dossier)


def dropped(dossier: Dossier) -> list[str]:
    """Of two engines at once, each finds the other's threads on every core that it is given: what would be measured is
    the pair, and not the setting. (All of 2 x86 cores, twin arms, vLLM 0.32.0: 0.74x to 0.85x, 2026-11-30.)"""
    why = "two engines at once would share these cores (lost 15 to 26 % on 2 cores); `arms: alternate` tries it"
    return [f"{h.change} ({NAME}): {why}" for h in _offered(dossier)] if dossier.arms == "twin" else []


def _offered(dossier: Dossier) -> list[Hypothesis]:
    if dossier.card.kind != "cpu" or LEVERS[Lever.ENVIRONMENT].read(dossier.spec, KEY) is not None:
        return []
    used, reserved = cores(dossier.realised.get("omp_cores")), cores(dossier.realised.get("omp_reserved"))
    if not used or not reserved:
        return []
    every = sorted({*used, *reserved})
    bound = len(every) / len(used)
    return [
        Hypothesis(
            change=Change(lever=Lever.ENVIRONMENT, key=KEY, before=None, after=ranges(every)),
            proposer=NAME,
            why=f"by default the model computes on {len(used)} of {len(every)} cores; the rest is kept for the server",
            evidence=(Evidence(source="engine log", detail=f"core ids={used}, reserved_cpus={reserved}"),),
            predicted_gain=bound**SHARE_OF_BOUND,
            bound=bound,
            probability=0.7,
            cost_s=dossier.cost_s(),
            risk="medium",  # the server competes with the model: latency may suffer where throughput gains
        )
    ]


def cores(value: object) -> list[int]:
    """ "0, 1" -> [0, 1], as engine/realised.py keeps the log's lists; [] for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    return [int(part) for part in parts] if parts and all(part.isdigit() for part in parts) else []


def ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5", the form that vLLM takes."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
