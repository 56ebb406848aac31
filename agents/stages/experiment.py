"""One experiment: pick, check what costs nothing, apply, launch, prove the path, gate, measure, judge, keep or revert.

Correctness is judged before speed. Every way out of the middle leads through `keep` or `revert`, with a verdict that
says why in words.
"""

from __future__ import annotations

import time

from agents import gating
from agents.arms import ArmFailure
from agents.context import Night
from agents.pairs import measure_launch_pair
from agents.path_probe import prove
from agents.stages.opening import knobs_of, profile_of, realised, subject
from agents.state import Progress, Trial, Winner
from agents.tuning.apply import ScopeError, exactly
from agents.tuning.apply import apply as apply_change
from agents.tuning.refused_trees import thin_refused
from agents.tuning.static_check import static_check as find_fault
from contracts import EngineSpec, GateResult, Verdict, VerdictWord
from judge.decide import NeedMore, decide
from judge.noise import learn
from judge.spending import alpha_for_try
from ledger.schema import ExperimentStarted, Gated, Judged, Kept, PathProven, Reverted


def pick(night: Night, progress: Progress) -> Progress:
    """The best hypothesis that the time left can still hold, or the confirmation."""
    night.check_guarded()
    night.arms.down()
    rule = night.config.judge
    reserve = confirm_reserve(night, progress)
    for place, hypothesis in enumerate(progress.queue):
        if progress.tries >= rule.max_tries:
            break
        if night.left() - reserve < hypothesis.cost_s:
            continue
        rest = progress.queue[:place] + progress.queue[place + 1 :]
        trial = Trial(
            experiment_id=f"e{progress.started + 1:02d}-{hypothesis.id[:6]}",
            hypothesis=hypothesis,
            try_number=progress.tries + 1,
            alpha=alpha_for_try(rule.false_keep_chance, progress.tries + 1),
            started_s=night.clock(),
        )
        night.emit(
            "experiment_started",
            ExperimentStarted(
                experiment_id=trial.experiment_id,
                hypothesis=hypothesis,
                try_number=trial.try_number,
                alpha=trial.alpha,
            ),
        )
        return progress.but(queue=rest, trial=trial, started=progress.started + 1, goto="static_check")
    if not progress.queue:
        return progress.but(outcome="done", reason="nothing was left to try", goto="confirm")
    if progress.tries >= rule.max_tries:
        reason = f"{rule.max_tries} tries were made (judge.max_tries)"
        return progress.but(outcome="done", reason=reason, goto="confirm")
    untried, cheapest = len(progress.queue), min(h.cost_s for h in progress.queue)
    reason = (
        f"{untried} {'hypothesis was' if untried == 1 else 'hypotheses were'} not tried: "
        f"{'it' if untried == 1 else 'the cheapest'} needs {cheapest:.0f} s, "
        f"{max(night.left() - reserve, 0):.0f} s were left before the confirmation"
    )
    return progress.but(outcome="budget", reason=reason, goto="confirm")


def confirm_reserve(night: Night, progress: Progress) -> float:
    """Seconds to hold back for the confirmation: its launch pairs and one gate, at tonight's price."""
    if not progress.winners:
        return night.config.limits.confirm_reserve_s
    gate_s = progress.reference.seconds if progress.reference else 0.0
    estimate = progress.pair_s * night.config.judge.confirm_launch_pairs + gate_s
    return max(estimate, night.config.limits.confirm_reserve_s)


def static_check(night: Night, progress: Progress) -> Progress:
    """What can be known without the card."""
    trial = the(progress)
    known = subject(night, progress)
    fault = find_fault(trial.hypothesis.change, progress.incumbent, known.knobs, subject=known)
    if fault:
        return refuse(progress, VerdictWord.VOID, f"not tried: {fault}")
    return progress.but(goto="apply")


def apply(night: Night, progress: Progress) -> Progress:
    """The candidate configuration: the incumbent's with exactly this change, or no experiment."""
    trial = the(progress)
    try:
        candidate = apply_change(progress.incumbent, trial.hypothesis.change)
        exactly(progress.incumbent, candidate, trial.hypothesis.change)
    except ScopeError as error:
        return refuse(progress, VerdictWord.VOID, f"not tried: {error}")
    return progress.but(trial=trial.model_copy(update={"candidate": candidate}), goto="launch")


