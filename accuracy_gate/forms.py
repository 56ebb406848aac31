"""The gate as the night uses it: record the unchanged engine, then a quick look before and a full look after measuring.

    record   once for each of two fresh processes of the unchanged engine; calibrate() takes all their runs
    quick    one wave of concurrent prompts, before anything is measured: a broken change stops within seconds
    full     every prompt in every mode, on the last launch and after its load, so that what load breaks is seen

Each saves what the engine said under `folder` (given relative to `night_dir`), where GateResult.artifact points to.
All raise EngineFailure when the engine is not ours any more.
"""

from __future__ import annotations

from pathlib import Path

from accuracy_gate.collect import Mode, TokenRun, collect
from accuracy_gate.gate import GateReference, check
from accuracy_gate.prompts import Prompt, prompts
from contracts import GateResult, GateRule
from engine.running import RunningEngine

REQUEST_S = 120.0


def _plan(rule: GateRule) -> tuple[tuple[Mode, tuple[Prompt, ...]], ...]:
    """The cheap mode first: a broken change then never reaches the other."""
    items = prompts(rule.prompts, rule.seed)
    alone = items[: rule.alone_prompts]
    return (("concurrent", items), *((("alone", alone),) if alone else ()))


def record(engine: RunningEngine, rule: GateRule, timeout: float = REQUEST_S) -> tuple[TokenRun, ...]:
    """One run for each mode of the full form."""
    return tuple(collect(engine, items, rule.tokens, mode, rule.concurrency, timeout) for mode, items in _plan(rule))


def quick(
    engine: RunningEngine,
    reference: GateReference,
    rule: GateRule,
    night_dir: Path,
    folder: str,
    timeout: float = REQUEST_S,
) -> GateResult:
    items = prompts(rule.prompts, rule.seed)[: rule.concurrency]
    run = collect(engine, items, rule.tokens, "concurrent", rule.concurrency, timeout)
    return _result(reference, run, night_dir, f"{folder}/tokens-quick.json")


def full(
    engine: RunningEngine,
    reference: GateReference,
    rule: GateRule,
    night_dir: Path,
    folder: str,
    timeout: float = REQUEST_S,
) -> tuple[GateResult, ...]:
    """One result for each mode; stops after the first that does not pass."""
    results: list[GateResult] = []
    for mode, items in _plan(rule):
        run = collect(engine, items, rule.tokens, mode, rule.concurrency, timeout)
        results.append(_result(reference, run, night_dir, f"{folder}/tokens-{mode}.json"))
        if results[-1].outcome != "pass":
            break
    return tuple(results)


def _result(reference: GateReference, run: TokenRun, night_dir: Path, artifact: str) -> GateResult:
    run.save(night_dir / artifact)
    return check(reference, run).model_copy(update={"artifact": artifact})
