"""What part of the objective's time a category of work takes: measured where a profile says it, else estimated by the
roofline, and always with the words that say which."""

from __future__ import annotations

from agents.research.dossier import Dossier, PhaseProfile
from agents.research.finding import Phase
from agents.research.roofline import Estimate, estimate
from contracts import Frozen


class Share(Frozen):
    """`estimated`: no profile said it of the phase, the roofline did. `measured`: a profile said all of it, the phase's
    own weight too."""

    value: float
    estimated: bool = False
    measured: bool = False
    words: str  # "attention is 43% of prefill (profile.json), prefill 80% of the time (estimated: roofline of gfx950)"


def phase_share(dossier: Dossier, phase: Phase) -> Share | None:
    """Of all time under the workload, what the phase takes. None where nothing says it."""
    if phase == "all":
        return Share(value=1.0, words="all of the time", measured=True)
    known = _weight(dossier, phase)
    return known and known.model_copy(update={"words": f"{phase} {known.value:.0%} of the time ({known.words})"})


def share(dossier: Dossier, phase: Phase, category: str) -> Share | None:
    """Of all time under the workload; `phase` "all" adds both. None where neither a profile nor an estimate has it.

    "idle" is the time of a step in which no kernel runs; the other categories are shares of the kernels' time. They
    never add up to more than phase_share: what a profile does not name shares what it leaves."""
    if phase == "all":
        both = [share(dossier, one, category) for one in ("prefill", "decode")]
        known = [one for one in both if one is not None]
        words, measured = "; ".join(s.words for s in known), len(known) == 2 and all(s.measured for s in known)
        return Share(value=sum(s.value for s in known), words=words, measured=measured) if known else None
    whole, inside = phase_share(dossier, phase), within(dossier, phase, category)
    if whole is None or inside is None:
        return None
    words = f"{inside.words}, {whole.words}"
    measured = whole.measured and inside.measured
    return Share(value=whole.value * inside.value, words=words, estimated=inside.estimated, measured=measured)


# Judged: a replayed graph launches its kernels back to back, so little of the time without a kernel is left. For scale:
# one MI355X night reports 19 % more throughput where a list that ended at 64 tokens was widened to 256.
GRAPH_SPEEDUP, GRAPH_SPEEDUP_FROM = 5.0, "judged: a replayed graph leaves a fifth of the time in which no kernel ran"


def card_idle(dossier: Dossier) -> Share | None:
    """Of the measured time, what the card spent without a kernel, by the driver's own counter (NVML utilization.gpu,
    amdgpu gpu_busy_percent): all phases together, and coarse, so that it bounds nothing. None on a CPU, and where no
    window was watched. Seen: 20 % busy on an H200 that launched 32 layers op by op for 40 sequences (vLLM 0.26.0,
    2026-11-30)."""
    busy = dossier.counter("card_busy_percent_mean")
    if dossier.card.kind == "cpu" or busy is None or not 0 <= busy <= 100:
        return None
    return Share(
        value=1 - busy / 100, words=f"the card was busy {busy:.0f}% of the measured time (the driver's counter)"
    )


def within(dossier: Dossier, phase: str, category: str) -> Share | None:
    """Share of the phase's own time."""
    seen = _profile(dossier, phase)
    busy = seen.kernel_ms / seen.step_ms if seen and seen.kernel_ms is not None and seen.step_ms else None
    if category == "idle":
        if seen is None or busy is None:
            return None
        words = f"no kernel runs in {1 - busy:.0%} of a {phase} step ({seen.source})"
        return Share(value=1 - busy, words=words, measured=True)
    given = seen.shares if seen else {}
    estimated = category not in given
    if seen is not None and not estimated:
        inside, source = given[category], seen.source
    else:
        guess = estimate(dossier)
        parts = guess.of(phase).shares if guess else {}
        if guess is None or category not in parts:
            return None
        rest = sum(value for name, value in parts.items() if name not in given)
        inside = parts[category] / rest * _left(given) if rest else 0.0
        source = f"what {seen.source} leaves, split as {guess.words}" if seen and given else guess.words
    value = inside * (1.0 if busy is None else busy)
    words = f"{category} is {value:.0%} of {phase} ({source})"
    return Share(value=value, words=words, estimated=estimated, measured=not estimated)


def _profile(dossier: Dossier, phase: str) -> PhaseProfile | None:
    return next((p for p in dossier.phases if p.phase == phase), None)


def _weight(dossier: Dossier, phase: str) -> Share | None:
    """Share of all time that the phase takes; `words`: who says so."""
    seen = _profile(dossier, phase)
    if seen is not None and seen.weight is not None:
        return Share(value=seen.weight, words=seen.source, measured=True)
    other = _profile(dossier, "decode" if phase == "prefill" else "prefill")
    if other is not None and other.weight is not None:
        return Share(value=1 - other.weight, words=other.source, measured=True)
    return _of_both_times(dossier, phase)


def _left(given: dict[str, float]) -> float:
    """Of a phase's kernels, beside the categories that a profile names."""
    return max(0.0, 1 - sum(given.values()))


def _of_both_times(dossier: Dossier, phase: str) -> Share | None:
    """From what a request costs in each phase, seconds of the engine: steps that were timed, else the roofline."""
    guess = estimate(dossier)
    if guess is None:
        return None
    prefill, decode = _seconds(dossier, guess, "prefill"), _seconds(dossier, guess, "decode")
    words = guess.words
    if {prefill.words, decode.words} != {words}:
        both = f"prefill {prefill.value:.3g} s a request, {prefill.words}; decode {decode.value:.3g} s, {decode.words}"
        words = f"derived: {both}"
    own = prefill if phase == "prefill" else decode
    return Share(value=own.value / (prefill.value + decode.value), words=words)


def _seconds(dossier: Dossier, guess: Estimate, phase: str) -> Share:
    """Of one request; `value` is in seconds here. Where no step was timed but a profile says what some categories take,
    the others' bound stands for what is left: the phase cannot be shorter than that."""
    seen, bound = _profile(dossier, phase), guess.of(phase)
    if seen is None:
        return Share(value=bound.seconds, words=guess.words)
    if seen.step_ms:
        words = f"{bound.steps:.3g} steps of {seen.step_ms:.4g} ms ({bound.load}; {seen.source})"
        return Share(value=bound.steps * seen.step_ms / 1e3, words=words)
    left = _left(seen.shares)
    rest = sum(value for name, value in bound.shares.items() if name not in seen.shares)
    if not left or rest <= left:
        return Share(value=bound.seconds, words=guess.words)
    named = " and ".join(f"{name} at {value:.0%}" for name, value in seen.shares.items())
    return Share(value=bound.seconds * rest / left, words=f"{guess.words}, {named} by {seen.source}")
