"""What part of the objective's time a category of work takes: measured where a profile says it, else estimated by the
roofline, and always with the words that say which."""

from __future__ import annotations

from agents.research.dossier import Dossier, PhaseProfile
from agents.research.finding import Phase
from agents.research.roofline import estimate
from contracts import Frozen

CATEGORIES = ("attention", "gemm", "moe", "norm", "sampling", "communication", "other", "idle")


class Share(Frozen):
    value: float
    words: str  # "attention is 43% of prefill (profile.json), prefill 80% of the time (estimated: roofline of gfx950)"


def share(dossier: Dossier, phase: Phase, category: str) -> Share | None:
    """Of all time under the workload; `phase` "all" adds both. None where neither a profile nor an estimate has it.

    "idle" is the time of a step in which no kernel runs; the other categories are shares of the kernels' time."""
    if phase == "all":
        both = [share(dossier, one, category) for one in ("prefill", "decode")]
        known = [one for one in both if one is not None]
        return Share(value=sum(s.value for s in known), words="; ".join(s.words for s in known)) if known else None
    weight, within = _weight(dossier, phase), _within(dossier, phase, category)
    if weight is None or within is None:
        return None
    value, words = within
    return Share(value=weight[0] * value, words=f"{words}, {phase} {weight[0]:.0%} of the time ({weight[1]})")


def _profile(dossier: Dossier, phase: str) -> PhaseProfile | None:
    return next((p for p in dossier.phases if p.phase == phase), None)


def _weight(dossier: Dossier, phase: str) -> tuple[float, str] | None:
    """Share of all time that the phase takes."""
    seen = _profile(dossier, phase)
    if seen is not None and seen.weight is not None:
        return seen.weight, seen.source
    other = _profile(dossier, "decode" if phase == "prefill" else "prefill")
    if other is not None and other.weight is not None:
        return 1 - other.weight, other.source
    guess = estimate(dossier)
    if guess is None:
        return None
    total = guess.prefill_s + guess.decode_s
    return (guess.prefill_s if phase == "prefill" else guess.decode_s) / total, guess.words


def _within(dossier: Dossier, phase: str, category: str) -> tuple[float, str] | None:
    """Share of the phase's own time."""
    seen = _profile(dossier, phase)
    busy = seen.kernel_ms / seen.step_ms if seen and seen.kernel_ms is not None and seen.step_ms else None
    if category == "idle":
        if seen is None or busy is None:
            return None
        return 1 - busy, f"no kernel runs in {1 - busy:.0%} of a {phase} step ({seen.source})"
    if seen is not None and category in seen.shares:
        value = seen.shares[category] * (busy if busy is not None else 1.0)
        return value, f"{category} is {value:.0%} of {phase} ({seen.source})"
    guess = estimate(dossier)
    inside = None if guess is None else (guess.prefill if phase == "prefill" else guess.decode).get(category)
    if inside is None or guess is None:
        return None
    value = inside * (busy if busy is not None else 1.0)
    return value, f"{category} is {value:.0%} of {phase} ({guess.words})"
