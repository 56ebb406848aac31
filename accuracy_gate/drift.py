"""The drift check: how likely does the engine find fixed texts, and did that move? The rule is this page.

The token gate looks at the size of what moved, and a fault as small as rounding hides there. But rounding has no
direction: over thousands of positions it averages out, and a fault does not. So beside the size, directions are tested,
each with its own standard error from the differences between texts:

    likelihood    the mean change of the log-probability of the text's own tokens (nats a token);
    sharpness     how much farther apart the candidate's logits lie than the reference's (a share).

In this order:
    errors        a request failed: `inconclusive`. It is no wrong number, and nothing passes.
    other text    the engines read other tokens: `fail`.
    size          rms of the moves / band: as the bulk rule of the token gate.
    directions    beyond what is allowed by FAIL standard errors: `fail`; by PASS standard errors: `inconclusive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from accuracy_gate.drift_collect import DriftRun
from accuracy_gate.drift_compare import DriftComparison, compare
from accuracy_gate.drift_trends import largest, size, trends
from contracts import Frozen, GateResult, JsonValue

Outcome = Literal["pass", "fail", "inconclusive"]

CHECK = "drift"
BULK_PASS = 1.5
BULK_FAIL = 2.0
# The least rms of the moves of one logit that rounding is given (nats), where nothing was measured.
SIZE_FLOOR = 0.01
# Of a direction, what is allowed whatever was measured: nats a token, and a share.
FLOORS = {"likelihood": 0.002, "sharpness": 0.0005, "growth": 0.05}
PASS = 3.0  # standard errors
FAIL = 5.0


class Direction(Frozen):
    """One direction of one comparison: likelihood in nats a token, sharpness as a share."""

    name: str
    value: float
    error: float | None  # standard error; None with fewer than two texts


class DriftSpread(Frozen):
    """One comparison of the unchanged engine with itself, in numbers."""

    name: str
    texts: int
    positions: int
    size: float
    largest: float
    directions: tuple[Direction, ...]


class DriftReference(Frozen):
    """How likely the unchanged engine finds the texts, tonight; kept for the whole night, as the token gate's is."""

    runs: tuple[DriftRun, ...]  # one for each mode and width
    band: float  # rms of a logit's moves that rounding makes, nats
    allowed: dict[str, float]  # by direction
    spreads: tuple[DriftSpread, ...]
    mode: str

    def run_like(self, candidate: DriftRun) -> DriftRun:
        """Raises ValueError when nothing alike was collected."""
        for run in self.runs:
            if (run.mode, run.concurrency) == (candidate.mode, candidate.concurrency):
                return run
        have = ", ".join(f"{run.mode} {run.concurrency}" for run in self.runs)
        raise ValueError(f"drift compares like with like: it has {have}, not {candidate.mode} {candidate.concurrency}")


def calibrate(runs: Sequence[DriftRun]) -> DriftReference:
    """From runs of the unchanged engine on the same texts: each mode and width in two (or more) fresh processes.

    Raises ValueError, with what to do, when a run has errors or a mode is there only once.
    """
    groups: dict[tuple[str, int], list[DriftRun]] = {}
    for run in runs:
        if run.errors:
            lost = run.errors[0]
            raise ValueError(
                f"the unchanged engine did not read {lost.prompt_id} ({lost.error}: {lost.detail}); "
                "read its log, give it more time (limits.request_s), or ask for shorter texts"
            )
        groups.setdefault((run.mode, run.concurrency), []).append(run)
    if not groups:
        raise ValueError("no runs to calibrate with; collect each mode in two fresh processes")
    spreads: list[DriftSpread] = []
    words: list[str] = []
    for (mode, width), group in groups.items():
        if len({run.launch_id for run in group}) < 2:
            raise ValueError(f"mode {mode} {width} was collected in one process only; A/A needs two fresh processes")
        found = [spread(f"{mode} {width}, two processes", compare(group[0], other)) for other in group[1:]]
        exact = all(one.largest == 0 for one in found)
        words.append(f"{mode} {width}: two fresh processes {'agree to the last digit' if exact else 'differ'}")
        spreads += found
    first = [group[0] for group in groups.values()]
    spreads += [
        spread(f"{first[0].mode} against {run.mode} {run.concurrency}", compare(first[0], run)) for run in first[1:]
    ]
    return DriftReference(
        runs=tuple(first),
        band=max(SIZE_FLOOR, *(one.size for one in spreads)),
        allowed={
            name: max(floor, *(abs(d.value) for one in spreads for d in one.directions if d.name == name))
            for name, floor in FLOORS.items()
        },
        spreads=tuple(spreads),
        mode="; ".join(words),
    )


