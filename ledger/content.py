"""What the report says, as data for its templates: the view in words and formatted numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from contracts import Evidence, GateResult, JudgeRule, Measurement, PathEvidence, Verdict
from ledger import answers, card_words, own_defaults, words
from ledger.card_seen import card_seen
from ledger.forest import axis
from ledger.next_steps import next_steps, upstream
from ledger.view import NightView, Try, medians
from ledger.words import (
    between,
    change_words,
    clean,
    duration,
    gibibytes,
    level_words,
    limit_words,
    metric_words,
    named,
    number,
    percent,
    times,
)

WARNINGS_SHOWN = 40
TAIL_LINES = 12  # of an engine's log; the whole log is under artifacts/
FIRST_NUMBERS = (  # of the medians, beside the objective's and the limited ones; all of them are further down
    "requests_per_s", "ttft_ms_p50", "ttft_ms_p95", "tpot_ms_p50", "tpot_ms_p95", "e2e_ms_p50", "e2e_ms_p95",
)  # fmt: skip


def content(view: NightView, night: str) -> dict[str, Any]:
    """Everything that report.html.j2 and report.md.j2 print, in words and formatted numbers."""
    rows = [_row(view, t) for t in view.tries]
    verdicts = [t.experiment.verdict for t in view.tries if t.experiment.verdict]
    if view.confirmed:
        verdicts.append(view.confirmed.verdict)
    scale = axis(verdicts, view.config.judge.smallest_gain if view.config else None)
    for row in rows:
        row["mark"] = scale.mark(row["verdict"]) if row["verdict"] else None
    return {
        "night": night,
        "view": view,
        "headline": (said := words.headline(view)),
        "lead": named(said.detail),
        "state": words.state_words(view),
        "stand_in": words.stand_in(view),
        "traps": words.traps(view),
        "trees_changed": words.trees_changed(view),
        "measured_on": _measured_on(view),
        "before_after": _before_after(view),
        "worse": _worse(view),
        "stock_words": own_defaults.defaults_words(view),
        "rows": rows,
        "false_keep": percent(view.config.judge.false_keep_chance) if view.config else None,
        "kept": _kept(view),
        "next_steps": next_steps(view),
        "upstream": upstream(view),
        "place": _place(view),
        "axis": scale,
        "confirmed_mark": scale.mark(view.confirmed.verdict) if view.confirmed else None,
        "confirmed_ratio": times(view.confirmed.verdict.ratio) if view.confirmed else "–",
        "hypotheses": _hypotheses(view),
        "dropped": words.folded(view.dropped),
        "card_meanwhile": card_words.night_words(view, card_seen(view)),
        "noise": _noise_words(view),
        "sums": _sums(view),
        "shares": _shares(view),
        "trouble": _trouble(view),
        "failures": [_failure(view, f) for f in view.failures],
        "answers": answers.lines(view.confirmed.gates) if view.confirmed else (),
        "tally": answers.tally(view.confirmed.gates) if view.confirmed and view.confirmed.gates else None,
        "gate_rows": _gate_rows(view),
        "sights": answers.sights(_gates(view)),
    }


def _row(view: NightView, t: Try) -> dict[str, Any]:
    e, change = t.experiment, t.experiment.hypothesis.change
    verdict = e.verdict
    return {
        "id": e.id,
        "number": t.number,
        "started_at": t.started_at,
        "change": change_words(change),
        "lever": words.LEVER_WORDS[change.lever],
        "planted": e.hypothesis.planted,
        "kept": e.id in view.kept_ids,
        "verdict": verdict,
        "word": words.word_of(e),
        "reason": named(verdict.reason) if verdict else _not_judged(view),
        "ratio": times(verdict.ratio if verdict else None),
        "interval": between(verdict.interval if verdict else None),
        "confidence": percent(verdict.confidence if verdict else None),
        "metric": (verdict.metric if verdict else None) or view.metric,
        "launch_pairs": verdict.launch_pairs if verdict else 0,
        "arms": _arms_words(view, e.measurements, verdict),
        "card": card_words.experiment_words(e.measurements, view.config.judge if view.config else JudgeRule()),
        "answers": answers.lines(e.gates),
        "path": e.path_evidence,
        "seen": _seen(e.path_evidence) if e.path_evidence else (),
        "seconds": words.try_seconds(t),
        "why": clean(e.hypothesis.why),
        "evidence": _evidence(e.hypothesis.evidence),
        "proposer": e.hypothesis.proposer,
        "predicted": times(e.hypothesis.predicted_gain),
    }


def _seen(evidence: PathEvidence) -> list[tuple[str, str]]:
    """What was seen in each arm, where the reason has not said it already (`key = value`: by its value)."""
    return [(arm, text) for arm, text in words.seen(evidence) if text.rpartition(" = ")[2] not in evidence.reason]


def _evidence(found: tuple[Evidence, ...]) -> list[tuple[str, str]]:
    return [(clean(x.source), clean(x.detail)) for x in found]


def _gates(view: NightView) -> tuple[GateResult, ...]:
    """Of the final stack, then of every experiment."""
    confirmed = view.confirmed.gates if view.confirmed else ()
    return (*confirmed, *(gate for e in view.experiments for gate in e.gates))


def _gate_rows(view: NightView) -> list[answers.Row]:
    rows = answers.rows(view.confirmed.gates, "final stack") if view.confirmed else []
    for i, e in enumerate(view.experiments, 1):
        rows += answers.rows(e.gates, f"experiment {i}")
    return rows


def _not_judged(view: NightView) -> str:
    if view.running and not view.interrupted:
        return "in flight: no verdict yet"
    return "in flight when the night ended: no verdict"


def _arms_words(view: NightView, runs: tuple[Measurement, ...], verdict: Verdict | None) -> str:
    """Medians of both arms on the objective's metric and on each limited one, and how many runs were void."""
    if not runs:
        return "not measured"
    by_arm = {arm: medians(m for m in runs if m.arm == arm) for arm in ("A", "B")}
    limits = view.config.workload.objective.limits if view.config else ()
    names = dict.fromkeys(
        (verdict.metric if verdict and verdict.metric else view.metric, *(lim.metric for lim in limits))
    )
    parts = [
        f"{metric_words(name)} {number(by_arm['A'].get(name))} → {number(by_arm['B'].get(name))}"
        for name in names
        if name in by_arm["A"] or name in by_arm["B"]
    ]
    void = [m for m in runs if m.void_reasons]
    why = "; ".join(dict.fromkeys(reason for m in void for reason in m.void_reasons))
    parts.append(f"{len(runs)} runs" + (f", {len(void)} void ({clean(why)})" if void else ""))
    return "; ".join(parts)


