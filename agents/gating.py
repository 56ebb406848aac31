"""The accuracy gate inside a night: whom to ask, when, and where the answers are kept."""

from __future__ import annotations

import time
from pathlib import Path

from accuracy_gate import drift, gsm8k, held_out
from accuracy_gate.collect import Mode, TokenRun, collect
from accuracy_gate.drift_collect import DriftRun, collect_drift
from accuracy_gate.gate import calibrate, check
from accuracy_gate.gsm8k import Answers, QuestionSet
from accuracy_gate.reference import NightReference
from accuracy_gate.texts import fixed_texts
from accuracy_gate.widths import WidthPlan, most_at_once, plan
from agents.arms import Arm
from agents.context import Night, NightProblem
from agents.state import Trial
from contracts import EngineSpec, GateResult, SumsRule
from engine.running import EngineFailure, RunningEngine
from ledger.schema import GateReferenced, GateSealed, GateUnsealed

FOLDER = Path("artifacts/gate")
SECRET = FOLDER / "secret"
READ_BACK = 32  # tokens that a reference decodes and reads again: what rounding alone does to their log-probabilities


def seal(night: Night) -> None:
    """Draws tonight's secret and tells the ledger its hash. Again after a resume: nothing new. Raises NightProblem."""
    (night.folder / FOLDER).mkdir(parents=True, exist_ok=True)
    secret = secret_of(night)
    if not any(event.kind == "gate_sealed" for event in night.ledger.events):
        night.emit("gate_sealed", GateSealed(secret_sha256=held_out.digest(secret)))


def unseal(night: Night) -> None:
    """The night is over: everybody may know what was asked."""
    night.emit("gate_unsealed", GateUnsealed(secret=secret_of(night)))


def secret_of(night: Night) -> str:
    try:
        return held_out.draw(night.folder / SECRET)
    except (OSError, ValueError) as error:
        raise NightProblem(f"the gate's secret cannot be used: {error}") from error


def reference_tonight(night: Night, base: EngineSpec, arms: str) -> GateReferenced:
    """The unchanged engine's own answers, tokens and log-probabilities from two fresh processes, in one file.

    The reference stays the same all night: every candidate is compared with the clean base, not with the incumbent
    before it, so that many small steps cannot walk away from the right answers. Raises ArmFailure, NightProblem.
    """
    gate = night.config.gate
    token_runs: list[TokenRun] = []
    drift_runs: list[DriftRun] = []
    widths = widths_of(night, base)
    forms: list[tuple[Mode, int, int]] = [  # (mode, width, prompts); the first is the quick gate's
        ("concurrent", gate.concurrency, gate.prompts),
        ("alone", 1, min(gate.prompts, gate.alone_prompts)),
        *(("concurrent", width, width) for width in widths.widths),
    ]
    began = time.monotonic()
    sides: tuple[Arm, ...] = ("A", "B")
    for arm in sides:
        if arms != "twin":
            night.arms.down("B" if arm == "A" else "A")
        began = time.monotonic()  # one process' worth is what a full gate takes
        engine = night.arms.up({arm: base}, None, 0)[arm]
        token_runs += [ask(night, engine, *form, arm, f"reference-{arm}") for form in forms]
        if gate.drift_texts:  # alone too: what another order of the same sums does to them
            name = f"reference-{arm}"
            drift_runs += [ask_drift(night, engine, mode, arm, name, READ_BACK) for mode in ("concurrent", "alone")]
    questions, answers = ask_sums(night, base, gate.gsm8k, None, "A") if gate.gsm8k else (None, None)
    if answers:
        answers.save(night.folder / FOLDER / "reference-gsm8k.json")
    try:
        reference = NightReference(
            tokens=calibrate(token_runs),
            drift=drift.calibrate(drift_runs) if drift_runs else None,
            questions=questions,
            answers=answers,
            widths=widths.sentence,
        )
    except ValueError as error:
        raise NightProblem(f"the accuracy gate has no reference: {error}") from error
    path = FOLDER / "reference.json"
    known = GateReferenced(
        path=str(path),
        sha256=reference.save(night.folder / path),
        prompts_hash=token_runs[0].prompts_hash,
        texts_hash=drift_runs[0].texts_hash if drift_runs else None,
        questions=questions.source if questions else None,
        questions_hash=questions.digest if questions else None,
        score=answers.score if answers else None,
        seconds=time.monotonic() - began,
    )
    night.emit("gate_referenced", known)
    return known


def read_reference(night: Night, known: GateReferenced) -> NightReference:
    """Raises NightProblem when the file is not what the ledger remembers."""
    try:
        return NightReference.load(night.folder / known.path, known.sha256)
    except (OSError, ValueError) as error:
        raise NightProblem(f"the gate's reference cannot be used: {error}") from error


def run_gate(
    night: Night, spec: EngineSpec, known: GateReferenced, name: str, quick: bool, trial: Trial | None = None
) -> list[GateResult]:
    """The gate on a candidate, as arm B. The quick form is one wave of prompts; the full one asks everything, the
    cheapest first. Stops at the first check that fails. Raises ArmFailure when the engine breaks meanwhile."""
    reference = read_reference(night, known)
    experiment, launch_pair = (trial.experiment_id, max(trial.launch_pair - 1, 0)) if trial else (None, 0)
    engine = night.arms.up({"B": spec}, experiment, launch_pair)["B"]
    results: list[GateResult] = []
    asked = [(run.mode, run.concurrency, len(run.sequences)) for run in reference.tokens.runs]
    if quick:
        mode, width, count = asked[0]
        asked = [(mode, width, min(width, count))]
    for mode, width, count in asked:
        run = ask(night, engine, mode, width, count, "B", name)
        artifact = str(FOLDER / f"{name}-{mode}-{width}.json")
        result = check(reference.tokens, run)
        results.append(result.model_copy(update={"artifact": artifact, "power": f"{result.power}; {reference.widths}"}))
        if results[-1].outcome == "fail":
            return results
    if quick:
        return results
    results.append(check_drift(night, engine, reference, name))
    if results[-1].outcome == "fail":
        return results
    return [*results, check_sums(night, spec, reference, name, trial)]


