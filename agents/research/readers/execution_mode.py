"""Does the engine run op by op, although it could run compiled (and, on a GPU, from captured graphs)?"""

from __future__ import annotations

from pydantic import JsonValue

from agents.research.dossier import Dossier, holds
from agents.research.finding import amdahl
from agents.research.shares import GRAPH_SPEEDUP, GRAPH_SPEEDUP_FROM, card_idle
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Hypothesis, Lever

NAME = "execution_mode"

# On a CPU, eager -> compiled: 282-298 -> 323-343 output tokens/s at 16 streams, 128 in, 64 out, bf16, 135 M parameters:
# 1.15. Measured on a 2-core x86 (AVX-512) machine, vLLM 0.32.0 (CPU build), 2026-11-29. On a GPU the time that the card
# spends without a kernel says how much more there is to win, where the driver counts it.
GAIN = 1.15

# (lever, key, values that switch compilation or graphs off)
SWITCHES: tuple[tuple[Lever, str, tuple[JsonValue, ...]], ...] = (
    (Lever.ENGINE_FLAG, "enforce-eager", (True,)),
    (Lever.ENGINE_FLAG, "optimization-level", (0, "0", "O0")),
    (Lever.COMPILATION, "mode", (0, "0", "NONE", "none")),
    (Lever.COMPILATION, "cudagraph_mode", (0, "NONE", "none")),
)


def read(dossier: Dossier) -> list[Hypothesis]:
    found = []
    for lever, key, off in SWITCHES:
        if key == "cudagraph_mode" and dossier.card.kind == "cpu":
            continue  # there are no graphs to capture on a CPU
        value = LEVERS[lever].read(dossier.spec, key)
        if not any(value == o and type(value) is type(o) for o in off):
            continue
        evidence = [holds(dossier, key, value)]
        for name in ("enforce_eager", "mode", "compilation_mode", "cudagraph_mode"):
            if name in dossier.realised:
                detail = f"{name} = {dossier.realised[name]!r}"
                evidence.append(Evidence(source="realised configuration", detail=detail))
        gain = GAIN
        if (idle := card_idle(dossier)) is not None:
            gain = max(GAIN, amdahl(idle.value, GRAPH_SPEEDUP))
            evidence.append(Evidence(source="profile", detail=f"{idle.words}; {GRAPH_SPEEDUP_FROM}"))
        found.append(
            Hypothesis(
                change=Change(lever=lever, key=key, before=value, after=None),
                proposer=NAME,
                why=f"{key} keeps the engine from compiling: every op is launched from Python, one by one",
                evidence=tuple(evidence),
                predicted_gain=gain,
                probability=0.75,
                cost_s=dossier.cost_s(compiles=True),
                risk="medium",  # compiled kernels round differently: 26 of 32 greedy bf16 sequences changed there
            )
        )
    return found