def _measured_on(view: NightView) -> list[tuple[str, str]]:
    card, config = view.card, view.config
    told: list[tuple[str, str]] = []
    if card:
        place = f" at {card.place}" if card.place else ""
        unit = "cores" if card.kind == "cpu" else "compute units"
        told.append(
            ("Card", f"{card.name} ({card.arch}){place}, {card.compute_units} {unit}, {gibibytes(card.memory_bytes)}")
        )
    if view.card_measured:
        copied, stands = view.card_measured.measured.copy_gb_s, view.card_measured.overrides
        told.append(("Copy test", f"{number(copied.value)} GB/s" + (f"; it stands for {stands}" if stands else "")))
    if config:
        told.append(("Model", Path(config.engine.model).name or config.engine.model))
        w = config.workload
        load = f"{w.concurrency} streams" if w.concurrency else f"{number(w.rate_per_s)} requests/s (Poisson)"
        told.append(
            (
                "Workload",
                f"{w.name}: {load}, {w.input_tokens[0]} to {w.input_tokens[1]} tokens in, "
                f"{w.output_tokens[0]} to {w.output_tokens[1]} out, {w.requests} requests a run",
            )
        )
        limits = ", ".join(limit_words(x) for x in w.objective.limits)
        told.append(("Objective", metric_words(w.objective.metric) + (f", while {limits}" if limits else "")))
    told.append(("Time", words.span(view)))
    software = [f"{'vLLM' if k == 'vllm' else k} {v}" for k, v in sorted(view.versions.items(), key=_vllm_first) if v]
    told.append(("Software", ", ".join(software) or "–"))
    if trees := words.trees_words(view):
        told.append(("Installed files", trees))
    return [(label, clean(text)) for label, text in told]


