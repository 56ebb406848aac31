"""One line a noteworthy event, for logs and for terminals that are none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from contracts import Event, VerdictWord
from ledger import schema
from ledger.words import between, change_words, clean, duration, level_words, number, percent, times

_TOLD_STAGES = ("preflight", "baseline", "profile", "research", "confirm", "report")


def plain_lines(event: Event) -> str | None:
    """`01:32:05 e01-574e4d keep 1.76× ...`, in UTC; None for an event that a log need not show."""
    say = _SAY.get(event.kind)
    words = say(schema.KINDS[event.kind].model_validate(event.data)) if say else None
    if words is None:
        return None
    at = datetime.fromisoformat(event.at).astimezone(UTC).strftime("%H:%M:%S")
    return f"{at} {' '.join(clean(words).split())}"


def _started(data: schema.NightStarted) -> str:
    vllm = data.versions.get("vllm") or "unknown"
    return f"night {data.config.name}: {data.config.minutes:g} minutes on {data.card.name}, vLLM {vllm}"


def _resumed(data: schema.NightResumed) -> str:
    lost = f", lost: {'; '.join(data.lost)}" if data.lost else ", nothing lost"
    return f"resumed at {data.at_stage or 'the start'}{lost}"


def _entered(data: schema.StageEntered) -> str | None:
    return f"{data.stage} ..." if data.stage in _TOLD_STAGES else None


def _card_measured(data: schema.CardMeasured) -> str:
    rate = data.measured.copy_gb_s
    stands = f"; it stands for {data.overrides}" if data.overrides else "; no number of a sheet is replaced by it"
    return f"copy test on {data.measured.card}: {number(rate.value)} GB/s{stands}"


def _ready(data: schema.LaunchReady) -> str:
    launch = data.launch
    wrong = f"; NOT as asked: {'; '.join(launch.mismatches)}" if launch.mismatches else ""
    return f"engine {launch.launch_id} (pid {launch.pid}) ready after {duration(launch.ready_s)}{wrong}"


def _launch_failed(data: schema.LaunchFailed) -> str:
    return f"engine {data.launch_id} failed: {data.failure.kind.replace('_', ' ')}: {data.failure.reason}"


def _measured(data: schema.Measured) -> str:
    m = data.measurement
    name = "output_tokens_per_s" if "output_tokens_per_s" in m.metrics else next(iter(sorted(m.metrics)), None)
    value = level_words(name, m.metrics[name]) if name else "no metric"
    void = f", VOID: {'; '.join(m.void_reasons)}" if m.void_reasons else ""
    whose = data.experiment_id or {"aa": "A/A", "confirm": "confirmation"}.get(data.purpose, data.purpose)
    return f"{whose} arm {m.arm}, pair {m.launch_pair + 1}, run {m.run + 1}: {value}{void}"


def _gated(data: schema.Gated) -> str:
    result = data.result
    return f"{data.experiment_id or 'night'} gate {result.check}: {result.outcome.replace('_', ' ')}: {result.reason}"


def _path(data: schema.PathProven) -> str:
    return f"{data.experiment_id} in use? {data.evidence.outcome}: {data.evidence.reason}"


def _baseline(data: schema.Baseline) -> str:
    noise = data.noise
    level = level_words(noise.metric, data.metrics.get(noise.metric))
    return f"baseline {level}, noise {percent(noise.launch_sd)} between launches, {data.arms}"


def _researched(data: schema.Researched) -> str:
    first = f", first {change_words(data.hypotheses[0].change)}" if data.hypotheses else ""
    return f"{len(data.hypotheses)} hypotheses{first}"


def _experiment(data: schema.ExperimentStarted) -> str:
    planted = " (planted)" if data.hypothesis.planted else ""
    return f"{data.experiment_id} try {data.try_number}: {change_words(data.hypothesis.change)}{planted}"


def _judged(data: schema.Judged) -> str:
    v = data.verdict
    ratio = f" {times(v.ratio)} ({between(v.interval)})" if v.ratio is not None else ""
    return f"{data.experiment_id} {v.word.upper()}{ratio}: {v.reason}"


def _installed_trees(data: schema.InstalledTrees) -> str | None:
    if data.identical is None:
        return None
    return "installed files: " + ("identical" if data.identical else f"CHANGED: {', '.join(data.changed)}")


def _confirmed(data: schema.Confirmed) -> str:
    v = data.verdict
    word = "CONFIRMED" if v.word == VerdictWord.KEEP else "NOT CONFIRMED"
    return f"{word} {times(v.ratio)} ({between(v.interval)}): {v.reason}"


def _interrupted(data: schema.Interrupted) -> str:
    return f"{data.signal}: ending the engines, then the report"


def _warned(data: schema.Warned) -> str:
    return f"warning: {data.message}"


def _finished(data: schema.NightFinished) -> str:
    return f"night over ({data.outcome}): {data.reason}"


_SAY: dict[str, Callable[[Any], str | None]] = {
    "night_started": _started,
    "night_resumed": _resumed,
    "stage_entered": _entered,
    "card_measured": _card_measured,
    "launch_ready": _ready,
    "launch_failed": _launch_failed,
    "measured": _measured,
    "gated": _gated,
    "path_evidence": _path,
    "baseline": _baseline,
    "researched": _researched,
    "experiment_started": _experiment,
    "judged": _judged,
    "installed_trees": _installed_trees,
    "confirmed": _confirmed,
    "interrupted": _interrupted,
    "warned": _warned,
    "night_finished": _finished,
}
