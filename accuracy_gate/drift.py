"""The drift check: how likely does the engine find fixed texts, and did that move? The rule is this page; the numbers
behind it are in docs/accuracy_gate.md.

The token gate looks at the size of what moved, and a fault as small as rounding hides there. But rounding has no
direction: over thousands of positions it averages out, and a fault does not. So beside the size, trends are tested
(drift_trends.py): `likelihood`, `sharpness`, and `growth` with the position. In this order:

    errors      a text was not read: `inconclusive`. It is no wrong number, and nothing passes.
    other text  the engines read other tokens: `fail`.
    all equal   `pass`.
    size        rms of the moves, in bands: the token gate's bulk rule, BULK_PASS and BULK_FAIL.
    stretch     the worst STRETCH positions in a row, in bands: a fault in one place of one text.
    trends      each within what is allowed, which float32 itself may widen.
    farther     only with a float32 recording (`truth`): how much farther from it than the unchanged engine the
                candidate is, `excess`, and whether that grows with the position. Another way to round is about as far
                from exact, so this sees faults that are smaller than rounding.
What has a standard error (from the differences between texts) must lie beyond its limit by more of them than chance
makes once in 1/CHANCE_PASS (`inconclusive`) or 1/CHANCE_FAIL (`fail`) checks of an engine that is just at the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue
from scipy.special import stdtrit

from accuracy_gate import band as bands
from accuracy_gate.collect import TokenSequence
from accuracy_gate.drift_collect import DriftRun
from accuracy_gate.drift_compare import DriftComparison, compare
from accuracy_gate.drift_trends import Estimate, farther, largest, size, trends, worst_stretch
from contracts import Frozen, GateResult

Outcome = Literal["pass", "fail", "inconclusive"]

CHECK = "drift"
BULK_PASS = 1.5  # in bands, as the token gate's
BULK_FAIL = 2.0
GROWTH_FROM = 0.5  # in bands: of moves smaller than that it does not matter how they grow, and float32's do anyhow
STRETCH_PASS = 3.0  # in bands
STRETCH_FAIL = 5.0
# What is allowed of each trend, whatever was measured: nats a token; a share; a share a 100 tokens. vLLM's bf16 kernels
# on a CPU are themselves this far from float32 (arithmetic model): 0.007, -0.0008, 0.03 to 0.045.
ALLOWED = {"likelihood": 0.01, "sharpness": 0.0008, "growth": 0.03}
FARTHER_PASS = {"excess": 1.1, "excess_growth": 0.02}
FARTHER_FAIL = {"excess": 1.25, "excess_growth": 0.02}
# Positions at which the lists share fewer than two tokens, so that no move can be taken; rounding makes none.
APART_SHARE = 0.01
CHANCE_PASS = 1e-2
CHANCE_FAIL = 1e-3
# Where no rounding was measured, or less than FLOAT_FLOOR: this share of one step of the logits, or FLOAT_FLOOR nats
# where no step shows. In float32 a decoded token and the same token read back moved by 2.6e-6 nats (arithmetic model,
# vLLM 0.32.0 on an x86 CPU, 2026-11-29): a band of that would blame every other order of the same sums.
STEP_SHARE = 0.2
FLOAT_FLOOR = 1e-4


class Trend(Frozen):
    """`value` in its own unit (drift_trends.py); `error` is the standard error, None with fewer than two texts."""

    name: str
    value: float
    error: float | None


class DriftSpread(Frozen):
    """One comparison of the unchanged engine with itself, in numbers (nats)."""

    name: str
    texts: int
    positions: int
    size: float
    largest: float
    trends: tuple[Trend, ...]


class DriftReference(Frozen):
    """How likely the unchanged engine finds the texts, tonight; kept for the whole night, as the token gate's is."""

    runs: tuple[DriftRun, ...]  # one for each mode and width
    truth: DriftRun | None = None  # the same texts in float32
    band: float  # rms of a logit's moves that rounding makes, nats
    band_source: str
    allowed: dict[str, tuple[float, float]]  # by trend, from and to
    spreads: tuple[DriftSpread, ...]
    mode: str

    def run_like(self, candidate: DriftRun) -> DriftRun:
        """Raises ValueError when nothing alike was collected."""
        for run in self.runs:
            if (run.mode, run.concurrency) == (candidate.mode, candidate.concurrency):
                return run
        have = ", ".join(f"{run.mode} {run.concurrency}" for run in self.runs)
        raise ValueError(f"drift compares like with like: it has {have}, not {candidate.mode} {candidate.concurrency}")


