"""What do profiles of this engine say about where its time goes?

Facts, and traps where a trace cannot be trusted: what would help against them is for the readers of attention, GEMM,
MoE and graphs to say, and their shares come from the same traces (`traces.profiles`).
"""

from __future__ import annotations

from pathlib import Path

from agents.research.dossier import Dossier
from agents.research.finding import Finding
from agents.research.traces.read import TraceError, read_trace
from agents.research.traces.steps import LONGEST_GAP_MS
from agents.research.traces.summary import (
    LAUNCH_BOUND_IDLE,
    MANY_SHORT,
    SHORT_KERNEL_US,
    PhaseTime,
    TraceSummary,
)
from contracts import Evidence

NAME = "traces"

MOST_TRACES = 16  # the first ones; a rank each of two eight-card servers
BIG_KERNEL = 0.30  # of a phase: a kernel that is worth an evening by itself
TOLD_COMMUNICATION = 0.05  # of decode. Judged, as the two below: less is not worth a line.
TOLD_COPIES = 0.01
TOLD_GAPS = 0.05


def look(dossier: Dossier) -> list[Finding]:
    found: list[Finding] = []
    read: list[TraceSummary] = []
    for path in dossier.traces[:MOST_TRACES]:
        try:
            read.append(read_trace(path))
        except TraceError as error:
            found.append(_trap(Path(path).name, f"A trace cannot be read: {error}", "nothing was taken from it"))
    if len(dossier.traces) > MOST_TRACES:
        left = len(dossier.traces) - MOST_TRACES
        title = f"{left} traces were not read: only the first {MOST_TRACES} are"
        found.append(_trap("the list of traces", title, f"{len(dossier.traces)} paths"))
    first = min((trace.rank for trace in read if trace.rank is not None), default=0)
    for trace in read:
        found += findings(trace, brief=(trace.rank or 0) > first)
    return found


def findings(trace: TraceSummary, brief: bool = False) -> list[Finding]:
    """Of one trace; in brief a line a phase: for the further ranks of a server whose first rank says the rest."""
    found = []
    if trace.warnings:
        title = f"The figures of {trace.source} are to be read with care: {trace.warnings[0]}"
        found.append(_trap(trace.source, title, "; ".join(trace.warnings)))
    if brief:
        return found + [_where_time_goes(trace, phase) for phase in trace.phases]
    for phase in trace.phases:
        found.append(_where_time_goes(trace, phase))
        found += _big_kernels(trace, phase)
    decode = trace.phase("decode")
    if decode is not None:
        found += [_launches(trace, decode), *_beside_the_kernels(trace, decode)]
    return found


def _where_time_goes(trace: TraceSummary, phase: PhaseTime) -> Finding:
    parts = ", ".join(f"{name} {share:.1%}" for name, share in phase.shares.items() if share >= 0.005)
    if phase.steps:
        mixed = f", {phase.mixed_steps} of them with generation too" if phase.mixed_steps else ""
        steps = f"{phase.steps} step{'s' if phase.steps > 1 else ''}{mixed}"
        per = f"{_label(trace, phase)} takes {phase.total_ms / phase.steps:.3f} ms a step ({steps})"
    else:
        per = f"{_label(trace, phase)} takes {phase.wall_ms:.3f} ms from the first kernel to the last"
    idle = f"the GPU idles {phase.idle_share:.1%} of it"
    detail = (
        f"kernels {phase.kernel_ms:.4f} ms, copies beside them {phase.copy_ms:.4f} ms, idle {phase.idle_ms:.4f} ms of "
        f"{phase.wall_ms:.4f} ms; between steps {phase.gap_ms:.4f} ms; {phase.launches} kernels; "
        f"device {trace.device}; work given to steps by {trace.how}; kernels outside of steps {trace.outside_ms:.4f} ms"
    )
    return _fact(trace, phase, f"{per}; of the time in kernels {parts or 'nothing'}; {idle}", detail)


def _big_kernels(trace: TraceSummary, phase: PhaseTime) -> list[Finding]:
    found = []
    for kernel in phase.top:
        if kernel.share > BIG_KERNEL:
            of = "the steps' time" if phase.steps else "the GPU's busy time"
            bound = f"{kernel.bound:.2f} times as fast" if kernel.share < 1 else "without bound"
            title = (
                f"One kernel, {_short(kernel.name)} ({kernel.category}), is {kernel.share:.1%} of "
                f"{_label(trace, phase)}; without it the phase would be at most {bound}"
            )
            detail = f"{kernel.launches} launches, {kernel.time_ms:.4f} ms, share of {of}: {kernel.name[:300]}"
            found.append(_fact(trace, phase, title, detail))
    return found


def _launches(trace: TraceSummary, decode: PhaseTime) -> Finding:
    graphs = sum(step.graph_launches for step in trace.steps if step.kind.phase == "decode")
    short = decode.short_launches / decode.launches if decode.launches else 0.0
    told = f"graph launches: {graphs}, steps: {decode.steps}" if graphs else "no graph launch in any of its steps"
    bound = "is launch-bound" if trace.launch_bound else "is not launch-bound"
    title = (
        f"Decode {bound}: {decode.idle_share:.1%} of it without GPU work, {short:.0%} of its {decode.launches} kernels "
        f"shorter than {SHORT_KERNEL_US:g} us; {told}"
    )
    detail = f"called launch-bound above {LAUNCH_BOUND_IDLE:.0%} idle with more than {MANY_SHORT:.0%} short kernels"
    if trace.with_stack:
        detail += "; the profiler walked Python's stack, so the host was slower than without it"
    return _fact(trace, decode, title, detail)


def _beside_the_kernels(trace: TraceSummary, decode: PhaseTime) -> list[Finding]:
    found, total = [], decode.total_ms or 1.0
    for ms, least, what, detail in (
        (
            decode.communication_ms,
            TOLD_COMMUNICATION,
            "waits for communication that no other kernel hides",
            f"{decode.categories.get('communication', 0.0):.4f} ms in such kernels",
        ),
        (decode.copy_ms, TOLD_COPIES, "copies memory while no kernel runs", "gpu_memcpy and gpu_memset events"),
        (
            decode.gap_ms,
            TOLD_GAPS,
            "is between steps, where the host prepares the next one,",
            f"gaps over {LONGEST_GAP_MS:g} ms are not counted",
        ),
    ):
        if ms / total > least:
            title = f"Decode {what} for {ms / total:.1%} of its time ({ms / max(decode.steps, 1):.3f} ms a step)"
            found.append(_fact(trace, decode, title, f"{ms:.4f} ms of {total:.4f} ms; {detail}"))
    return found


def _label(trace: TraceSummary, phase: PhaseTime) -> str:
    rank = f"rank {trace.rank}'s " if trace.rank else ""
    return rank + {"prefill": "prefill", "decode": "decode"}.get(phase.phase, "what the trace holds (phase not told)")


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."


def _fact(trace: TraceSummary, phase: PhaseTime, title: str, detail: str) -> Finding:
    """With the file and the phase's longest step, where a person finds it again."""
    steps = [step for step in trace.steps if step.kind.phase == phase.phase]
    where = max(steps, key=lambda step: step.wall_ms).name if steps else "all kernels"
    title = title[0].upper() + title[1:]
    return Finding(
        reader=NAME, kind="fact", title=title, evidence=(Evidence(source=f"{trace.source}#{where}", detail=detail),)
    )


def _trap(source: str, title: str, detail: str) -> Finding:
    return Finding(reader=NAME, kind="trap", title=title, evidence=(Evidence(source=source, detail=detail),))
