"""After the last experiment: does the whole stack hold on fresh launches, and the report."""

from __future__ import annotations

import math

from agents import gating, watch_trees
from agents.arms import ArmFailure
from agents.card_guard import CardBusy
from agents.context import Night
from agents.pairs import measure_launch_pair, single_run
from agents.stages.experiment import first_bad
from agents.stages.opening import medians
from agents.state import Progress
from contracts import EngineSpec, GateResult, Verdict, VerdictWord
from judge.confirm import confirm as confirm_gain
from judge.repeat import spare_launch_pairs
from ledger.schema import Confirmed, Gated


def confirm(night: Night, progress: Progress) -> Progress:
    """The clean base against the final stack, on fresh launches that no decision has seen. One launch pair a visit,
    each with the gate against the clean base's own answers, then the engine's stock defaults once, not judged."""
    night.check_guarded()
    night.arms.down()
    if not progress.winners:
        return progress.but(goto="report")
    launch_pair = progress.launch_pair
    try:
        runs = measure_launch_pair(night, progress.base, progress.incumbent, progress.arms, launch_pair, "confirm")
        if launch_pair == 0:
            progress = progress.but(gates=_gate_against_base(night, progress))
        elif night.arms.is_up("B", progress.incumbent):  # a fault may be in some processes only
            progress = progress.but(gates=(*progress.gates, *_gate_against_base(night, progress, quick=True)))
    except ArmFailure as broken:
        verdict = Verdict(
            word=VerdictWord.FAILED,
            reason=f"the confirmation could not be measured: {broken.failure.kind}: {broken.failure.reason}",
        )
        return _confirmed(night, progress, verdict)
    night.arms.down()
    progress = progress.but(runs=(*progress.runs, *runs), launch_pair=launch_pair + 1)
    more = night.config.judge.confirm_launch_pairs + spare_launch_pairs(progress.runs, night.config.judge)
    if progress.launch_pair < night.config.judge.confirm_launch_pairs or (
        progress.launch_pair < more and night.left() > progress.pair_s
    ):
        return progress.but(goto="confirm")
    assert progress.noise is not None and progress.objective is not None
    verdict = confirm_gain(progress.objective, progress.noise, progress.runs, night.config.judge, claimed(progress))
    bad = first_bad(list(progress.gates))
    if bad is not None:
        word = VerdictWord.REVERT if bad.outcome == "fail" else VerdictWord.INCONCLUSIVE
        verdict = verdict.model_copy(
            update={"word": word, "reason": f"the {bad.check} gate says {bad.outcome}: {bad.reason}"}
        )
    return _confirmed(night, progress, verdict)


def claimed(progress: Progress) -> float:
    """The product of the kept ratios, as they were judged one by one."""
    return math.prod(w.verdict.ratio for w in progress.winners if w.verdict.ratio is not None)


def _gate_against_base(night: Night, progress: Progress, quick: bool = False) -> list[GateResult]:
    """The final stack's answers, on a launch of its own, against those of the clean base: all of them on the first
    launch, one wave on each later one."""
    assert progress.reference is not None
    name = f"confirm-wave-{progress.launch_pair}" if quick else "confirm-full"
    results = gating.run_gate(night, progress.incumbent, progress.reference, name, quick=quick)
    for result in results:
        night.emit("gated", Gated(result=result))
    return results


def _confirmed(night: Night, progress: Progress, verdict: Verdict) -> Progress:
    usable = [m for m in progress.runs if not m.void_reasons]
    night.emit(
        "confirmed",
        Confirmed(
            verdict=verdict,
            base=medians([m for m in usable if m.arm == "A"]),
            final=medians([m for m in usable if m.arm == "B"]),
            stock=_stock(night, progress),
            gates=progress.gates,
        ),
    )
    return progress.but(goto="report")


def _stock(night: Night, progress: Progress) -> dict[str, float | None] | None:
    """The engine with no flag of ours, once: half of real wins only undo somebody's flag. None when the time left
    does not hold a launch, or the stock engine does not serve this model here."""
    base = progress.base
    stock = EngineSpec(
        python=base.python,
        model=base.model,
        flags=stock_flags(base),
        env=base.env,
        plugin_paths=base.plugin_paths,
        container=base.container,
    )
    if stock.id in (base.id, progress.incumbent.id):
        return None
    if night.left() < progress.pair_s:
        night.warn("stock engine defaults not measured: the time left does not hold a launch")
        return None
    try:
        run = single_run(night, stock, "stock")
    except ArmFailure as broken:
        night.warn(f"stock engine defaults: {broken.failure.kind}: {broken.failure.reason}")
        return None
    except CardBusy as taken:  # the verdict is there already
        night.warn(f"stock engine defaults not measured: {taken}")
        return None
    finally:
        night.arms.down()
    if run.void_reasons:
        night.warn(f"stock engine defaults not measured: {'; '.join(run.void_reasons)}")
        return None
    return run.metrics


# Flags that say what is served, not how fast.
KEPT_IN_STOCK = ("dtype", "tensor-parallel-size", "quantization", "max-model-len", "tokenizer", "load-format", "seed")


def stock_flags(base: EngineSpec) -> dict[str, object]:
    """Flags that say what is served rather than how fast; the rest is the engine's own default in the stock arm."""
    return {key: value for key, value in base.flags.items() if key in KEPT_IN_STOCK}


def report(night: Night, progress: Progress) -> Progress:
    """Engines gone, the gate's secret told; the report itself is written by agents/runner.py on every way out."""
    night.arms.down()
    watch_trees.compare(night, progress.base)
    gating.unseal(night)
    return progress.but(goto="end")
