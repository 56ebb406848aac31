"""The accuracy gate inside a night: whom to ask, when, and where the answers are kept."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from accuracy_gate import drift, gsm8k, held_out
from accuracy_gate.collect import Mode, TokenRun, collect
from accuracy_gate.drift_collect import DriftRun, collect_drift
from accuracy_gate.gate import calibrate, check
from accuracy_gate.gsm8k import Answers, QuestionSet
from accuracy_gate.gsm8k.check import check as judge_sums
from accuracy_gate.gsm8k.check import no_reference
from accuracy_gate.gsm8k.paired import fewest_to_pass, stop_on_harm
from accuracy_gate.reference import NightReference
from accuracy_gate.texts import fixed_texts
from accuracy_gate.widths import WidthPlan, plan
from agents.arms import Arm
from agents.context import Night, NightProblem
from agents.state import Trial
from contracts import EngineSpec, GateResult, SumsRule, content_hash
from engine.running import EngineFailure, RunningEngine
from ledger.schema import GateReferenced, GateSealed, GateUnsealed

FOLDER = Path("artifacts/gate")
SECRET = FOLDER / "secret"
MODES: tuple[Mode, ...] = ("concurrent", "alone")
READ_BACK = 32  # tokens that a reference decodes and reads again: what rounding alone does to their log-probabilities


def seal(night: Night) -> None:
    """Draws tonight's secret and tells the ledger its hash. Again after a resume: nothing new. Raises NightProblem."""
    if sealed(night) is not None:
        secret_of(night)
        return
    (night.folder / FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        secret = held_out.draw(night.folder / SECRET)
    except (OSError, ValueError) as error:
        raise NightProblem(f"the gate's secret cannot be used: {error}") from error
    night.emit("gate_sealed", GateSealed(secret_sha256=held_out.digest(secret)))


def sealed(night: Night) -> str | None:
    """The hash of the secret that the ledger was told first; None before that."""
    told = (event.data["secret_sha256"] for event in night.ledger.events if event.kind == "gate_sealed")
    return next(told, None)


def unseal(night: Night) -> None:
    """The night is over: everybody may know what was asked."""
    night.emit("gate_unsealed", GateUnsealed(secret=secret_of(night)))


def secret_of(night: Night) -> str:
    try:
        return held_out.read(night.folder / SECRET, sealed(night))
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
    sides: tuple[Arm, ...] = ("A", "B")
    for arm in sides:
        if arms != "twin":
            night.arms.down("B" if arm == "A" else "A")
        began = time.monotonic()  # one process' worth is what a full gate takes
        engine = night.arms.up({arm: base}, None, 0)[arm]
        token_runs += [ask(night, engine, *form, arm, f"reference-{arm}", None) for form in forms]
        if gate.drift_texts:  # alone too: what another order of the same sums does to them
            for mode in MODES:
                drift_runs.append(ask_drift(night, engine, mode, arm, f"reference-{arm}", None, READ_BACK))
    asked, answers = None, None
    if gate.gsm8k is not None:
        asked = sums_of(night, gate.gsm8k)
        answers = ask_sums(night, base, gate.gsm8k, asked, None, None)  # B is up: where two do not fit, the only one
        answers.save(night.folder / FOLDER / "reference-gsm8k.json")
        if problem := no_reference(answers):
            raise NightProblem(f"the accuracy gate has no reference: {problem}")
    try:
        reference = NightReference(
            tokens=calibrate(token_runs),
            drift=drift.calibrate(drift_runs) if drift_runs else None,
            questions=asked.questions if asked else None,
            prompts_hash=asked.prompts_hash if asked else None,
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
        questions=asked.questions.source if asked else None,
        questions_hash=asked.questions.digest if asked else None,
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
    experiment, launch_pair = _place(trial)
    engine = night.arms.up({"B": spec}, experiment, launch_pair)["B"]
    results: list[GateResult] = []
    asked = [(run.mode, run.concurrency, len(run.sequences)) for run in reference.tokens.runs]
    if quick:
        mode, width, count = asked[0]
        asked = [(mode, width, min(width, count))]
    for mode, width, count in asked:
        run = ask(night, engine, mode, width, count, "B", name, experiment)
        if run.prompts_hash != known.prompts_hash and count == len(reference.tokens.runs[0].sequences):
            raise NightProblem("the gate's prompts are not those of the reference: start a new night")
        artifact = str(FOLDER / f"{name}-{mode}-{width}.json")
        results.append(check(reference.tokens, run).model_copy(update={"artifact": artifact}))
        if results[-1].outcome == "fail":
            return results
    if quick:
        return results
    results[-1] = results[-1].model_copy(update={"power": f"{results[-1].power}; {reference.widths}"})
    results.append(check_drift(night, engine, reference, name, experiment))
    if results[-1].outcome == "fail":
        return results
    return [*results, check_sums(night, spec, reference, name, trial)]


def _place(trial: Trial | None) -> tuple[str | None, int]:
    """The experiment and the launch pair that a gate belongs to; none and 0 at the confirmation."""
    return (trial.experiment_id, max(trial.launch_pair - 1, 0)) if trial else (None, 0)


def widths_of(night: Night, base: EngineSpec) -> WidthPlan:
    """Batch widths beside the usual ones: edges of what the base runs, up to what the workload sends at once. A
    candidate may run that many together even where the base queues them."""
    record, workload = night.arms.record_of(base), night.config.workload
    gate = night.config.gate
    realised = record.realised if record else {}
    return plan(realised, gate.more_widths, (1, gate.concurrency), at_once=workload.concurrency)


def ask(
    night: Night, engine: RunningEngine, mode: Mode, width: int, count: int, arm: Arm, name: str,
    experiment: str | None,
) -> TokenRun:  # fmt: skip
    """One collection, saved. Raises ArmFailure."""
    rule = night.config.gate
    most = max(rule.prompts, count)
    prompts = held_out.mixed_prompts(most, rule.seed, secret_of(night))[:count]
    try:
        run = collect(engine, prompts, rule.tokens, mode, width, night.config.limits.request_s)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, experiment) from cause
    run.save(night.folder / FOLDER / f"{name}-{mode}-{width}.json")
    return run


def ask_drift(
    night: Night, engine: RunningEngine, mode: Mode, arm: Arm, name: str, experiment: str | None, decode: int = 0
) -> DriftRun:
    """The fixed texts' log-probabilities, saved. Raises ArmFailure."""
    rule = night.config.gate
    texts = fixed_texts(rule.drift_texts, held_out.seed(secret_of(night), "texts"))
    try:
        run = collect_drift(engine, texts, mode, rule.concurrency, night.config.limits.request_s, decode)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, experiment) from cause
    run.save(night.folder / FOLDER / f"{name}-drift-{mode}.json")
    return run