def calibrate(runs: Sequence[DriftRun], truth: DriftRun | None = None) -> DriftReference:
    """From runs of the unchanged engine on the same texts: each mode and width in two (or more) fresh processes. One
    of them at least should have decoded too (collect_drift's `decode`): that shows what rounding looks like.
    `truth`: the same texts read by the same model in float32, where that can be had.

    Raises ValueError, with what to do, when a run has errors or a mode is there only once.
    """
    groups: dict[tuple[str, int], list[DriftRun]] = {}
    for run in [*runs, *([truth] if truth else [])]:
        if run.errors:
            lost = run.errors[0]
            raise ValueError(
                f"the unchanged engine did not read {lost.prompt_id} ({lost.error}: {lost.detail}); "
                "read its log, give it more time (limits.request_s), or ask for shorter texts"
            )
        if run is not truth:
            groups.setdefault((run.mode, run.concurrency), []).append(run)
    if not groups:
        raise ValueError("no runs to calibrate with; collect each mode in two fresh processes")
    spreads: list[DriftSpread] = []
    words: list[str] = []
    for (mode, width), group in groups.items():
        if len({run.launch_id for run in group}) < 2:
            raise ValueError(f"mode {mode} {width} was collected in one process only; A/A needs two fresh processes")
        found = [spread(f"{mode} {width}, two processes", compare(group[0], other)) for other in group[1:]]
        same = "agree to the last digit" if all(one.largest == 0 for one in found) else "differ"
        words.append(f"{mode} {width}: two fresh processes {same}")
        spreads += found
    first = [group[0] for group in groups.values()]
    for run in first[1:]:
        name = f"{first[0].mode} {first[0].concurrency} against {run.mode} {run.concurrency}"
        spreads.append(spread(name, compare(first[0], run)))
    for run in (run for run in first if run.decoded):
        one_by_one, together = _only(run, run.decoded), _only(run, run.read_back)
        spreads.append(spread("decoded against read", compare(one_by_one, together)))
    exact = [spread("against float32", compare(first[0], truth))] if truth else []
    widest = max([*spreads, *exact], key=lambda one: one.size)
    band, source = (widest.size, widest.name) if widest.size > FLOAT_FLOOR else _least(first[0])
    return DriftReference(
        runs=tuple(first),
        truth=truth,
        band=band,
        band_source=source,
        allowed={name: _allowed(name, spreads, exact) for name in ALLOWED},
        spreads=(*spreads, *exact),
        mode="; ".join(words),
    )


def _only(run: DriftRun, sequences: tuple[TokenSequence, ...]) -> DriftRun:
    return run.model_copy(update={"sequences": sequences})


def _least(run: DriftRun) -> tuple[float, str]:
    step = bands.logit_step(run.sequences)
    if step is None:
        return FLOAT_FLOOR, f"the least assumed ({FLOAT_FLOOR} nats)"
    return STEP_SHARE * step, f"{STEP_SHARE:g} steps of the logits ({step} nats): nothing was measured"


def _allowed(name: str, unchanged: Sequence[DriftSpread], exact: Sequence[DriftSpread]) -> tuple[float, float]:
    """At least ALLOWED either way; as far as the unchanged engine surely moves from itself; and to where float32 is,
    on that side only: a change that computes more exactly is no fault."""
    least = ALLOWED[name]
    for trend in (trend for one in unchanged for trend in one.trends if trend.name == name):
        least = max(least, abs(trend.value) - 3 * (trend.error or 0.0))
    true = [trend.value for one in exact for trend in one.trends if trend.name == name]
    return min(-least, *true, -least), max(least, *true, least)


def spread(name: str, comparison: DriftComparison) -> DriftSpread:
    return DriftSpread(
        name=name,
        texts=len(comparison.texts),
        positions=comparison.positions,
        size=size(comparison),
        largest=largest(comparison)[0],
        trends=_trends(comparison),
    )


def _trends(comparison: DriftComparison) -> tuple[Trend, ...]:
    return tuple(Trend(name=name, value=one.value, error=one.error) for name, one in trends(comparison).items())


def check(reference: DriftReference, candidate_run: DriftRun) -> GateResult:
    """The rule above. The candidate may have read fewer texts.

    Raises ValueError when it was not asked alike: that is a mistake of the caller, not of the engine.
    """
    known = reference.run_like(candidate_run)
    comparison = compare(known, candidate_run)
    beyond: dict[str, Estimate] = {}
    if reference.truth and not comparison.problems and not comparison.other_text:
        asked = {one.prompt_id for one in candidate_run.sequences}
        own = compare(reference.truth, _only(known, tuple(one for one in known.sequences if one.prompt_id in asked)))
        if size(own) > FLOAT_FLOOR:  # else the unchanged engine computes in float32 itself
            beyond = farther(own, compare(reference.truth, candidate_run))
    outcome, reason = judge(comparison, reference, beyond)
    form = "full" if len(candidate_run.sequences) == len(known.sequences) else "quick"
    return GateResult(
        check=CHECK,
        outcome=outcome,
        mode=f"{form}: {known.mode}, {known.concurrency} at a time"
        + (", and distance from float32" if reference.truth else ""),
        statistic=_statistic(comparison, reference, beyond),
        power=_power(comparison, reference, beyond),
        reason=reason,
        seconds=candidate_run.seconds,
    )


