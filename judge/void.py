"""When a run, or a pair of runs, says nothing about speed. Reasons in words; no reason means valid.

`conditions` is what engine/measure.py saw in the window. A fact that matters and is not there is itself a reason:
"not checked" never passes as "checked and fine".
"""

from __future__ import annotations

from contracts import Measurement, Workload

VOID_REPEATS = 1  # a void run is measured again this often, then the experiment is void (repeat.py)

# CPU time of processes that are neither the engine nor the load generator, as a share of all cores over the window.
# Judged, not measured: below it the interleaving and the A/A carry the disturbance, at a quarter of the machine a
# CPU engine is another machine.
FOREIGN_CPU_SHARE = 0.25

# How much more of one arm's prompt tokens may come out of the prefix cache than of the other's, as a share of all
# prompt tokens. Prefill is at most all of the work, so 1 % more hits is at most 1 % of speed: half of the default
# smallest gain. The H200 of docs/judge.md read 17.6 then 32.8 requests/s from one seed used twice, all of it cache
# hits.
HIT_RATE_SLACK = 0.01


def run_void_reasons(m: Measurement, workload: Workload) -> tuple[str, ...]:
    """Why this run alone says nothing; () when it is valid."""
    seen = m.conditions
    reasons: list[str] = []
    if m.failed:
        reasons.append(f"{m.failed} of {m.failed + m.completed} requests failed")
    if m.completed < workload.requests:
        reasons.append(f"too few samples: {m.completed} of {workload.requests} requests completed")
    for metric in (workload.objective.metric, *(limit.metric for limit in workload.objective.limits)):
        if (least := _samples_for(metric)) > m.completed:
            reasons.append(f"too few samples: {metric} needs {least} requests, {m.completed} completed")
    if not m.window_s > 0:
        reasons.append(f"the window is {m.window_s:g} s long")
    reasons += _flag(seen.get("identity_ok"), True, "identity not checked", "the engine was not ours for the whole run")
    reasons += _flag(seen.get("generator_late"), False, "generator lateness not checked", "the load generator was late")
    reasons += _flag(
        seen.get("load_kept"), True, "not known whether the load was kept", "the load fell before the window ended"
    )
    compiles = seen.get("compiles_in_window")
    if not isinstance(compiles, int) or isinstance(compiles, bool):
        reasons.append("compiles in the window not counted")
    elif compiles:
        reasons.append(f"{compiles} compile(s) inside the window")
    foreign = _number(seen.get("foreign_cpu_share"))
    if foreign is None:
        reasons.append("foreign CPU use not measured")
    elif foreign > FOREIGN_CPU_SHARE:
        reasons.append(f"other processes used {foreign:.0%} of the CPU, at most {FOREIGN_CPU_SHARE:.0%} is allowed")
    return tuple(reasons)


def pair_void_reasons(a: Measurement, b: Measurement) -> tuple[str, ...]:
    """Why these two runs, each valid or not, cannot be compared; () when they can.

    Equal work and equal luck with the cache. Where caching is off in one arm only, that is the change itself and not
    a fault.
    """
    reasons: list[str] = []
    if (a.arm, b.arm) != ("A", "B"):
        reasons.append(f"arms {a.arm} and {b.arm} instead of A and B")
    if (a.launch_pair, a.run) != (b.launch_pair, b.run):
        reasons.append(
            f"not one pair: launch pair {a.launch_pair} run {a.run} against launch pair {b.launch_pair} run {b.run}"
        )
    if a.launch_id == b.launch_id:
        reasons.append(f"both runs are of launch {a.launch_id}")
    if a.prompt_seed != b.prompt_seed:
        reasons.append(f"different prompts: seeds {a.prompt_seed} and {b.prompt_seed}")
    if a.completed != b.completed:
        reasons.append(f"unequal work: {a.completed} and {b.completed} requests completed")
    for key, what in (("prompt_tokens", "prompt tokens"), ("output_tokens", "output tokens")):
        x, y = _number(a.conditions.get(key)), _number(b.conditions.get(key))
        if x is None or y is None:
            reasons.append(f"{what} not counted")
        elif x != y:
            reasons.append(f"unequal work: {x:.0f} and {y:.0f} {what}")
    reasons += _cache(a, b)
    reasons += _order(a, b)
    return tuple(reasons)


def _cache(a: Measurement, b: Measurement) -> list[str]:
    on = [m.conditions.get("prefix_caching") for m in (a, b)]
    if False in on:
        return []
    hits = [_number(m.conditions.get("prefix_hit_rate")) for m in (a, b)]
    if hits[0] is None or hits[1] is None:
        return ["prefix cache hits not measured"]
    if abs(hits[0] - hits[1]) > HIT_RATE_SLACK:
        return [f"unequal prefix cache hits: {hits[0]:.1%} and {hits[1]:.1%} of prompt tokens"]
    return []


def _order(a: Measurement, b: Measurement) -> list[str]:
    """Two windows at once share the machine, and neither was measured."""
    starts = [_number(m.conditions.get("started_at")) for m in (a, b)]
    if starts[0] is None or starts[1] is None:
        return ["start times not recorded, so not known whether the runs overlapped"]
    first, second = sorted(((starts[0], a.window_s), (starts[1], b.window_s)))
    return ["the two runs overlapped in time"] if first[0] + first[1] > second[0] else []


def _samples_for(metric: str) -> int:
    """A percentile needs a sample beyond it: p95 20 requests, p99 100. Other metrics 1."""
    last = metric.rsplit("_", 1)[-1]
    if last.startswith("p") and last[1:].isdigit() and 0 < int(last[1:]) < 100:
        share_beyond = 100 - int(last[1:])
        return -(-100 // share_beyond)
    return 1


def _number(x: object) -> float | None:
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else None


def _flag(seen: object, good: bool, unknown: str, bad: str) -> list[str]:
    if not isinstance(seen, bool):
        return [unknown]
    return [] if seen is good else [bad]