def launch(night: Night, progress: Progress) -> Progress:
    """The changed engine alone: if it does not start, the incumbent need not either."""
    trial = the(progress)
    assert trial.candidate is not None
    try:
        night.arms.up({"B": trial.candidate}, trial.experiment_id, trial.launch_pair)
    except ArmFailure as broken:
        return refuse(progress, VerdictWord.FAILED, f"{broken.failure.kind}: {broken.failure.reason}")
    return progress.but(goto="prove_path")


def prove_path(night: Night, progress: Progress) -> Progress:
    """Is the change really in use? Accepted is not used."""
    trial = the(progress)
    assert trial.candidate is not None
    spare_s = night.left() - confirm_reserve(night, progress) - progress.pair_s
    evidence = prove(night, progress, trial, trial.candidate, knobs_of(progress), spare_s)
    night.emit("path_evidence", PathProven(evidence=evidence, experiment_id=trial.experiment_id))
    trial = trial.model_copy(update={"path": evidence})
    progress = progress.but(trial=trial)
    if evidence.outcome != "proven":
        return refuse(progress, VerdictWord.VOID, f"nothing was measured: {evidence.reason}")
    return progress.but(goto="quick_gate")


def quick_gate(night: Night, progress: Progress) -> Progress:
    """A broken change stops within seconds, before anything is measured."""
    return gate(night, progress, quick=True, after="measure")


def measure(night: Night, progress: Progress) -> Progress:
    """One launch pair: the changed engine that is up (or a fresh one) against a fresh incumbent."""
    trial = the(progress)
    assert trial.candidate is not None
    began = time.monotonic()
    runs = measure_launch_pair(
        night,
        progress.incumbent,
        trial.candidate,
        progress.arms,
        trial.launch_pair,
        "experiment",
        trial.experiment_id,
    )
    trial = trial.model_copy(
        update={"measurements": (*trial.measurements, *runs), "launch_pair": trial.launch_pair + 1}
    )
    pair_s = time.monotonic() - began
    return progress.but(trial=trial, pair_s=max(pair_s, progress.pair_s), incumbent_failures=0, goto="full_gate")


def full_gate(night: Night, progress: Progress) -> Progress:
    """Everything, on the first launch, after its load; on each later launch that is still up one wave, since a fault
    may be in some processes only."""
    trial = the(progress)
    assert trial.candidate is not None
    later = trial.launch_pair > 1
    if later and not night.arms.is_up("B", trial.candidate):  # one engine at a time, and the incumbent's came last
        return progress.but(goto="judge")
    return gate(night, progress, quick=later, after="judge")


def gate(night: Night, progress: Progress, quick: bool, after: str) -> Progress:
    trial = the(progress)
    assert trial.candidate is not None and progress.reference is not None
    name = f"{trial.experiment_id}-{'quick' if quick else 'full'}-{trial.launch_pair}"
    results = gating.run_gate(night, trial.candidate, progress.reference, name, quick, trial)
    for result in results:
        night.emit("gated", Gated(result=result, experiment_id=trial.experiment_id))
    progress = progress.but(trial=trial.model_copy(update={"gates": (*trial.gates, *results)}))
    bad = first_bad(results)
    if bad is not None:
        word = VerdictWord.REVERT if bad.outcome == "fail" else VerdictWord.INCONCLUSIVE
        return refuse(progress, word, f"the {bad.check} gate says {bad.outcome}: {bad.reason}")
    return progress.but(goto=after)


def first_bad(results: list[GateResult]) -> GateResult | None:
    """A failed check before an inconclusive one; None when all passed or were not asked for."""
    for outcome in ("fail", "inconclusive"):
        for result in results:
            if result.outcome == outcome:
                return result
    return None


