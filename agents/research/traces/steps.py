"""Which GPU work belongs to which step of the engine.

vLLM puts an annotation around each execution of its model on the host (v1/worker/gpu_worker.py, 0.30 to 0.33):
`execute_context_N(tokens)_generation_N(tokens)`, or with details
`execute_T_context_N(sq..sk..sqsq..sqsk..)_generation_N(sq..sk..sqsq..sqsk..)`, where sq is the sum of new tokens.
The GPU runs later, often after the annotation has ended. So work is followed back to the call that launched it (the
correlation id) and belongs to the last step that had begun by then: sampling, which is launched after the annotation,
too. A trace without launches is divided by the annotations' own time on the GPU or, last, on the host.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

import numpy as np

from agents.research.traces.events import Annotation, Timeline
from agents.research.traces.intervals import Times
from contracts import Frozen

# Host time after a step's annotation in which what it launches still counts as the step's, and GPU time without work
# up to which the next step counts as following at once. Longer, the engine may have had nothing to do. Judged.
LONGEST_GAP_MS = 50.0

_SIMPLE = re.compile(r"execute_context_(\d{1,9})\((\d{1,9})\)_generation_(\d{1,9})\((\d{1,9})\)")
_SUMS = r"\(sq(\d{1,9})sk\d+sqsq\d+sqsk\d+\)"
_DETAILED = re.compile(rf"execute_\d+_context_(\d{{1,9}}){_SUMS}_generation_(\d{{1,9}}){_SUMS}")
_PROFILER_STEP = re.compile(r"ProfilerStep#\d+")

How = Literal["launch", "gpu annotation", "host annotation", "no steps"]


class StepKind(Frozen):
    """From an annotation. Tokens are None in one that does not tell them (ProfilerStep#n). Unknown are those, and a
    step of no tokens at all: a rank that only keeps the others company."""

    phase: Literal["prefill", "decode", "unknown"]
    mixed: bool = False  # prompts and generation in one step; its phase is prefill
    context_requests: int | None = None
    context_tokens: int | None = None
    generation_requests: int | None = None
    generation_tokens: int | None = None


def step_kind(name: str) -> StepKind | None:
    """None where the annotation is of no step."""
    found = _SIMPLE.fullmatch(name) or _DETAILED.fullmatch(name)
    if found is None:
        return StepKind(phase="unknown") if _PROFILER_STEP.fullmatch(name) else None
    requests, tokens, generating, generated = (int(group) for group in found.groups())
    return StepKind(
        phase="prefill" if tokens > 0 else "decode" if generated > 0 else "unknown",
        mixed=tokens > 0 and generated > 0,
        context_requests=requests,
        context_tokens=tokens,
        generation_requests=generating,
        generation_tokens=generated,
    )


def steps_of(timeline: Timeline, start: Times, correlation: Times) -> tuple[list[Annotation], Times, How]:
    """The steps in order, for each piece of GPU work the number of its step or -1, and how that was found."""
    host, gpu = _steps(timeline.host_annotations), _steps(timeline.gpu_annotations)
    nowhere = np.full(len(start), -1, dtype=np.int64)
    if host:
        launched = _launch_times(timeline, correlation)
        known = launched >= 0
        if known.any():
            step = np.where(known, _in_order(host, launched), -1)
            return host, np.where(known, step, _inside(step, start, len(host))), "launch"
    if gpu:
        return gpu, _in_order(gpu, start, longest_gap=0), "gpu annotation"
    if host:
        return host, _in_order(host, start), "host annotation"
    return [], nowhere, "no steps"


def _steps(annotations: list[Annotation]) -> list[Annotation]:
    """Those of steps, the telling ones if there are any, of one process, in order of time. On the GPU each stream has
    its own annotation of the same step: they become one."""
    kinds = [(a, step_kind(a.name)) for a in annotations]
    told = [a for a, kind in kinds if kind and kind.context_tokens is not None] or [a for a, kind in kinds if kind]
    if not told:
        return []
    process = Counter(a.process for a in told).most_common(1)[0][0]
    merged: list[Annotation] = []
    for a in sorted((a for a in told if a.process == process), key=lambda a: a.start):
        last = merged[-1] if merged else None
        if last and last.name == a.name and a.start < last.start + last.duration:
            end = max(last.start + last.duration, a.start + a.duration)
            merged[-1] = last._replace(duration=end - last.start)
        else:
            merged.append(a)
    return merged


def _launch_times(timeline: Timeline, correlation: Times) -> Times:
    """Host time at which each piece of work was launched, -1 where the trace does not say."""
    ids = np.frombuffer(timeline.launch_correlation, dtype=np.int64)
    if not len(ids):
        return np.full(len(correlation), -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    ids, at = ids[order], np.frombuffer(timeline.launch_at, dtype=np.int64)[order]
    place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    return np.where((ids[place] == correlation) & (correlation >= 0), at[place], -1)


def _in_order(steps: list[Annotation], at: Times, longest_gap: float = LONGEST_GAP_MS) -> Times:
    """The last step that had begun at that time, unless it had ended too long ago."""
    begun = np.array([a.start for a in steps], dtype=np.int64)
    last = np.array([a.start + a.duration + int(longest_gap * 1e6) for a in steps], dtype=np.int64)
    step = np.searchsorted(begun, at, side="right") - 1
    return np.where((step >= 0) & (at <= last[step]), step, -1)


def _inside(step: Times, start: Times, count: int) -> Times:
    """Work of unknown launch belongs to the step whose known work lies around it."""
    first = np.full(count, np.iinfo(np.int64).max)
    final = np.full(count, -1, dtype=np.int64)
    known = step >= 0
    np.minimum.at(first, step[known], start[known])
    np.maximum.at(final, step[known], start[known])
    held = np.flatnonzero(final >= 0)
    if not len(held):
        return np.full(len(start), -1, dtype=np.int64)
    place = np.searchsorted(first[held], start, side="right") - 1
    return np.where((place >= 0) & (start <= final[held][place]), held[place], -1)