def widths_of(night: Night, base: EngineSpec) -> WidthPlan:
    """Batch widths beside the usual ones: edges of what the base runs, up to what the workload sends at once. A
    candidate may run that many together even where the base queues them."""
    record, workload = night.arms.record_of(base), night.config.workload
    realised = dict(record.realised) if record else {}
    realised["max_num_seqs"] = workload.concurrency or most_at_once(realised)
    return plan(realised, night.config.gate.more_widths, asked_anyway=(1, night.config.gate.concurrency))


def ask(night: Night, engine: RunningEngine, mode: Mode, width: int, count: int, arm: Arm, name: str) -> TokenRun:
    """One collection, saved. Raises ArmFailure."""
    rule = night.config.gate
    most = max(rule.prompts, count)
    prompts = held_out.mixed_prompts(most, rule.seed, secret_of(night))[:count]
    try:
        run = collect(engine, prompts, rule.tokens, mode, width, night.config.limits.request_s)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, None) from cause
    run.save(night.folder / FOLDER / f"{name}-{mode}-{width}.json")
    return run


def ask_drift(night: Night, engine: RunningEngine, mode: Mode, arm: Arm, name: str, decode: int = 0) -> DriftRun:
    """The fixed texts' log-probabilities, saved. Raises ArmFailure."""
    rule = night.config.gate
    texts = fixed_texts(rule.drift_texts, held_out.seed(secret_of(night), "texts"))
    try:
        run = collect_drift(engine, texts, mode, rule.concurrency, night.config.limits.request_s, decode)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, None) from cause
    run.save(night.folder / FOLDER / f"{name}-drift-{mode}.json")
    return run


def check_drift(night: Night, engine: RunningEngine, reference: NightReference, name: str) -> GateResult:
    if reference.drift is None:
        reason = "gate.drift_texts is 0 in the night file"
        return GateResult(check=drift.CHECK, outcome="not_run", mode="", reason=reason)
    run = ask_drift(night, engine, reference.drift.runs[0].mode, "B", name)
    artifact = str(FOLDER / f"{name}-drift-{run.mode}.json")
    return drift.check(reference.drift, run).model_copy(update={"artifact": artifact})


def check_questions(night: Night) -> None:
    """At preflight: can they be read and asked in this style? Raises NightProblem."""
    if night.config.gate.gsm8k is not None:
        questions_of(night, night.config.gate.gsm8k)


def questions_of(night: Night, rule: SumsRule) -> tuple[QuestionSet, gsm8k.Style]:
    """Generated problems come from tonight's secret; of a file the first are taken, so that the score can be laid
    beside others'. Raises NightProblem."""
    seed = held_out.seed(secret_of(night), "problems") if rule.questions.startswith("arithmetic:") else None
    try:
        shown = gsm8k.train_for(rule.questions) if gsm8k.STYLES[rule.style].shots else None
        style = gsm8k.style(rule.style, shown, rule.max_tokens)
        return gsm8k.read(rule.questions, rule.count, seed), style
    except (OSError, ValueError) as error:
        raise NightProblem(f"gate.gsm8k.questions cannot be used: {error}") from error


def sums_spec(spec: EngineSpec, rule: SumsRule) -> EngineSpec:
    """The same settings, with the model that can do sums where the night names one."""
    return spec.model_copy(update={"model": rule.model}) if rule.model else spec


def ask_sums(
    night: Night, spec: EngineSpec, rule: SumsRule, known: Answers | None, arm: Arm, trial: Trial | None = None
) -> tuple[QuestionSet, Answers]:
    """In waves; against `known` answers the asking stops as soon as harm is shown. Raises ArmFailure, NightProblem."""
    questions, style = questions_of(night, rule)
    experiment, launch_pair = (trial.experiment_id, max(trial.launch_pair - 1, 0)) if trial else (None, 0)
    engine = night.arms.up({arm: sums_spec(spec, rule)}, experiment, launch_pair)[arm]
    stop = gsm8k.stop_on_harm(known.answers) if known else None
    try:
        answers = gsm8k.ask(engine, questions, style, rule.concurrency, night.config.limits.request_s, stop)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, experiment) from cause
    return questions, answers


def check_sums(night: Night, spec: EngineSpec, reference: NightReference, name: str, trial: Trial | None) -> GateResult:
    rule = night.config.gate.gsm8k
    if rule is None or reference.questions is None:
        reason = "no questions given: set gate.gsm8k.questions in the night file"
        return GateResult(check="gsm8k", outcome="not_run", mode="", reason=reason)
    questions, answers = ask_sums(night, spec, rule, reference.answers, "B", trial)
    if questions.digest != reference.questions.digest:
        raise NightProblem(f"{rule.questions} was changed since the night began: restore it, or start a new night")
    path = FOLDER / f"{name}-gsm8k.json"
    answers.save(night.folder / path)
    result = gsm8k.check(questions, reference.answers, answers, rule.floor, rule.margin)
    return result.model_copy(update={"artifact": str(path)})
