"""Where the GPU's time goes: one TraceSummary from a Timeline. Pure.

Of a step: wall = from its first GPU work to its last; kernels = union of its kernels over all streams; copies = memcpy
and memset that no kernel hides; idle = the rest. The gap after it, until the next step's work begins, is the host's
(scheduling, sampling's result, the next launch), unless it is so long that the engine had nothing to do.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Literal

import numpy as np

from agents.research.traces.categories import category
from agents.research.traces.events import Annotation, Timeline, printable
from agents.research.traces.intervals import Mask, Times, covered
from agents.research.traces.steps import LONGEST_GAP_MS, How, StepKind, step_kind, steps_of
from contracts import Frozen

Phase = Literal["prefill", "decode", "unknown"]

TOP_KERNELS = 10  # of a phase, by time
# A kernel that runs shorter than a launch takes the host cannot hide the next launch. On an MI300X an eager model under
# the profiler launched one kernel each 15.6 us in the median, the calls alone took 4.5 us (a trace of 2025-07).
SHORT_KERNEL_US = 10.0
MANY_SHORT = 0.5  # of a phase's launches. Judged.
LAUNCH_BOUND_IDLE = 0.15  # of decode time without GPU work. Judged: below it, removing all of it gains under 1.18x.


class KernelTime(Frozen):
    """`share` of the phase's time (steps and the gaps after them; busy time where a trace has no steps)."""

    name: str
    category: str
    launches: int
    time_ms: float
    share: float

    @property
    def bound(self) -> float:
        """Amdahl: what the phase gains if this kernel took no time."""
        return float("inf") if self.share >= 1 else 1 / (1 - self.share)


class Step(Frozen):
    """Milliseconds; `start_ms` from the first GPU work of the trace."""

    name: str
    kind: StepKind
    start_ms: float
    wall_ms: float
    kernel_ms: float
    copy_ms: float
    idle_ms: float
    communication_ms: float  # not hidden behind other kernels
    gap_ms: float | None  # None after the last one, and where it is longer than LONGEST_GAP_MS
    host_ms: float  # of the annotation
    launches: int  # kernels
    graph_launches: int