def judge(comparison: DriftComparison, reference: DriftReference, beyond: dict[str, Estimate]) -> tuple[Outcome, str]:
    """Outcome and reason. Pure: this is the whole rule. `beyond`: of farther(), where float32 was recorded."""
    if comparison.other_text:
        return "fail", f"the engine read {comparison.other_text[0]} as other tokens than the reference"
    if comparison.problems:
        return "inconclusive", f"{len(comparison.problems)} texts were not read; {comparison.problems[0]}"
    if not comparison.positions:
        return "inconclusive", "no texts were asked"
    moved, (stretch, where) = size(comparison), worst_stretch(comparison)
    if not moved and not comparison.apart and not any(text.change.any() for text in comparison.texts):
        return "pass", f"all log-probabilities of {comparison.positions} tokens are equal"
    faults: list[str] = []
    doubts: list[str] = []
    if comparison.apart > APART_SHARE * comparison.positions:
        faults.append(f"at {comparison.apart} of {comparison.positions} positions the best tokens are quite others")

    def note(words: str, value: float, seldom: float, never: float) -> None:
        if value > never:
            faults.append(words)
        elif value > seldom:
            doubts.append(words)

    bulk = (
        f"logits moved {moved / reference.band:.2f} times rounding (rms {moved:.3g} against {reference.band:.3g} nats)"
    )
    note(f"{bulk}, limit {BULK_FAIL:g}", moved / reference.band, BULK_PASS, BULK_FAIL)
    words = f"{where} they moved {stretch / reference.band:.1f} times rounding, limit {STRETCH_FAIL:g}"
    note(words, stretch / reference.band, STRETCH_PASS, STRETCH_FAIL)
    df = max(len(comparison.texts) - 1, 1)
    seldom, never = _quantile(df, CHANCE_PASS), _quantile(df, CHANCE_FAIL)
    for one in _trends(comparison):
        if one.error is None:
            continue  # one text has no spread to judge by
        if one.name == "growth" and moved < GROWTH_FROM * reference.band:
            continue
        (low, high), error = reference.allowed[one.name], one.error
        words = f"{one.name} moved by {one.value:+.5f} (standard error {error:.5f}), allowed {low:.5f} to {high:.5f}"
        note(words, max(low - one.value, one.value - high), seldom * error, never * error)
    for name, found in beyond.items():
        error = found.error or 0.0
        words = f"{name} from float32 is {found.value:.3f} (standard error {error:.3f}), limit {FARTHER_FAIL[name]:g}"
        note(words, found.value, FARTHER_PASS[name] + seldom * error, FARTHER_FAIL[name] + never * error)
    if faults or doubts:
        return ("fail" if faults else "inconclusive"), "; ".join([*faults, *doubts])
    return "pass", f"{bulk}, and without a trend"


def _quantile(df: int, chance: float) -> float:
    """Of Student's t, two-sided: standard errors that chance exceeds so seldom."""
    return float(stdtrit(df, 1 - chance / 2))


def _statistic(
    comparison: DriftComparison, reference: DriftReference, beyond: dict[str, Estimate]
) -> dict[str, JsonValue]:
    peak, peak_at = largest(comparison)
    stretch, stretch_at = worst_stretch(comparison)
    return {
        "texts": len(comparison.texts),
        "positions": comparison.positions,
        "size": size(comparison),
        "band": reference.band,
        "band_source": reference.band_source,
        "ratio": size(comparison) / reference.band,
        "largest": peak,
        "largest_at": peak_at,
        "stretch": stretch / reference.band,
        "stretch_at": stretch_at,
        "trends": {one.name: [one.value, one.error] for one in _trends(comparison)},
        "allowed": {name: list(ends) for name, ends in reference.allowed.items()},
        "farther": {name: [one.value, one.error] for name, one in beyond.items()},
        "unchanged": {one.name: [one.size, one.positions] for one in reference.spreads},
    }


def _power(comparison: DriftComparison, reference: DriftReference, beyond: dict[str, Estimate]) -> str:
    """What this check could have seen: 97.5 % of faults that lie 2 standard errors over a limit are over it. The
    errors are the candidate's; one that moved nothing has none."""
    sure = _quantile(max(len(comparison.texts) - 1, 1), CHANCE_FAIL) + 2
    units = {"likelihood": "nats a token", "sharpness": "of the logits", "growth": "a 100 tokens"}
    parts = []
    for one in _trends(comparison):
        (low, high), more = reference.allowed[one.name], sure * (one.error or 0.0)
        parts.append(f"{one.name} below {low - more:.4f} or above {high + more:.4f} {units[one.name]}")
    for name, found in beyond.items():
        parts.append(f"{name} from float32 above {FARTHER_FAIL[name] + sure * (found.error or 0.0):.3f}")
    but = "" if any(one.error for one in _trends(comparison)) else " by more than the errors that it has"
    return (
        f"{comparison.positions} positions in {len(comparison.texts)} texts. A fault fails that puts "
        f"{', '.join(parts)}{but}, or moves all logits by {reference.band * (BULK_FAIL**2 - 1) ** 0.5:.2g} nats rms. "
        "Not seen: less than that, and what happens only while tokens are generated"
    )
