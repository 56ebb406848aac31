"""Is the engine allowed fewer sequences at a time than the workload sends it?

Bound. Throughput is (sequences running) / (time each spends running). A larger batch cannot make a sequence's own steps
faster, so raising the limit multiplies throughput by at most (running then) / (running now). Then: the new limit or
the demand, whichever is less; demand is the closed loop's concurrency, or what was seen in the engine, running and
waiting (an open loop). In a closed loop mean end-to-end latency is concurrency / throughput (Little), so the same
bound holds for it. Time to first token has none: a queue's wait can vanish.
"""

from __future__ import annotations

import math

from agents.research.dossier import Dossier, holds
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Hypothesis, Lever

NAME = "batch_limits"
KEY = "max-num-seqs"
COUNTERS = ("running_mean", "waiting_mean", "waiting_peak", "kv_cache_usage_peak", "preemptions")

# Limit 4 -> 16 under 16 streams: 162-171 -> 282-298 output tokens/s, a gain of 1.75 where the bound was 4: 4 ** 0.40.
# Measured on a 2-core x86 machine, vLLM 0.32.0 (CPU build), eager, 128 in, 64 out, 2026-11-29. A GPU that decodes
# memory-bound gets nearer to the bound, so this is a cautious guess there.
SHARE_OF_BOUND = 0.40


def read(dossier: Dossier) -> list[Hypothesis]:
    held = LEVERS[Lever.ENGINE_FLAG].read(dossier.spec, KEY)
    limit = held if isinstance(held, int) and not isinstance(held, bool) else _realised(dossier)
    demand = _demand(dossier)
    if limit is None or limit < 1 or demand is None or demand <= limit or dossier.improves() == "tpot":
        return []  # more at a time never shortens a token's own time
    waiting = dossier.counter("waiting_peak")
    if waiting == 0:
        return []  # the engine itself saw no queue: the limit is not what holds it back
    running = dossier.counter("running_mean") or float(min(limit, demand))
    crowded = (dossier.counter("preemptions") or 0) > 0 or (dossier.counter("kv_cache_usage_peak") or 0) >= 0.9
    evidence = [
        holds(dossier, KEY, limit),
        Evidence(
            source="workload",
            detail=f"{dossier.workload.concurrency} requests at a time"
            if dossier.workload.concurrency
            else f"{dossier.workload.rate_per_s} requests/s",
        ),
    ]
    seen = {n: dossier.counter(n) for n in COUNTERS}
    if any(v is not None for v in seen.values()):
        detail = ", ".join(f"{n} {v:g}" for n, v in seen.items() if v is not None)
        evidence.append(Evidence(source="engine counters under the workload", detail=detail))
    found = []
    for value in _candidates(limit, demand, bunches=dossier.workload.concurrency is None):
        bound = max(min(value, demand) / running, 1.0)
        why = (
            f"{KEY} {limit} makes requests wait: about {demand:g} are there at a time, {running:g} run. "
            f"{value} lets at most {min(value, demand) / running:.2f} times as many run"
        )
        if crowded:
            why += "; but the KV cache is already full at times, so more sequences may only be preempted"
        found.append(
            Hypothesis(
                change=Change(lever=Lever.ENGINE_FLAG, key=KEY, before=held, after=value),
                proposer=NAME,
                why=why,
                evidence=tuple(evidence),
                predicted_gain=bound**SHARE_OF_BOUND,
                bound=None if dossier.improves() == "ttft" else bound,
                probability=0.3 if crowded else 0.8 if waiting else 0.6,
                cost_s=dossier.cost_s(),
                risk="medium" if crowded or _latency_limits(dossier) else "low",
            )
        )
    return found


def _realised(dossier: Dossier) -> int | None:
    value = dossier.realised.get("max_num_seqs")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _demand(dossier: Dossier) -> float | None:
    """Requests that are there at a time, mean."""
    if dossier.workload.concurrency is not None:
        return float(dossier.workload.concurrency)
    running, waiting = dossier.counter("running_mean"), dossier.counter("waiting_mean")
    return None if running is None or waiting is None else running + waiting


def _candidates(limit: int, demand: float, bunches: bool) -> list[int]:
    """The demand rounded up to a size that kernels like (a power of two to 8, then a multiple of 8); the middle of the
    way there (geometric: each half of it is the same step for a batch), for a machine where the batch stops paying
    earlier or a latency limit that the whole step breaks; and twice the demand where arrivals come in bunches (in a
    closed loop no more than the concurrency can ever be there)."""
    full = _kernel_size(demand, up=True)
    middle = _kernel_size(math.sqrt(limit * full), up=False)
    return [v for v in dict.fromkeys((full, middle, *((full * 2,) if bunches else ()))) if v > limit]


def _kernel_size(wanted: float, up: bool) -> int:
    """`wanted` as a power of two to 8, then a multiple of 8; the next one up or down."""
    whole = math.ceil(wanted) if up else math.floor(wanted)
    if whole > 8:
        return -(-whole // 8) * 8 if up else whole // 8 * 8
    return 1 << ((whole - 1).bit_length() if up else whole.bit_length() - 1)


def _latency_limits(dossier: Dossier) -> bool:
    return any(limit.metric.startswith(("tpot", "itl")) for limit in dossier.workload.objective.limits)
