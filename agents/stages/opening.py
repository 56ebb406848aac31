"""Before the first experiment: is everything fit, how noisy is tonight, what does the engine say, what to try."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from agents import gating, watch_trees
from agents.context import Night, NightProblem
from agents.pairs import measure_launch_pair
from agents.preflight import memory_for_twins
from agents.preflight import preflight as find_problems
from agents.research.dossier import Dossier, scored
from agents.research.installed_vllm import read_knobs
from agents.research.knobs import Knobs, KnobsError
from agents.research.memory import Memory, likelier, refused_ids, why_refused
from agents.research.memory_folders import earlier_nights
from agents.research.model_shape import ModelShape, ModelShapeError, model_shape
from agents.research.rank import order
from agents.research.rank import research as rank_hypotheses
from agents.settings_fit import ignored_settings
from agents.state import Progress
from agents.tuning.packages import package_folder
from agents.tuning.placed import PlacementError
from cards.copy_test import CopyTestError, copy_test
from cards.installed import installed
from cards.sheet import CardSheet, sheet_if_any, with_measured
from cards.visible import card_environment
from contracts import Card, Change, EngineSpec, Hypothesis, MeasuredSheet, Measurement, NightConfig
from judge.noise import noise_floor, noise_warnings
from judge.objective import resolve
from judge.ratios import CannotJudge
from judge.repeat import spare_launch_pairs
from ledger.schema import Baseline, CardMeasured, Profiled, Researched


def preflight(night: Night, progress: Progress) -> Progress:
    """Refuse what would waste the night. Warnings go to the ledger, a fatal problem ends the night. Where the night
    file says so, a busy card is waited for first."""
    if night.config.card.when_busy == "wait":
        night.guard.before_launch(())
    problems = find_problems(night.config, night.card, night.folder)
    for problem in problems:
        night.warn(f"{problem.what}: {problem.fix}")
    fatal = [p for p in problems if p.fatal]
    if fatal:
        raise NightProblem(f"{fatal[0].what}: {fatal[0].fix}")
    if night.config.card.copy_test and night.config.engine.container is None:
        measure_card(night)
    gating.seal(night)
    gating.check_questions(night)
    return progress.but(goto="baseline")


def measure_card(night: Night) -> None:
    """The copy test, while no engine is up. That it failed is a warning: the sheet's numbers then stand."""
    began = time.monotonic()
    try:
        engine = night.config.engine
        env = engine.env | card_environment(night.card, engine.flags, engine.env, installed(engine.python).vllm)
        measured = copy_test(engine.python, night.card, env)
    except CopyTestError as error:
        night.warn(str(error))
        return
    sheet = sheet_of(night.card)
    words = with_measured(sheet, measured)[1] if sheet else None
    if sheet is not None and words is None:
        night.warn(
            f"the copy test came to {measured.copy_gb_s.value:.0f} GB/s, and the sheet of {sheet.arch} says "
            f"{sheet.bandwidth_gb_s.value:g}: the sheet's number stands; look whether somebody else is on the card"
        )
    night.emit("card_measured", CardMeasured(measured=measured, overrides=words, seconds=time.monotonic() - began))


def sheet_of(card: Card, measured: MeasuredSheet | None = None) -> CardSheet | None:
    """The card's sheet, tonight's own bandwidth in it; None where nobody wrote one (a CPU, an unknown
    arch)."""
    sheet = sheet_if_any(card.arch)
    return with_measured(sheet, measured)[0] if sheet and measured else sheet


def measured_tonight(night: Night) -> MeasuredSheet | None:
    """The last copy test in the night's ledger."""
    tests = [event for event in night.ledger.events if event.kind == "card_measured"]
    return CardMeasured.model_validate(tests[-1].data).measured if tests else None


