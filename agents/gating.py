"""The accuracy gate inside a night: whom to ask, when, and where the answers are kept."""

from __future__ import annotations

from pathlib import Path

from accuracy_gate import gsm8k
from accuracy_gate.collect import Mode, TokenRun, collect
from accuracy_gate.gate import GateReference, calibrate, check
from accuracy_gate.prompts import prompts
from agents.arms import Arm
from agents.context import Night, NightProblem
from contracts import EngineSpec, GateResult
from engine.running import EngineFailure, RunningEngine

MODES: tuple[Mode, ...] = ("concurrent", "alone")  # the first is the quick gate's: one wave finds a broken engine
FOLDER = Path("artifacts/gate")


def calibrate_tonight(night: Night, base: EngineSpec, arms: str) -> str:
    """The reference, from two fresh processes of the base, in every mode; its path within the night's folder.

    The reference stays the same all night: every candidate is compared with the clean base, not with the incumbent
    before it, so that many small steps cannot walk away from the right answers. Raises ArmFailure, NightProblem.
    """
    runs: list[TokenRun] = []
    sides: tuple[Arm, ...] = ("A", "B")
    for arm in sides:
        if arms != "twin":
            night.arms.down("B" if arm == "A" else "A")
        engine = night.arms.up({arm: base}, None, 0)[arm]
        for mode in MODES:
            runs.append(ask(night, engine, mode, how_many(night, mode), arm, f"reference-{arm}"))
    try:
        reference = calibrate(runs)
    except ValueError as error:
        raise NightProblem(f"the accuracy gate has no reference: {error}") from error
    path = FOLDER / "reference.json"
    (night.folder / path).write_text(reference.model_dump_json())
    return str(path)


def read_reference(night: Night, path: str) -> GateReference:
    return GateReference.model_validate_json((night.folder / path).read_text())


def run_gate(night: Night, engine: RunningEngine, reference_path: str, name: str, quick: bool) -> list[GateResult]:
    """The quick gate is one wave of prompts; the full one asks all of them in every mode, and GSM8K where the night
    file names questions. Stops at the first check that fails. Raises ArmFailure when the engine breaks meanwhile."""
    rule = night.config.gate
    reference = read_reference(night, reference_path)
    results: list[GateResult] = []
    for mode in MODES[:1] if quick else MODES:
        count = min(rule.prompts, rule.concurrency) if quick else how_many(night, mode)
        run = ask(night, engine, mode, count, "B", name)
        result = check(reference, run)
        results.append(result.model_copy(update={"artifact": artifact(name, mode)}))
        if result.outcome == "fail":
            return results
    if not quick:
        results.append(ask_gsm8k(night, engine))
    return results


def how_many(night: Night, mode: Mode) -> int:
    """Prompts of a full gate in this mode."""
    rule = night.config.gate
    return rule.prompts if mode == "concurrent" else min(rule.prompts, rule.alone_prompts)


def ask(night: Night, engine: RunningEngine, mode: Mode, count: int, arm: Arm, name: str) -> TokenRun:
    """One collection, saved. Raises ArmFailure."""
    rule = night.config.gate
    asked = prompts(rule.prompts, rule.seed)[:count]
    try:
        run = collect(engine, asked, rule.tokens, mode, rule.concurrency, night.config.limits.request_s)
    except EngineFailure as cause:
        raise night.arms.failed(arm, cause, None) from cause
    run.save(night.folder / artifact(name, mode))
    return run


def ask_gsm8k(night: Night, engine: RunningEngine) -> GateResult:
    """GSM8K where the night file names a file of questions, else a result that says that it was not asked."""
    path = night.config.gate.gsm8k_path
    try:
        return gsm8k.run(engine, path)
    except EngineFailure as cause:
        raise night.arms.failed("B", cause, None) from cause


def artifact(name: str, mode: str) -> str:
    return str(FOLDER / f"{name}-{mode}.json")