def _place(view: NightView) -> str:
    """Where and on what, in one line under the headline."""
    parts = [
        f"{view.card.name} ({view.card.arch})" if view.card else None,
        f"vLLM {view.versions['vllm']}" if view.versions.get("vllm") else None,
        Path(view.config.engine.model).name if view.config else None,
        words.date_time(view.started_at)[:10],
    ]
    return clean(" · ".join(part for part in parts if part))


def _kept(view: NightView) -> list[dict[str, Any]]:
    """Each kept change, and where the incumbent stood then: the baseline times the ratios so far, an estimate."""
    start = view.baseline.metrics.get(view.metric) if view.baseline else None
    rows, gain = [], 1.0
    for t in view.kept:
        ratio = t.experiment.verdict.ratio if t.experiment.verdict else None
        gain *= ratio or 1.0
        level = None if start is None else start / gain if words.lower_is_better(view.metric) else start * gain
        then = "" if level is None else f"; incumbent then at about {level_words(view.metric, level)}"
        rows.append(_row(view, t) | {"then": then})
    return rows


def _vllm_first(item: tuple[str, str | None]) -> tuple[bool, str]:
    return item[0] != "vllm", item[0]


def _before_after(view: NightView) -> list[dict[str, Any]]:
    """The confirmation's medians, the objective's metric first; `first`: what the top of the report shows. Without a
    confirmation: the baseline alone."""
    confirmed = view.confirmed
    base = confirmed.base if confirmed else view.baseline.metrics if view.baseline else {}
    final = confirmed.final if confirmed else {}
    stock = (confirmed.stock or {}) if confirmed else {}
    names = sorted({*base, *final}, key=lambda name: (name != view.metric, name))
    limits = view.config.workload.objective.limits if view.config else ()
    first = {view.metric, *(limit.metric for limit in limits), *FIRST_NUMBERS}
    return [
        {
            "metric": metric_words(name),
            "first": name in first,
            "base": number(base.get(name)),
            "final": number(final.get(name)),
            "stock": number(stock.get(name)),
        }
        for name in names
        if base.get(name) is not None or final.get(name) is not None
    ]


def _worse(view: NightView) -> str | None:
    """Which medians of the final stack are worse than the base's by more than tonight's noise, or the smallest gain."""
    if not view.confirmed:
        return None
    noise = view.baseline.noise.launch_sd if view.baseline else 0.0
    allowed = 1 + max(noise, view.config.judge.smallest_gain if view.config else 0.0)
    told = []
    for name, after in sorted(view.confirmed.final.items()):
        before = view.confirmed.base.get(name)
        if not before or not after or not (words.lower_is_better(name) or "_per_s" in name):
            continue
        if (after / before if words.lower_is_better(name) else before / after) > allowed:
            told.append(f"{metric_words(name)} {number(before)} → {number(after)}")
    return f"Worse than before, by medians that nobody judged: {', '.join(told)}." if told else None