class PhaseTime(Frozen):
    """Sums over the steps of a phase, or over the whole trace where it has no steps (`steps` 0)."""

    phase: Phase
    steps: int
    mixed_steps: int
    wall_ms: float
    kernel_ms: float
    copy_ms: float
    idle_ms: float
    gap_ms: float
    communication_ms: float
    launches: int
    short_launches: int  # kernels under SHORT_KERNEL_US
    categories: dict[str, float]  # ms of kernels; overlapping kernels count each
    top: tuple[KernelTime, ...]

    @property
    def total_ms(self) -> float:
        return self.wall_ms + self.gap_ms

    @property
    def idle_share(self) -> float:
        """Of steps and gaps: no kernel, no copy."""
        return (self.idle_ms + self.gap_ms) / self.total_ms if self.total_ms else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Of the time in kernels, by category."""
        total = sum(self.categories.values())
        return {name: ms / total for name, ms in self.categories.items()} if total else {}


class TraceSummary(Frozen):
    source: str  # the file's name
    device: str
    devices: int  # that did work in this trace; the busiest one is summed up
    rank: int | None
    how: How  # work was given to steps
    steps: tuple[Step, ...]
    phases: tuple[PhaseTime, ...]
    outside_ms: float  # kernels of no step
    graph_launches: int
    with_stack: bool  # the profiler walked Python's stack: the host looks slower than it is
    warnings: tuple[str, ...] = ()

    def phase(self, name: Phase) -> PhaseTime | None:
        return next((p for p in self.phases if p.phase == name), None)

    @property
    def launch_bound(self) -> bool | None:
        """Decode waits for the host: it idles for more than LAUNCH_BOUND_IDLE and most kernels are short. None without
        decode steps."""
        decode = self.phase("decode")
        if decode is None or not decode.launches:
            return None
        return decode.idle_share > LAUNCH_BOUND_IDLE and decode.short_launches > MANY_SHORT * decode.launches


def summarize(timeline: Timeline, source: str) -> TraceSummary:
    """Raises ValueError where there is no GPU work at all."""
    warnings = [*timeline.warnings, *_left_out(timeline)]
    if not len(timeline.start):
        raise ValueError("; ".join(["no GPU work in it: no event of a kernel with its time", *warnings]))
    work, devices = _of_busiest_device(timeline)
    if devices > 1:
        warnings.append(f"{devices} devices did work in this trace; only the busiest one is summed up")
    annotations, step, how = steps_of(timeline, work.start, work.correlation)
    work = work.ordered(np.lexsort((work.start, step)), step)
    kinds = [step_kind(a.name) or StepKind(phase="unknown") for a in annotations]
    steps, place = _steps(timeline, work, annotations, kinds)
    if annotations and not steps:
        warnings.append(f"{len(annotations)} step annotations, and no GPU work that belongs to one of them")
    phases = [
        _phase(work, name, [s for s in steps if s.kind.phase == name], np.isin(work.step, place[name]))
        for name in ("prefill", "decode", "unknown")
        if place[name]
    ]
    return TraceSummary(
        source=source,
        device=_device(timeline),
        devices=devices,
        rank=timeline.rank,
        how=how,
        steps=tuple(steps),
        phases=tuple(phases) if steps else (_whole(work),),
        outside_ms=float(work.duration[(work.step < 0) & ~work.copy].sum(dtype=float) / 1e6) if steps else 0.0,
        graph_launches=len(timeline.graph_at),
        with_stack=timeline.with_stack,
        warnings=tuple(warnings),
    )


class _Work:
    """The columns of one device, as arrays."""

    def __init__(self, names: list[str], **columns: Times) -> None:
        self.names = names
        self.categories = [category(name) for name in names]
        talks = np.array([c == "communication" for c in self.categories], dtype=bool)
        self.columns = columns
        self.start, self.duration, self.name = columns["start"], columns["duration"], columns["name"]
        self.correlation, self.copy = columns["correlation"], columns["copy"].astype(bool)
        self.step = columns.get("step", np.full(len(self.start), -1, dtype=np.int64))
        self.end = self.start + self.duration
        self.talks = talks[self.name] & ~self.copy if len(talks) else self.copy

    def ordered(self, order: Times, step: Times) -> _Work:
        return _Work(self.names, **{k: v[order] for k, v in {**self.columns, "step": step}.items()})


def _of_busiest_device(timeline: Timeline) -> tuple[_Work, int]:
    """Work of no told device counts with the busiest one."""
    columns: dict[str, Times] = {
        "start": np.frombuffer(timeline.start, dtype=np.int64),
        "duration": np.frombuffer(timeline.duration, dtype=np.int64),
        "name": np.frombuffer(timeline.name, dtype=np.int32),
        "copy": np.frombuffer(timeline.copy, dtype=np.int8),
        "correlation": np.frombuffer(timeline.correlation, dtype=np.int64),
    }
    device = np.frombuffer(timeline.device, dtype=np.int32)
    spent = np.bincount(device, weights=columns["duration"], minlength=len(timeline.devices))
    untold = timeline.devices.get("", -1)
    told = [i for i in range(len(spent)) if i != untold]
    names = [printable(name) for name in timeline.names]
    if len(told) > 1:
        mine = (device == max(told, key=lambda i: spent[i])) | (device == untold)
        columns = {key: column[mine] for key, column in columns.items()}
    return _Work(names, **columns), max(len(told), 1)


def _left_out(timeline: Timeline) -> list[str]:
    lines = []
    if timeline.unusable:
        total = timeline.unusable + len(timeline.start)
        lines.append(f"{timeline.unusable} of {total} GPU events have no usable time and are left out")
    if timeline.beyond:
        lines.append(f"{timeline.beyond} events beyond what is kept of one trace are left out")
    return lines


def _device(timeline: Timeline) -> str:
    """The name, or the sizes where it is empty: torch on ROCm leaves it so at times."""
    if not timeline.properties:
        return "not told"
    p = timeline.properties[0]
    if isinstance(name := p.get("name"), str) and name.strip():
        return printable(name)[:80]
    units, memory, lanes = p.get("numSms"), p.get("totalGlobalMem"), p.get("warpSize")
    gib = f"{memory / 2**30:.0f} GiB" if isinstance(memory, int | float) else "unknown memory"
    return f"unnamed: {units} compute units, {gib}, {lanes} lanes a wave"


def _steps(
    timeline: Timeline, work: _Work, annotations: list[Annotation], kinds: list[StepKind]
) -> tuple[list[Step], dict[str, list[int]]]:
    """Steps that did GPU work, and their numbers by phase. `work` is sorted by step, then by start."""
    edges = np.searchsorted(work.step, np.arange(len(annotations) + 1))
    graphs = np.searchsorted(np.sort(np.frombuffer(timeline.graph_at, dtype=np.int64)), [a.start for a in annotations])
    graphs = np.append(graphs, len(timeline.graph_at))
    zero, found = int(work.start.min()), list[Step]()
    place: dict[str, list[int]] = defaultdict(list)
    used = [i for i in range(len(annotations)) if edges[i] < edges[i + 1]]
    for n, i in enumerate(used):
        part = slice(edges[i], edges[i + 1])
        times = _times(work, part)
        first, last = int(work.start[part][0]), int(work.end[part].max())
        after = work.start[edges[used[n + 1]]] if n + 1 < len(used) else None
        gap = None if after is None else max(int(after) - last, 0) / 1e6
        place[kinds[i].phase].append(i)
        found.append(
            Step(
                name=annotations[i].name,
                kind=kinds[i],
                start_ms=(first - zero) / 1e6,
                gap_ms=gap if gap is not None and gap <= LONGEST_GAP_MS else None,
                host_ms=annotations[i].duration / 1e6,
                launches=int((~work.copy[part]).sum()),
                graph_launches=int(graphs[i + 1] - graphs[i]),
                **times,
            )
        )
    return found, place


def _times(work: _Work, part: slice) -> dict[str, float]:
    """wall, kernel, copy, idle and communication of work that is sorted by start."""
    start, end, copy, talks = work.start[part], work.end[part], work.copy[part], work.talks[part]
    wall, busy = int(end.max() - start[0]), covered(start, end)
    kernels = covered(start[~copy], end[~copy])
    quiet = covered(start[~copy & ~talks], end[~copy & ~talks])
    return {
        "wall_ms": wall / 1e6,
        "kernel_ms": kernels / 1e6,
        "copy_ms": (busy - kernels) / 1e6,
        "idle_ms": (wall - busy) / 1e6,
        "communication_ms": (kernels - quiet) / 1e6,
    }


def _phase(work: _Work, name: Phase, steps: list[Step], mine: Mask) -> PhaseTime:
    gap = sum(s.gap_ms or 0.0 for s in steps)
    times = {
        key: sum(getattr(s, key) for s in steps)
        for key in ("wall_ms", "kernel_ms", "copy_ms", "idle_ms", "communication_ms")
    }
    return PhaseTime(
        phase=name,
        steps=len(steps),
        mixed_steps=sum(s.kind.mixed for s in steps),
        gap_ms=gap,
        **times,
        **_kernels(work, mine & ~work.copy, times["wall_ms"] + gap),
    )


def _whole(work: _Work) -> PhaseTime:
    everything = slice(0, len(work.start))  # of one step, -1, so sorted by start
    times = _times(work, everything)
    kernels = _kernels(work, ~work.copy, times["kernel_ms"] + times["copy_ms"])
    return PhaseTime(phase="unknown", steps=0, mixed_steps=0, gap_ms=0.0, **times, **kernels)


def _kernels(work: _Work, mine: Mask, base_ms: float) -> dict[str, object]:
    name, duration = work.name[mine], work.duration[mine]
    spent = np.bincount(name, weights=duration, minlength=len(work.names)) / 1e6
    count = np.bincount(name, minlength=len(work.names))
    categories: dict[str, float] = defaultdict(float)
    for i in np.flatnonzero(count):
        categories[work.categories[i]] += float(spent[i])
    return {
        "launches": len(name),
        "short_launches": int((duration < SHORT_KERNEL_US * 1000).sum()),
        "categories": dict(sorted(categories.items(), key=lambda item: -item[1])),
        "top": tuple(
            KernelTime(
                name=work.names[i],
                category=work.categories[i],
                launches=int(count[i]),
                time_ms=float(spent[i]),
                share=min(float(spent[i]) / base_ms, 1.0) if base_ms else 0.0,
            )
            for i in np.argsort(-spent, kind="stable")[:TOP_KERNELS]
            if count[i]
        ),
    }


def typical_ms(steps: list[Step]) -> tuple[float, float]:
    """(step and the gap after it, of it in kernels), medians; a gap that is not known is left out of the first."""
    gaps = [s.gap_ms for s in steps if s.gap_ms is not None]
    return median(s.wall_ms for s in steps) + (median(gaps) if gaps else 0.0), median(s.kernel_ms for s in steps)