def baseline(night: Night, progress: Progress) -> Progress:
    """A/A: the same configuration in both arms, by the design that experiments will use. One launch pair a visit."""
    began = time.monotonic()
    rule, base, launch_pair = night.config.judge, progress.base, progress.launch_pair
    if launch_pair == 0:
        with watch_trees.beside(night, base):
            night.arms.up({"A": base}, None, 0, meanwhile=lambda: knobs_of(progress))  # kept; research asks for them
        arms, reason = choose_arms(night)
        progress = progress.but(arms=arms, arms_reason=reason)
        for problem in ignored_settings(base, knobs_of(progress)):
            night.warn(str(problem))
    runs = [*progress.runs, *measure_launch_pair(night, base, base, progress.arms, launch_pair, "aa")]
    if launch_pair == 0:  # two fresh processes: the token gate's own A/A
        progress = progress.but(reference=gating.reference_tonight(night, base, progress.arms))
    night.arms.down()
    progress = progress.but(runs=runs, launch_pair=launch_pair + 1, pair_s=time.monotonic() - began)
    if progress.launch_pair < rule.aa_launch_pairs + spare_launch_pairs(runs, rule):
        return progress.but(goto="baseline")
    return _finish_baseline(night, progress)


def _finish_baseline(night: Night, progress: Progress) -> Progress:
    usable = [m for m in progress.runs if not m.void_reasons]
    metric, rule = night.config.workload.objective.metric, night.config.judge
    try:
        noise = noise_floor(progress.runs, metric, rule)
        warnings = noise_warnings(progress.runs, metric, rule)
        metrics = medians(usable)
        objective = resolve(night.config.workload.objective, metrics)
    except CannotJudge as error:
        reasons = "; ".join(dict.fromkeys(r for m in progress.runs for r in m.void_reasons))
        raise NightProblem(
            f"the baseline could not be measured ({reasons or error.reason}): free the machine or make the "
            "workload longer, then start again"
        ) from error
    for warning in warnings:
        night.warn(warning)
    assert progress.reference is not None
    reference = gating.read_reference(night, progress.reference).tokens
    noise = noise.model_copy(update={"tokens_repeat": reference.tokens_repeat})
    night.emit(
        "baseline",
        Baseline(
            metrics=metrics,
            noise=noise,
            gate_mode=reference.mode,
            arms="twin" if progress.arms == "twin" else "alternate",
            arms_reason=progress.arms_reason,
            objective=objective,
            seconds=night.clock(),
        ),
    )
    return progress.but(
        noise=noise,
        baseline=metrics,
        objective=objective,
        profile=profile_of(usable),
        incumbent_runs=tuple(usable),
        runs=(),
        launch_pair=0,
        goto="profile",
    )


def choose_arms(night: Night) -> tuple[str, str]:
    """Twin engines where memory holds two of them, else one after the other. Called with one engine up."""
    if night.config.arms != "auto":
        return night.config.arms, "the night file says so"
    enough, why = memory_for_twins(night.config, night.card, night.arms.rss())
    return ("twin" if enough else "alternate"), why


def medians(runs: Sequence[Measurement]) -> dict[str, float | None]:
    """Median of each metric over runs; None where no run has it."""
    names = sorted({name for m in runs for name in m.metrics})
    found = {name: [v for m in runs if (v := m.metrics.get(name)) is not None] for name in names}
    return {name: statistics.median(values) if values else None for name, values in found.items()}


def profile_of(runs: Sequence[Measurement], arm: str | None = None) -> dict[str, JsonValue]:
    """What the engine's own counters said under the workload: the median over runs (of one arm) of every numeric
    condition."""
    numbers: dict[str, list[float]] = {}
    for m in runs:
        if m.void_reasons or arm not in (None, m.arm):
            continue
        for name, value in m.conditions.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers.setdefault(name, []).append(float(value))
    return {name: statistics.median(values) for name, values in sorted(numbers.items())}


def profile(night: Night, progress: Progress) -> Progress:
    """The engine's own account of where the time went under this workload, taken during the A/A runs."""
    findings = {**progress.profile, "realised": realised(night, progress.base)}
    night.emit("profiled", Profiled(findings=findings))
    return progress.but(profile=findings, goto="research")


def realised(night: Night, spec: EngineSpec) -> dict[str, JsonValue]:
    """What the latest engine of this spec said that it runs with."""
    record = night.arms.record_of(spec)
    return record.realised if record else {}


