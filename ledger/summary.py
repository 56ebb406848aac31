"""A night as one JSON object: what `run_night.py report NIGHT --json` prints."""

from __future__ import annotations

from typing import Any

from contracts import JudgeRule, Verdict, VerdictWord
from ledger import card_words
from ledger.card_seen import card_seen
from ledger.next_steps import next_steps, upstream
from ledger.view import NightView, Try, medians
from ledger.words import headline, stand_in


def summary(view: NightView) -> dict[str, Any]:
    """Plain JSON. null: not known (yet); `confirmed_gain` is null unless the confirmation said keep."""
    finish, share = view.finish, view.time
    confirmed = view.confirmed
    said = headline(view)
    return {
        "night": view.config.name if view.config else None,
        "headline": f"{said.title}. {said.detail}",
        "stand_in": stand_in(view),  # not null: a rehearsal, its numbers mean nothing
        "outcome": finish.outcome if finish else None,
        "outcome_reason": finish.reason if finish else None,
        "exit_code": finish.exit_code if finish else None,
        "started_at": view.started_at,
        "finished_at": view.finished_at,
        "card": view.card.model_dump(mode="json") if view.card else None,
        "card_meanwhile": card_seen(view).model_dump(mode="json"),
        "versions": dict(view.versions),
        "model": view.config.engine.model if view.config else None,
        "workload": view.config.workload.model_dump(mode="json") if view.config else None,
        "baseline": view.baseline.model_dump(mode="json", exclude={"noise"}) if view.baseline else None,
        "gate_reference": view.referenced.model_dump(mode="json") if view.referenced else None,
        "gate_secret": {"sha256": view.sealed, "secret": view.secret},
        "noise_floor": view.baseline.noise.model_dump(mode="json") if view.baseline else None,
        "confirmed_gain": _gain(confirmed.verdict) if confirmed and said.confirmed else None,
        "confirmation": confirmed.model_dump(mode="json") if confirmed else None,
        "next_steps": next_steps(view),
        "upstream": upstream(view),
        "kept": list(view.kept_ids),
        "incumbent": {
            "spec_id": view.incumbent_spec_id,
            "commit": view.incumbent_commit,
            "changes": [change.model_dump(mode="json") for change in view.kept_changes],
            "estimated_gain": view.incumbent_gain,  # product of the kept ratios: not confirmed
        },
        "experiments": [_experiment(view, t) for t in view.tries],
        "hypotheses": [h.model_dump(mode="json") | {"id": h.id} for h in view.considered],
        "dropped": list(view.dropped),
        "installed_trees": _trees(view),
        "time_share": share.shares(),  # fractions of running_s
        "time_s": share.model_dump(mode="json") | {"running": share.running},
        "lost": list(view.lost),
        "resumes": len(view.resumed),
        "interrupted": view.interrupted,
        "warnings": list(view.warned),
        "failures": [failure.model_dump(mode="json") for failure in view.failures],
        "ledger_lines": view.lines,
    }


def _trees(view: NightView) -> dict[str, Any] | None:
    """identical: null where the night did not compare."""
    before, after = view.trees_before, view.trees_after
    if before is None:
        return None
    return {
        "before": before.model_dump(mode="json", include={"trees", "left_out", "path"}),
        "after": after.model_dump(mode="json", include={"trees", "path"}) if after else None,
        "identical": after.identical if after else None,
        "changed": list(after.changed) if after else [],
        "changed_count": after.changed_count if after else 0,
    }


def _gain(verdict: Verdict) -> dict[str, Any]:
    return {
        "metric": verdict.metric,
        "ratio": verdict.ratio,
        "interval": list(verdict.interval) if verdict.interval else None,
        "confidence": verdict.confidence,
        "launch_pairs": verdict.launch_pairs,
    }


def _experiment(view: NightView, t: Try) -> dict[str, Any]:
    e = t.experiment
    verdict = e.verdict
    no_gain = {"metric": view.metric, "ratio": None, "interval": None, "confidence": None, "launch_pairs": 0}
    return {
        "id": e.id,
        "change": e.hypothesis.change.model_dump(mode="json"),
        "hypothesis": e.hypothesis.model_dump(mode="json", exclude={"change"}) | {"id": e.hypothesis.id},
        "planted": e.hypothesis.planted,
        "verdict": verdict.word.value if verdict else None,
        "reason": verdict.reason if verdict else None,
        "metrics": (_gain(verdict) if verdict else no_gain)
        | {f"median_{arm}": medians(m for m in e.measurements if m.arm == arm) for arm in ("A", "B")}
        | {"runs": len(e.measurements), "void_runs": sum(1 for m in e.measurements if m.void_reasons)},
        "card_note": card_words.experiment_words(e.measurements, view.config.judge if view.config else JudgeRule()),
        "gates": [gate.model_dump(mode="json") for gate in e.gates],
        "path_evidence": e.path_evidence.model_dump(mode="json") if e.path_evidence else None,
        "seconds": e.seconds,
        "try_number": t.number,
        "alpha": t.alpha,
        "decided": t.decided,
        "kept": verdict is not None and verdict.word == VerdictWord.KEEP and e.id in view.kept_ids,
        "launches": [launch.launch_id for launch in e.launches],
    }