def check_drift(
    night: Night, engine: RunningEngine, reference: NightReference, name: str, experiment: str | None
) -> GateResult:
    if reference.drift is None:
        reason = "gate.drift_texts is 0 in the night file"
        return GateResult(check=drift.CHECK, outcome="not_run", mode="", reason=reason)
    run = ask_drift(night, engine, reference.drift.runs[0].mode, "B", name, experiment)
    artifact = str(FOLDER / f"{name}-drift-{run.mode}.json")
    return drift.check(reference.drift, run).model_copy(update={"artifact": artifact})


@dataclass(frozen=True)
class Sums:
    """What is asked tonight: the same questions, put in the same words, all night."""

    questions: QuestionSet
    style: gsm8k.Style
    prompts_hash: str


def check_questions(night: Night) -> None:
    """At preflight: can they be read, put in this style, and are they enough? Raises NightProblem."""
    rule = night.config.gate.gsm8k
    if rule is None:
        return
    have, least = len(sums_of(night, rule).questions.questions), fewest_to_pass(rule.margin)
    if have < least:
        raise NightProblem(
            f"gate.gsm8k asks {have} questions, and with fewer than {least} no change can be shown to lose less than "
            f"{100 * rule.margin:g} points: raise gate.gsm8k.count (the file may hold no more) or margin"
        )


def sums_of(night: Night, rule: SumsRule) -> Sums:
    """Generated problems come from tonight's secret; of a file the first are taken, so that the score can be laid
    beside others'. Raises NightProblem."""
    generated = gsm8k.kind_of(rule.questions) == "arithmetic"
    seed = held_out.seed(secret_of(night), "problems") if generated else None
    try:
        questions = gsm8k.read(rule.questions, rule.count, seed)
        shown = gsm8k.train_for(rule.questions) if gsm8k.STYLES[rule.style].shots else None
        style = gsm8k.style(rule.style, shown, rule.max_tokens)
        prompts = style.prompts(questions.questions)
    except (OSError, ValueError) as error:
        raise NightProblem(f"gate.gsm8k.questions cannot be used: {error}") from error
    return Sums(questions, style, content_hash(list(prompts)))


def sums_spec(spec: EngineSpec, rule: SumsRule) -> EngineSpec:
    """The same settings, with the model that can do sums where the night names one."""
    return spec.model_copy(update={"model": rule.model}) if rule.model else spec


def ask_sums(
    night: Night, spec: EngineSpec, rule: SumsRule, asked: Sums, known: Answers | None, trial: Trial | None
) -> Answers:
    """As arm B, in waves; against `known` answers the asking stops as soon as harm is shown. Raises ArmFailure."""
    experiment, launch_pair = _place(trial)
    engine = night.arms.up({"B": sums_spec(spec, rule)}, experiment, launch_pair)["B"]
    stop = stop_on_harm(known.answers) if known else None
    wait_s = night.config.limits.request_s
    try:
        return gsm8k.ask(engine, asked.questions, asked.style, rule.concurrency, wait_s, stop)
    except EngineFailure as cause:
        raise night.arms.failed("B", cause, experiment) from cause


def check_sums(night: Night, spec: EngineSpec, reference: NightReference, name: str, trial: Trial | None) -> GateResult:
    rule = night.config.gate.gsm8k
    if rule is None or reference.questions is None:
        reason = "no questions given: set gate.gsm8k.questions in the night file"
        return GateResult(check="gsm8k", outcome="not_run", mode="", reason=reason)
    asked = sums_of(night, rule)
    if (asked.questions.digest, asked.prompts_hash) != (reference.questions.digest, reference.prompts_hash):
        raise NightProblem(
            f"{rule.questions}, or the worked examples beside it, changed since the night began: restore them, or "
            "start a new night"
        )
    answers = ask_sums(night, spec, rule, asked, reference.answers, trial)
    path = FOLDER / f"{name}-gsm8k.json"
    answers.save(night.folder / path)
    result = judge_sums(asked.questions, reference.answers, answers, rule.floor, rule.margin)
    return result.model_copy(update={"artifact": str(path)})