def _hypotheses(view: NightView) -> list[dict[str, Any]]:
    became = {h.id: "no longer proposed" for h in view.earlier} | {h.id: "not tried" for h in view.hypotheses}
    became |= {t.experiment.hypothesis.id: words.word_of(t.experiment) for t in view.tries}
    numbers = {t.experiment.hypothesis.id: i for i, t in enumerate(view.tries, 1)}
    return [
        {
            "change": change_words(h.change),
            "planted": h.planted,
            "proposer": h.proposer,
            "predicted": times(h.predicted_gain),
            "bound": times(h.bound) if h.bound else "–",
            "chance": percent(h.probability),
            "cost": duration(h.cost_s),
            "score": f"{1000 * h.score:.2f}",
            "why": clean(h.why),
            "evidence": _evidence(h.evidence),
            "became": became[h.id],
            "number": numbers.get(h.id),  # of its experiment, which says why it was tried
        }
        for h in view.considered
    ]


def _noise_words(view: NightView) -> dict[str, Any] | None:
    if view.baseline is None:
        return None
    noise = view.baseline.noise
    repeat = [
        f"{mode}: {'the same tokens in fresh processes' if same else 'tokens differ between fresh processes'}"
        for mode, same in noise.tokens_repeat.items()
    ]
    return {
        "metric": metric_words(noise.metric),
        "launch": percent(noise.launch_sd),
        "df": noise.launch_df,
        "run": None if noise.run_sd is None else percent(noise.run_sd),
        "pairs": ", ".join(f"{100 * p:+.1f} %".replace("-", "−") for p in noise.pairs),
        "repeat": repeat,
        "gate_mode": view.baseline.gate_mode,
        "arms": view.baseline.arms,
        "arms_reason": clean(view.baseline.arms_reason),
    }


def _sums(view: NightView) -> str | None:
    """What the unchanged engine scores, and what a candidate has to reach."""
    rule = view.config.gate.gsm8k if view.config else None
    if rule is None or view.referenced is None or view.referenced.score is None:
        return None
    return (
        f"the unchanged engine has {view.referenced.score} ({view.referenced.questions}, style {rule.style}); "
        f"a candidate must lose less than {100 * rule.margin:g} points on the same ones and, where the unchanged "
        f"engine does, reach {percent(rule.floor)}"
    )


def _shares(view: NightView) -> list[dict[str, Any]]:
    share = view.time.shares()
    return [
        {"key": key, "label": label, "seconds": getattr(view.time, key), "share": share[key]}
        for key, label in (
            ("measurements_and_gates", "measurements and gates"),
            ("engine_starts", "engine starts and stops"),
            ("rest", "everything else"),
        )
    ]


def _trouble(view: NightView) -> list[tuple[str, str]]:
    """What a reader should know went not as planned: label, words."""
    told = [("lost", word) for word in view.lost]
    for resumed in view.resumed:
        ended = f"; ended our own engines {', '.join(map(str, resumed.ended_orphans))}" if resumed.ended_orphans else ""
        told.append(("resumed", f"at {resumed.at_stage or 'the start'}{ended}"))
    if view.interrupted:
        told.append(("interrupted", view.interrupted))
    counted = Counter(view.warned)
    for message, count in list(counted.items())[:WARNINGS_SHOWN]:
        told.append(("warning", message + (f" ({count} times)" if count > 1 else "")))
    if len(counted) > WARNINGS_SHOWN:
        told.append(("warning", f"and {len(counted) - WARNINGS_SHOWN} more, in ledger.jsonl"))
    told += [("unread", f"lines of kind {kind}: written by a newer version") for kind in view.unknown_kinds]
    return [(label, clean(text)) for label, text in told]


def _failure(view: NightView, failed: Any) -> dict[str, Any]:
    t = view.of(failed.experiment_id) if failed.experiment_id else None
    return {
        "launch_id": failed.launch_id,
        "what": change_words(t.experiment.hypothesis.change) if t else "baseline or confirmation",
        "kind": failed.failure.kind.replace("_", " "),
        "reason": clean(failed.failure.reason),
        "seconds": duration(failed.seconds),
        "tail": [clean(line) for line in failed.failure.log_tail[-TAIL_LINES:]],
    }
