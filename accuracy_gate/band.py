"""What harmless rounding looks like tonight, measured on the unchanged engine.

Two measurements need no second build and no trust:
    A/A                   the same mode in two fresh processes: what chance alone does (often nothing at all);
    alone, concurrent     the same prompts in batches of 1 and of many. The sums inside are the same, their order is
                          not, so every difference is rounding. It is a fair sample of what another kernel, a compiled
                          graph or another batch size may do without being wrong.
The band is the widest of them, and never narrower than one step of the engine's own logits. Pure functions of data.
"""

from __future__ import annotations

from collections.abc import Sequence

from accuracy_gate.collect import TokenSequence
from accuracy_gate.compare import Comparison, max_abs, mean_abs, rms
from contracts import Frozen

# The least rms of the shifts that rounding is given, in nats, where logits have no visible step (float32). Two orders
# above what reordered float32 sums do, far below what a wrong layer does.
FLOAT_FLOOR = 0.01

# A power of two counts as the logits' step when this share of the gaps between neighbours in the lists are multiples
# of it. bf16 logits of 16 to 32 have steps of 0.125, smaller ones finer steps. SmolLM2-135M: 91 % of the gaps between
# the two best are multiples of 0.125, 99 % of 0.0625 (measured 2026-11-29, x86 CPU, vLLM 0.32.0).
STEP_SHARE = 0.8
STEPS = tuple(2.0**-k for k in range(0, 11))
STEP_TOLERANCE = 1e-4  # of a gap, nats: float32 log-probabilities of size 30 are spaced 2e-6


class Spread(Frozen):
    """One comparison in numbers (nats)."""

    name: str  # "alone, two processes"
    prompts: int
    equal: int  # sequences with all token IDs equal
    positions: int  # of the same context
    shift_rms: float
    shift_mean: float  # signed
    shift_max: float
    drift_mean: float  # of sizes
    drift_max: float


class Band(Frozen):
    """`shift_rms` is what thresholds are made of; the rest is there to be read."""

    shift_rms: float
    measured_rms: float  # the widest comparison, before the floor
    step: float | None  # of the logits; None: none visible
    spreads: tuple[Spread, ...]

    @property
    def reason(self) -> str:
        if self.shift_rms > self.measured_rms:
            return f"one step of the logits ({self.step})" if self.step else f"the least assumed ({FLOAT_FLOOR})"
        widest = max(self.spreads, key=lambda spread: spread.shift_rms)
        return f"measured: {widest.name}"


def spread(name: str, comparison: Comparison) -> Spread:
    shifts, drifts = comparison.shifts, comparison.drifts
    return Spread(
        name=name,
        prompts=len(comparison.prompts),
        equal=len(comparison.named("equal")),
        positions=len(shifts),
        shift_rms=rms(shifts),
        shift_mean=sum(shifts) / len(shifts) if shifts else 0.0,
        shift_max=max_abs(shifts),
        drift_mean=mean_abs(drifts),
        drift_max=max_abs(drifts),
    )


def logit_step(sequences: Sequence[TokenSequence]) -> float | None:
    """The largest power of two that most gaps between listed log-probabilities are multiples of.

    Gaps of log-probabilities are gaps of logits, and 16-bit logits come in steps: bf16 has 8 significant bits, so a
    logit between 16 and 32 is rounded to a multiple of 2^(4-7) = 0.125. None where no step shows (float32).
    """
    gaps = [
        abs(best - other)
        for sequence in sequences
        for position in sequence.positions
        for (_, best), (_, other) in zip(position.top, position.top[1:], strict=False)
    ]
    for step in STEPS:
        multiples = sum(abs(gap / step - round(gap / step)) * step <= STEP_TOLERANCE for gap in gaps)
        if gaps and multiples >= STEP_SHARE * len(gaps):
            return step if any(gap > STEP_TOLERANCE for gap in gaps) else None
    return None


def measure(comparisons: Sequence[tuple[str, Comparison]], step: float | None) -> Band:
    """The widest of the named comparisons of an unchanged engine with itself, but at least the floor.

    Why one step: the last rounding alone puts an error of step / sqrt(12) on each logit, so step / sqrt(3) on the
    difference of two leads, and the roundings of the layers before add as much again: 0.9 steps were measured for
    alone against concurrent, 1.0 for eager against compiled (SmolLM2-135M bf16, vLLM 0.32.0 on an x86 CPU, 2026-11-29).
    Without the floor an engine that answers one request at a time would show no rounding, and every other kernel
    would be called wrong.
    """
    spreads = tuple(spread(name, comparison) for name, comparison in comparisons)
    widest = max((one.shift_rms for one in spreads), default=0.0)
    floor = max(step or FLOAT_FLOOR, FLOAT_FLOOR)
    return Band(shift_rms=max(widest, floor), measured_rms=widest, step=step, spreads=spreads)