def research(night: Night, progress: Progress) -> Progress:
    """Ask every reader, heed what earlier nights found on this stack, rank, and write down what was dropped and why."""
    memory = earlier_nights(night.folder) if night.config.heed_earlier_nights else Memory()
    refused = refused_ids(memory, progress.incumbent)
    known = dossier(night, progress, knobs_of(progress)).model_copy(update={"refused_before": refused})
    found = rank_hypotheses(known, night.config.readers)
    fresh: list[Hypothesis] = []
    dropped = [*found.dropped, *memory.notes]
    dropped += [f"{r.change}: {why_refused(memory, r.change)}" for r in memory.refused]
    for h in order([scored(likelier(h, memory)) for h in found.hypotheses]):
        why_not = settled(h.change, progress)
        if why_not:
            dropped.append(f"{h.change}: {why_not}")
        else:
            fresh.append(h)
    night.emit("researched", Researched(hypotheses=tuple(fresh), dropped=tuple(dropped)))
    return progress.but(queue=fresh, goto="pick")


def settled(change: Change, progress: Progress) -> str | None:
    """Why tonight has an answer to this already, or None. Values are compared as JSON; what the change starts from does
    not count, or every keep would open all closed questions again."""

    def value(c: Change) -> tuple[str, str, str]:
        return c.lever, c.key, json.dumps(c.after, sort_keys=True)

    if value(change) in {value(c) for c in progress.tried}:
        return "tried tonight"
    if change.after is None and (change.lever, change.key) in {
        (w.change.lever, w.change.key) for w in progress.winners
    }:
        return "its value was chosen tonight, not by somebody's flag"
    return None


def knobs_of(progress: Progress) -> Knobs:
    """What the installed vLLM of this night's interpreter really has. Raises NightProblem where it cannot be read."""
    try:
        return read_knobs(progress.base.python, progress.base.container)
    except KnobsError as error:
        raise NightProblem(str(error)) from error


def first_dossier(config: NightConfig, card: Card) -> Dossier:
    """What is known before any engine has run: enough for a dry run."""
    spec = base_spec(config)
    model_config, sheet = json.loads((Path(spec.model) / "config.json").read_text()), sheet_of(card)
    return Dossier(
        spec=spec,
        knobs=read_knobs(spec.python, spec.container),
        workload=config.workload,
        card=card,
        model_config_json=model_config,
        model=_shape(model_config) if sheet else None,  # the roofline needs both
        sheet=sheet,
        aiter=aiter_of(spec, card),
        try_first=config.try_first,
        priors=config.priors,
    )


def aiter_of(spec: EngineSpec, card: Card) -> str:
    """The AITER that the engine's interpreter would import; "" where there is none to look into: it is no fault. An
    image's own files are not where this machine has files."""
    if card.kind != "amd" or spec.container is not None:
        return ""
    try:
        return str(package_folder(spec.python, "aiter") or "")
    except PlacementError:
        return ""


def _shape(model_config: dict[str, JsonValue]) -> ModelShape | None:
    """None for a model that is not understood: the engine may know better."""
    try:
        return model_shape(model_config)
    except ModelShapeError:
        return None


def base_spec(config: NightConfig) -> EngineSpec:
    """The night's starting configuration: what the user runs today."""
    e = config.engine
    return EngineSpec(
        python=e.python, model=e.model, flags=e.flags, env=e.env, compilation=e.compilation,
        overlay=e.overlay, plugin_paths=e.plugin_paths, container=e.container,
    )  # fmt: skip


def dossier(night: Night, progress: Progress, knobs: Knobs) -> Dossier:
    """Everything the readers may look at."""
    known = progress.profile.get("realised")
    return first_dossier(night.config, night.card).model_copy(
        update={
            "spec": progress.incumbent,
            "sheet": sheet_of(night.card, measured_tonight(night)),
            "knobs": knobs,
            "profile": {k: v for k, v in progress.profile.items() if k != "realised"},
            "realised": known if isinstance(known, dict) else {},
            "engine_logs": _logs(night, progress.base),
            "pair_s": progress.pair_s or None,
            "gate_s": progress.reference.seconds if progress.reference else None,
            "arms": progress.arms,
        }
    )


def _logs(night: Night, spec: EngineSpec) -> tuple[str, ...]:
    """Of the latest engine of this spec; none before one ran."""
    record = night.arms.record_of(spec)
    return (str(night.folder / record.log_path),) if record else ()


def subject(night: Night, progress: Progress) -> Dossier:
    """The dossier with the model's shape on every card, a CPU too: what a change is checked against before an engine is
    started. The installed source is parsed once a night (agents/research/attention_backends.py)."""
    known = dossier(night, progress, knobs_of(progress))
    return known.model_copy(update={"model": known.model or _shape(known.model_config_json)})