def spread(name: str, comparison: DriftComparison) -> DriftSpread:
    return DriftSpread(
        name=name,
        texts=len(comparison.texts),
        positions=comparison.positions,
        size=size(comparison),
        largest=largest(comparison)[0],
        directions=directions(comparison),
    )


def directions(comparison: DriftComparison) -> tuple[Direction, ...]:
    return tuple(Direction(name=name, value=one.value, error=one.error) for name, one in trends(comparison).items())


def check(reference: DriftReference, candidate_run: DriftRun) -> GateResult:
    """The rule above. The candidate may have read fewer texts.

    Raises ValueError when it was not asked alike: that is a mistake of the caller, not of the engine.
    """
    known = reference.run_like(candidate_run)
    comparison = compare(known, candidate_run)
    outcome, reason = judge(comparison, reference)
    form = "full" if len(candidate_run.sequences) == len(known.sequences) else "quick"
    return GateResult(
        check=CHECK,
        outcome=outcome,
        mode=f"{form}: {known.mode}, {known.concurrency} at a time",
        statistic=_statistic(comparison, reference),
        power=_power(comparison, reference),
        reason=reason,
        seconds=candidate_run.seconds,
    )


def judge(comparison: DriftComparison, reference: DriftReference) -> tuple[Outcome, str]:
    """Outcome and reason. Pure: this is the whole rule."""
    if comparison.other_text:
        return "fail", f"the engine read {comparison.other_text[0]} as other tokens than the reference"
    if comparison.problems:
        return "inconclusive", f"{len(comparison.problems)} texts were not read; {comparison.problems[0]}"
    if not comparison.positions:
        return "inconclusive", "no texts were asked"
    moved = size(comparison)
    if not moved:
        return "pass", f"all log-probabilities of {comparison.positions} tokens are equal"
    ratio = moved / reference.band
    faults, doubts = [], []
    bulk = f"logits moved {ratio:.2f} times tonight's rounding (rms {moved:.3f} against {reference.band:.3f} nats)"
    if ratio > BULK_FAIL:
        faults.append(f"{bulk}, and over {BULK_FAIL:g} is no rounding")
    elif ratio > BULK_PASS:
        doubts.append(f"{bulk}; up to {BULK_PASS:g} is rounding")
    for one in directions(comparison):
        allowed, error = reference.allowed[one.name], one.error or 0.0
        words = f"{one.name} moved by {one.value:+.5f} (standard error {error:.5f}), allowed {allowed:.5f}"
        if abs(one.value) > allowed + FAIL * error:
            faults.append(words)
        elif abs(one.value) > allowed + PASS * error:
            doubts.append(words)
    if faults or doubts:
        return ("fail" if faults else "inconclusive"), "; ".join([*faults, *doubts])
    return "pass", f"{bulk}, and in no direction beyond it"


def _statistic(comparison: DriftComparison, reference: DriftReference) -> dict[str, JsonValue]:
    peak, where = largest(comparison)
    return {
        "texts": len(comparison.texts),
        "positions": comparison.positions,
        "size": size(comparison),
        "band": reference.band,
        "ratio": size(comparison) / reference.band,
        "largest": peak,
        "largest_at": where,
        "directions": [one.model_dump(mode="json") for one in directions(comparison)],
        "allowed": dict(reference.allowed),
        "unchanged": [one.model_dump(mode="json") for one in reference.spreads],
    }


def _power(comparison: DriftComparison, reference: DriftReference) -> str:
    """What this check could have seen: a direction is failed for sure (97.5 %) from allowed + (FAIL + 2) errors on."""
    parts = [
        f"{one.name} from {reference.allowed[one.name] + (FAIL + 2) * (one.error or 0.0):.4f}"
        for one in directions(comparison)
    ]
    return (
        f"{comparison.positions} positions in {len(comparison.texts)} texts. A fault fails that moves "
        f"{', '.join(parts)} on; or all logits by {reference.band * (BULK_FAIL**2 - 1) ** 0.5:.3f} nats rms"
    )
