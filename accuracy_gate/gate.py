"""The token gate: are these answers still right? The rule is this page; the numbers behind it are in
docs/accuracy_gate.md.

A run of greedy tokens is compared with the unchanged engine's, like with like (alone with alone, concurrent with
concurrent). In this order:

    errors                    a request failed: `inconclusive`. It is not a wrong answer, and nothing passes.
    broken promises           truncated, not greedy, prompt read differently: `fail`, whatever the band.
    all token IDs equal       `pass`; `inconclusive` where leads moved more than the bulk rule fails: a model that is
                              sure of itself hides much behind equal tokens.
    too little in common      sequences part so early that the rest says nothing: `inconclusive` at best.
    bulk   R = rms(shift) / band
                              R <= BULK_PASS: as rounding. R > BULK_FAIL: `fail`. Between: `inconclusive`.
    peaks  largest |shift|    each position, each divergence among them. Beyond what rounding of the allowed bulk
                              reaches once in PEAK_PASS gates: `inconclusive`; once in PEAK_FAIL gates: `fail`.

A divergence is thus harmless when it is a near-tie: the two tokens moved against each other by no more than rounding
moves leads. In a near-tie the candidate's token is the reference's second choice; where three or more tokens lie within
that distance it may be the third. A token that the reference does not list at all is never passed.

Why shifts of leads, and why their rms: a changed token is only the visible end of a moved lead, and moved leads are
there at every position, so a fault that flips few tokens still shows, and a rounding that flips many still passes
(eager against compiled parts half the sequences, with R = 1.1). `pass` is not "nothing moved"; it is "what moved,
moved as rounding does".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue

from accuracy_gate import band as bands
from accuracy_gate.band import Band
from accuracy_gate.collect import TokenRun
from accuracy_gate.compare import Comparison, Divergence, PromptComparison, compare, max_abs, mean_abs, rms
from contracts import Frozen, GateResult

Outcome = Literal["pass", "fail", "inconclusive"]

CHECK = "token_ids"

# In units of the band. bf16 lies 0.099 nats rms from float32 (fp32 row of docs/accuracy_gate.md), so two independent
# ways to round differ by at most sqrt(2) times that, 1.1 bands; eager against compiled was 1.01, sampling error 0.1.
BULK_PASS = 1.5
BULK_FAIL = 2.0
BULK_POSITIONS = 30  # fewer do not give an rms: of Laplace values its standard error is sqrt(5 / (4 n)), 20 % of 30
# Sizes of rounding shifts fall off like a double exponential (Laplace): P(|shift| > x) = exp(-x / b), rms = b sqrt(2).
# Measured (band.py's runs): rms 0.112, 99 % under 0.31 (Laplace 0.36), largest of 1095 0.625 (expected 0.55).
PEAK_PASS = 1e-2
PEAK_FAIL = 1e-4
# Of the asked positions, those that must still have the same context. Rounding left 65 to 77 %, a skipped layer 6 %.
COMMON_SHARE = 0.2
WORST = 5  # divergences shown in a result


class GateReference(Frozen):
    """The unchanged engine's answers, tonight. Kept for the whole night: every candidate is compared with it, not with
    the one before, so that many small steps cannot walk away from it."""

    runs: tuple[TokenRun, ...]  # one for each mode and width
    tokens_repeat: dict[str, bool]  # by mode: token IDs equal in fresh processes, at every width
    band: Band
    mode: str  # how it compares, in words

    def run_like(self, candidate: TokenRun) -> TokenRun:
        """Raises ValueError when nothing alike was collected."""
        for run in self.runs:
            if (run.mode, run.concurrency, run.tokens) == (candidate.mode, candidate.concurrency, candidate.tokens):
                return run
        have = ", ".join(f"{run.mode} {run.concurrency} x {run.tokens} tokens" for run in self.runs)
        asked = f"{candidate.mode} {candidate.concurrency} x {candidate.tokens} tokens"
        raise ValueError(f"the gate compares like with like: it has {have}, not {asked}")


def calibrate(runs: Sequence[TokenRun]) -> GateReference:
    """From runs of the unchanged engine: each mode and width in two (or more) fresh processes, of the same list of
    prompts (a wider run may have asked more of them).

    Raises ValueError, with what to do, when a run has errors, broken promises, or a mode is there only once.
    """
    groups: dict[tuple[str, int], list[TokenRun]] = {}
    for run in runs:
        if run.errors:
            lost = run.errors[0]
            raise ValueError(
                f"the unchanged engine did not answer {lost.prompt_id} ({lost.error}: {lost.detail}); "
                "read its log, or give it more time (limits.request_s)"
            )
        groups.setdefault((run.mode, run.concurrency), []).append(run)
    if not groups:
        raise ValueError("no runs to calibrate with; collect each mode in two fresh processes")
    named: list[tuple[str, Comparison]] = []
    repeats: dict[str, bool] = {}
    words: list[str] = []
    several = sum(mode == "concurrent" for mode, _ in groups) > 1
    for (mode, width), group in groups.items():
        name = f"{mode} {width}" if several and mode == "concurrent" else mode
        if len({run.launch_id for run in group}) < 2:
            raise ValueError(f"mode {name} was collected in one process only; A/A needs two fresh processes")
        found = [compare(group[0], other) for other in group[1:]]
        for prompt in (prompt for comparison in found for prompt in comparison.prompts):
            if prompt.outcome in ("short", "not_greedy", "other_prompt"):
                raise ValueError(f"the unchanged engine itself is no reference: {prompt.prompt_id}: {prompt.detail}")
        named += [(f"{name}, two processes", comparison) for comparison in found]
        exact = all(comparison.exact for comparison in found)
        repeats[mode] = exact and repeats.get(mode, True)
        parted = max(len(comparison.divergences) for comparison in found)
        words.append(
            f"{name}: exact (two fresh processes gave equal tokens)"
            if exact
            else f"{name}: statistical (two fresh processes part in {parted} of {len(group[0].sequences)})"
        )
    first = [group[0] for group in groups.values()]
    for alone in (run for run in first if run.mode == "alone"):
        for crowd in (run for run in first if run.mode == "concurrent"):
            many, few = sorted((crowd, alone), key=lambda run: -len(run.sequences))
            name = f"concurrent {crowd.concurrency}" if several else "concurrent"
            named.append((f"alone against {name}", compare(many, few)))
    band = bands.measure(named, bands.logit_step(runs[0].sequences))
    return GateReference(
        runs=tuple(first),
        tokens_repeat=repeats,
        band=band,
        mode="; ".join(words) + "; tokens that differ must be near-ties within tonight's rounding",
    )


def check(reference: GateReference, candidate_run: TokenRun) -> GateResult:
    """The rule above. The candidate may have been asked fewer prompts (the quick form).

    Raises ValueError when it was not asked alike: that is a mistake of the caller, not of the engine.
    """
    known = reference.run_like(candidate_run)
    comparison = compare(known, candidate_run)
    outcome, reason = judge(comparison, reference.band, candidate_run.tokens)
    form = "full" if len(comparison.prompts) == len(known.sequences) else "quick"
    kind = "exact" if reference.tokens_repeat[known.mode] else "statistical"
    return GateResult(
        check=CHECK,
        outcome=outcome,
        mode=f"{form}: {known.mode}, {known.concurrency} at a time; {kind}, and near-ties pass",
        statistic=_statistic(comparison, reference.band),
        power=_power(comparison, reference, candidate_run),
        reason=reason,
        seconds=candidate_run.seconds,
    )


def judge(comparison: Comparison, band: Band, tokens: int) -> tuple[Outcome, str]:
    """Outcome and reason. Pure: this is the whole rule."""
    prompts, shifts, parted = comparison.prompts, comparison.shifts, comparison.divergences
    if not prompts:
        return "inconclusive", "no prompts were asked"
    for outcome, what in (
        ("not_greedy", "are not greedy at temperature 0"),
        ("short", "are shorter than asked"),
        ("other_prompt", "answer other prompt tokens"),
    ):
        if bad := comparison.named(outcome):
            return "fail", f"{len(bad)} of {len(prompts)} answers {what}; {bad[0].prompt_id}: {bad[0].detail}"
    if failed := comparison.named("error"):
        reason = f"{len(failed)} of {len(prompts)} prompts got no answer; {failed[0].prompt_id}: {failed[0].detail}"
        return "inconclusive", reason
    if comparison.exact:
        moved = rms(shifts) / band.shift_rms
        but = f", though leads moved {moved:.2f} times tonight's rounding" if moved > BULK_PASS else ""
        far = moved > BULK_FAIL and len(shifts) >= BULK_POSITIONS
        same = f"all {len(prompts) * tokens} tokens of {len(prompts)} prompts are equal{but}"
        return ("inconclusive" if far else "pass"), same

    n, size, peak = len(shifts), rms(shifts), max_abs(shifts)
    ratio = size / band.shift_rms
    seldom, never = peak_limit(band, n, PEAK_PASS), peak_limit(band, n, PEAK_FAIL)
    apart = f"{len(parted)} of {len(prompts)} sequences part"
    bulk = f"leads moved {ratio:.2f} times tonight's rounding (rms {size:.3f} against {band.shift_rms:.3f} nats)"
    faults = []
    if ratio > BULK_FAIL and n >= BULK_POSITIONS:
        faults.append(f"{bulk}, and over {BULK_FAIL:g} is no rounding")
    if peak > never:
        faults.append(f"{_peak_words(comparison)}, and rounding does not reach {never:.2f}")
    if faults:
        return "fail", "; ".join([apart, *faults])
    if n < COMMON_SHARE * tokens * len(prompts):
        return "inconclusive", f"{apart}, so early that only {n} of {tokens * len(prompts)} positions can be compared"
    if ratio > BULK_PASS:
        return "inconclusive", f"{apart}, and {bulk}; up to {BULK_PASS:g} is rounding, over {BULK_FAIL:g} is a fault"
    if peak > seldom:
        return "inconclusive", f"{apart}; {_peak_words(comparison)}; rounding seldom reaches {seldom:.2f} nats"
    if unlisted := [one for one in parted if one.candidate_rank is None]:
        one = unlisted[0]
        reason = f"{apart}; {one.prompt_id} takes a token at position {one.position} that the reference does not list"
        return "inconclusive", reason
    return "pass", f"{apart}, each at a near-tie (largest {peak:.2f} nats, limit {seldom:.2f}); {bulk}"


def peak_limit(band: Band, positions: int, chance: float) -> float:
    """The size (nats) that the largest of `positions` shifts exceeds with this chance, if all is rounding.

    Laplace with the largest rms that the bulk rule passes: b = BULK_PASS band / sqrt(2); n exp(-x / b) = chance.
    """
    return BULK_PASS * band.shift_rms / math.sqrt(2) * math.log(max(positions, 1) / chance)


def _worst(comparison: Comparison) -> list[Divergence]:
    return sorted(comparison.divergences, key=lambda one: -one.size)[:WORST]


def _peak_words(comparison: Comparison) -> str:
    def peak(prompt: PromptComparison) -> float:
        return max_abs(prompt.shifts)

    prompt = max(comparison.prompts, key=peak)
    position = max(range(len(prompt.shifts)), key=lambda index: abs(prompt.shifts[index]))
    return f"{prompt.prompt_id} moved a lead by {peak(prompt):.2f} nats at position {position}"


def _statistic(comparison: Comparison, band: Band) -> dict[str, JsonValue]:
    """Bounded: the worst few divergences; the whole run is the artifact."""
    shifts, drifts = comparison.shifts, comparison.drifts
    return {
        "prompts": len(comparison.prompts),
        "equal": len(comparison.named("equal")),
        "diverged": len(comparison.divergences),
        "errors": len(comparison.named("error")),
        "positions": len(shifts),
        "shift_rms": rms(shifts),
        "shift_max": max_abs(shifts),
        "shift_mean": sum(shifts) / len(shifts) if shifts else 0.0,
        "drift_mean": mean_abs(drifts),
        "drift_max": max_abs(drifts),
        "ratio": rms(shifts) / band.shift_rms,
        "band_rms": band.shift_rms,
        "band_source": band.reason,
        "peak_limits": [peak_limit(band, len(shifts), PEAK_PASS), peak_limit(band, len(shifts), PEAK_FAIL)],
        "bulk_limits": [BULK_PASS, BULK_FAIL],
        "worst": [one.model_dump(mode="json") | {"size": one.size} for one in _worst(comparison)],
    }


def _power(comparison: Comparison, reference: GateReference, run: TokenRun) -> str:
    """What this check could have seen.

    Independent shifts add in squares: with rounding of the band's size a fault of rms y is failed from
    y = band sqrt(BULK_FAIL^2 - 1) on, and not passed from band sqrt(BULK_PASS^2 - 1) on.
    """
    band, n = reference.band.shift_rms, len(comparison.shifts)
    late = sum(max(0, len(prompt.shifts) - run.tokens * 2 // 3) for prompt in comparison.prompts)
    return (
        f"{n} positions of equal text in {len(comparison.prompts)} prompts ({late} in the last third). A fault that "
        f"moves leads by {band * math.sqrt(BULK_FAIL**2 - 1):.2f} nats rms fails, by "
        f"{band * math.sqrt(BULK_PASS**2 - 1):.2f} is not passed; one wrong token fails from "
        f"{peak_limit(reference.band, n, PEAK_FAIL):.1f} nats. Not seen: less than that, batches above "
        f"{run.concurrency}, later tokens than {run.tokens}, faults of other processes"
    )