def judge(night: Night, progress: Progress) -> Progress:
    """Keep, revert, inconclusive, void, or one more launch pair."""
    trial = the(progress)
    assert progress.noise is not None and progress.objective is not None
    night.check_guarded()
    decision = decide(
        progress.objective,
        progress.noise,
        trial.measurements,
        night.config.judge,
        trial.alpha,
        trial.hypothesis.bound,
    )
    if trial.launch_pair >= night.config.judge.min_launch_pairs:
        trial = trial.model_copy(update={"looked": True})
    if isinstance(decision, NeedMore):
        if night.left() > confirm_reserve(night, progress) + progress.pair_s:
            night.arms.down()
            return progress.but(trial=trial, goto="measure")
        decision = Verdict(
            word=VerdictWord.INCONCLUSIVE,
            reason=f"the budget ended before the next launch pair; so far: {decision.reason}",
            launch_pairs=trial.launch_pair,
        )
    trial = trial.model_copy(update={"verdict": decision})
    tries = trial.try_number  # this one reached a speed decision: it counts
    goto = "keep" if decision.word is VerdictWord.KEEP else "revert"
    noise = learn(progress.noise, trial.measurements, night.config.judge)
    return progress.but(trial=trial, tries=tries, noise=noise, goto=goto)


def keep(night: Night, progress: Progress) -> Progress:
    """A commit in the night's overlay; the candidate is the incumbent from here on, and the readers are asked again:
    what was worth trying on the old one may not be on this one."""
    trial = the(progress)
    assert trial.candidate is not None and trial.verdict is not None
    commit = night.overlay.keep(trial.candidate, trial.hypothesis.change, trial.verdict)
    judged(night, trial)
    night.emit("kept", Kept(experiment_id=trial.experiment_id, commit=commit, spec_id=trial.candidate.id))
    winner = Winner(
        experiment_id=trial.experiment_id, change=trial.hypothesis.change, verdict=trial.verdict, commit=commit
    )
    return progress.but(
        incumbent=trial.candidate,
        incumbent_runs=tuple(m for m in trial.measurements if m.arm == "B"),
        winners=(*progress.winners, winner),
        profile=profile_of(trial.measurements, arm="B") | {"realised": realised(night, trial.candidate)},
        tried=(*progress.tried, trial.hypothesis.change),
        trial=None,
        goto="research",
    )


def revert(night: Night, progress: Progress) -> Progress:
    """The overlay exactly as it was, both engines gone, and the trees that only they needed with them."""
    trial = the(progress)
    night.arms.down()
    commit = night.overlay.revert()
    judged(night, trial)
    night.emit("reverted", Reverted(experiment_id=trial.experiment_id, commit=commit, spec_id=progress.incumbent.id))
    thin_trees(night, progress.base, progress.incumbent)
    return progress.but(tried=(*progress.tried, trial.hypothesis.change), trial=None, goto="pick")


def thin_trees(night: Night, *needed: EngineSpec) -> None:
    """Takes away what no launch needs any more of the overlay trees: those of every configuration but `needed` and what
    the night kept. Done after the ledger's line; a kill in between leaves the tree to the same stage's next run."""
    kept = {str(event.data["spec_id"]) for event in night.ledger.events if event.kind == "kept"}
    try:
        thin_refused(night.folder, kept | {spec.id for spec in needed})
    except OSError as error:
        night.warn(f"overlay trees of refused changes stay in artifacts/overlays, which costs disk only: {error}")


def judged(night: Night, trial: Trial) -> None:
    assert trial.verdict is not None
    seconds = night.clock() - trial.started_s
    night.emit("judged", Judged(experiment_id=trial.experiment_id, verdict=trial.verdict, seconds=seconds))


def the(progress: Progress) -> Trial:
    assert progress.trial is not None, "this stage runs inside an experiment"
    return progress.trial


def refuse(progress: Progress, word: VerdictWord, reason: str) -> Progress:
    """A verdict that needs no statistics, and the way out. Looks that the judge has taken are spent all the same."""
    trial = the(progress)
    verdict = Verdict(word=word, reason=reason, launch_pairs=trial.launch_pair)
    tries = max(progress.tries, trial.try_number) if trial.looked else progress.tries
    return progress.but(trial=trial.model_copy(update={"verdict": verdict}), tries=tries, goto="revert")
