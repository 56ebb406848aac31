"""When a run, or a pair of runs, says nothing about speed. Reasons in words; no reason means valid.

`conditions` is what engine/measure.py saw in the window. A fact that matters and is not there is itself a reason:
"not checked" never passes as "checked and fine". What only some cards tell (clocks, heat, tenants) is no such fact:
where it is missing nothing is void, and the conditions say that it was not told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from contracts import JudgeRule, Measurement, Workload

# A void run is measured again this often, then the experiment is void (repeat.py). Two: on a shared machine the load
# generator was late in two runs of one A/A launch pair, one after the other (2 cores, 2026-11-29).
VOID_REPEATS = 2

# CPU time of processes that are neither the engine nor the load generator, as a share of all cores over the window.
# Judged, not measured: below it the interleaving and the A/A carry the disturbance, at a quarter of the machine a
# CPU engine is another machine.
FOREIGN_CPU_SHARE = 0.25

# CPU time of the load generator's own thread, as a share of one core. Judged: near 1 it is the generator that was
# measured.
CLIENT_CPU_SHARE = 0.9

# Prefix cache hits, as shares of all prompt tokens. Prompts are fresh, so a run can hit the planned shared prefix
# and no more; a seed used twice on one H200 read 17.6, then 32.8 requests/s (vLLM 0.26, 2026-11-29), all of it cache
# hits. HIT_SLACK: 1 % more hits is at most 1 % of speed (prefill is at most all of the work), half of the default
# smallest gain.
HIT_SLACK = 0.01
# With a shared prefix a change may rightly move its hits (more requests start before the first has filled the
# cache), so there the two arms may differ by this share of the larger one. Judged, not measured.
SHARED_HIT_SLACK = 0.25

# The rest of what a window may hold is a user's to change: JudgeRule's slowed_share and clock_drop. Judged, not
# measured: a hot card slows in steps of a few percent, and a tenth of the looks is more than a step in passing; a clock
# that differs by 15 % between two arms moves compute-bound speed by more than most changes do. A power cap counts only
# as a clock that differs: a loaded card lives at its cap, in both arms.
# Memory in use that none of our engines holds, risen during the window: somebody whom we cannot see came. Judged: 1 GiB
# is less than any engine that serves a model, and more than what drivers and displays move by themselves.
OTHERS_GROWTH_BYTES = 1 << 30
# So many looks at a loaded card (half a second apart) before its median clock says something.
LEAST_LOADED = 4


def run_void_reasons(
    m: Measurement, workload: Workload, foreign_cpu_share: float = FOREIGN_CPU_SHARE
) -> tuple[str, ...]:
    """Why this run alone says nothing; () when it is valid. `foreign_cpu_share` of 1 allows any use of the CPU."""
    seen = m.conditions
    return (
        *_flag(seen.get("identity_ok"), True, "identity not checked", "the engine was not ours for the whole run"),
        *_requests(m, workload),
        *_generator(seen),
        *_compiles(seen.get("compiles_in_window")),
        *_used_prompts(seen, workload),
        *_foreign(seen, foreign_cpu_share),
        *_tenants(seen),
    )


def _requests(m: Measurement, workload: Workload) -> Iterator[str]:
    if m.failed:  # short outputs among them: engine/load.py counts an answer of the wrong length as failed
        why = m.conditions.get("first_error")
        yield f"{m.failed} of {m.failed + m.completed} requests failed" + (f" ({why})" if why else "")
    if m.completed < workload.requests:
        yield f"too few samples: {m.completed} of {workload.requests} requests completed"
    for metric in (workload.objective.metric, *(limit.metric for limit in workload.objective.limits)):
        if (least := samples_for(metric)) > m.completed:
            yield f"too few samples: {metric} needs {least} requests, {m.completed} completed"
    if not m.window_s > 0:
        yield f"the window is {m.window_s:g} s long"


def _generator(seen: Mapping[str, JsonValue]) -> Iterator[str]:
    yield from _flag(seen.get("generator_late"), False, "generator lateness not checked", "the load generator was late")
    kept, lost = "not known whether the load was kept", "the load fell before the window ended"
    yield from _flag(seen.get("load_kept"), True, kept, lost)
    busy = _number(seen.get("client_cpu_share"))
    if busy is None:
        yield "the load generator's own CPU use was not measured"
    elif busy > CLIENT_CPU_SHARE:
        yield f"the load generator used {busy:.0%} of its core: it may have been the limit"


def _compiles(count: JsonValue) -> Iterator[str]:
    if not isinstance(count, int) or isinstance(count, bool):
        yield "compiles in the window not counted"
    elif count:
        yield f"{count} compile(s) inside the window"


def _used_prompts(seen: Mapping[str, JsonValue], workload: Workload) -> Iterator[str]:
    """More hits than the shared prefix explains. A preempted request finds its own tokens again, so with preemptions
    more hits are no sign. An unmeasured rate is the pair's to refuse: it matters only against the other arm's."""
    planned = workload.shared_prefix_tokens / (workload.shared_prefix_tokens + workload.input_tokens[0])
    hits = _number(seen.get("prefix_hit_rate"))
    if hits is not None and hits > planned + HIT_SLACK and not _number(seen.get("preemptions")):
        yield f"used prompts: {hits:.1%} of prompt tokens came from the prefix cache, {planned:.1%} are shared"


def _foreign(seen: Mapping[str, JsonValue], allowed: float) -> Iterator[str]:
    share = _number(seen.get("foreign_cpu_share"))
    if share is None:
        yield "foreign CPU use not measured"
    elif share > allowed:
        named = _words(seen.get("foreign_cpu_named"))
        who = f"; most of it {', '.join(named[:3])}" if named else ""
        allows = f"at most {allowed:.0%} is allowed (judge.foreign_cpu_share)"
        yield f"other processes used {share:.0%} of the CPU, {allows}{who}"


def _tenants(seen: Mapping[str, JsonValue]) -> Iterator[str]:
    """Somebody else computed on the card while we measured."""
    strangers = _words(seen.get("card_foreign"))
    if strangers:
        yield f"somebody else was on the card: {', '.join(strangers[:3])}"
    growth = _number(seen.get("card_vram_others_growth_bytes"))
    if not strangers and growth is not None and growth > OTHERS_GROWTH_BYTES:
        yield (
            f"memory on the card that none of our engines holds rose by {growth / 2**30:.1f} GiB in the window: "
            "somebody whom this user cannot see came"
        )


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


def card_void_reasons(a: Measurement, b: Measurement, rule: JudgeRule) -> tuple[str, ...]:
    """Why the card was not the same card for these two runs: heat, or clocks that differ; () when it was, or when the
    card tells neither. `rule` gives slowed_share and clock_drop."""
    return (*_slowed(a, rule.slowed_share), *_slowed(b, rule.slowed_share), *_clocks(a, b, rule.clock_drop))


def _cache(a: Measurement, b: Measurement) -> list[str]:
    on = [m.conditions.get("prefix_caching") for m in (a, b)]
    if False in on:
        return []
    hits = [_number(m.conditions.get("prefix_hit_rate")) for m in (a, b)]
    if hits[0] is None or hits[1] is None:
        return ["prefix cache hits not measured"]
    shared = min(hits[0], hits[1]) > HIT_SLACK
    if abs(hits[0] - hits[1]) > (max(HIT_SLACK, SHARED_HIT_SLACK * max(hits[0], hits[1])) if shared else HIT_SLACK):
        return [f"unequal prefix cache hits: {hits[0]:.1%} and {hits[1]:.1%} of prompt tokens"]
    return []


def _order(a: Measurement, b: Measurement) -> list[str]:
    """Two windows at once share the machine, and neither was measured."""
    starts = [_number(m.conditions.get("started_at")) for m in (a, b)]
    if starts[0] is None or starts[1] is None:
        return ["start times not recorded, so not known whether the runs overlapped"]
    first, second = sorted(((starts[0], a.window_s), (starts[1], b.window_s)))
    return ["the two runs overlapped in time"] if first[0] + first[1] > second[0] else []


def _slowed(m: Measurement, allowed: float) -> Iterator[str]:
    """By heat or the hardware's own protection. A power cap is the clock's to show."""
    share = _number(m.conditions.get("card_slowed_share"))
    if share is not None and share > allowed:
        told = m.conditions.get("card_throttle_reasons")
        why = ", ".join(map(str, told)) if isinstance(told, dict) and told else "no reason told"
        allows = f"at most {allowed:.0%} is allowed (judge.slowed_share)"
        yield f"arm {m.arm}'s card was throttled in {share:.0%} of the looks at it ({why}), {allows}"


def _clocks(a: Measurement, b: Measurement, allowed: float) -> Iterator[str]:
    """Clocks of the loaded card, against each other. Too few looks, or none told, say nothing."""
    clock_a, clock_b = (_number(m.conditions.get("card_sclk_mhz_loaded")) for m in (a, b))
    looks = [_number(m.conditions.get("card_loaded_samples")) or 0 for m in (a, b)]
    if not clock_a or not clock_b or min(looks) < LEAST_LOADED:
        return
    drop = 1 - min(clock_a, clock_b) / max(clock_a, clock_b)
    if drop > allowed:
        lower = "A" if clock_a < clock_b else "B"
        yield (
            f"arm {lower}'s clock was {drop:.0%} lower: {clock_a:.0f} MHz in A, {clock_b:.0f} in B, at most "
            f"{allowed:.0%} is allowed (judge.clock_drop)"
        )


def samples_for(metric: str) -> int:
    """A percentile needs a sample beyond it: p95 20 requests, p99 100. Other metrics 1."""
    last = metric.rsplit("_", 1)[-1]
    if last.startswith("p") and last[1:].isdigit() and 0 < int(last[1:]) < 100:
        share_beyond = 100 - int(last[1:])
        return -(-100 // share_beyond)
    return 1


def _words(x: object) -> list[str]:
    return [str(word) for word in x] if isinstance(x, list | tuple) else []


def _number(x: object) -> float | None:
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else None


def _flag(seen: object, good: bool, unknown: str, bad: str) -> list[str]:
    if not isinstance(seen, bool):
        return [unknown]
    return [] if seen is good else [bad]
