"""Where a night stands: a pure fold over its events. The report, the live screen and the exporter read only this."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, Literal

from pydantic import JsonValue

from contracts import (
    Card,
    Change,
    Event,
    Experiment,
    Frozen,
    GateResult,
    Hypothesis,
    LaunchRecord,
    Measurement,
    NightConfig,
)
from ledger import schema
from ledger.clock import TimeShare, divide, seconds_between


class Try(Frozen):
    """What the night knows of an experiment beyond the experiment itself."""

    experiment: Experiment
    number: int
    alpha: float  # what this try may spend of the night's error budget
    started_at: str
    decided: Literal["kept", "reverted"] | None = None
    commit: str | None = None  # in the overlay, after the decision


class OpenLaunch(Frozen):
    """An engine that is starting or up."""

    launch: LaunchRecord
    arm: str
    experiment_id: str | None
    since: str  # start, or ready
    ready: bool = False


class NightView(Frozen):
    """Everything that was said so far. None or empty: not said yet."""

    started_at: str | None = None
    last_at: str | None = None
    lines: int = 0
    config: NightConfig | None = None
    card: Card | None = None
    versions: dict[str, str | None] = {}
    guarded_files: dict[str, str] = {}
    stage: str | None = None
    stage_experiment: str | None = None
    stage_since: str | None = None
    time: TimeShare = TimeShare()
    baseline: schema.Baseline | None = None
    sealed: str | None = None  # SHA-256 of the gate's secret
    referenced: schema.GateReferenced | None = None
    secret: str | None = None  # told at the end
    card_measured: schema.CardMeasured | None = None  # the last copy test
    findings: dict[str, JsonValue] = {}
    hypotheses: tuple[Hypothesis, ...] = ()  # of the last research, best first
    earlier: tuple[Hypothesis, ...] = ()  # of earlier ones, and not in the last
    dropped: tuple[str, ...] = ()
    tries: tuple[Try, ...] = ()  # in the order in which they began
    launches: tuple[LaunchRecord, ...] = ()  # of no experiment: baseline and confirmation
    open_launches: tuple[OpenLaunch, ...] = ()
    measured: tuple[schema.Measured, ...] = ()  # of no experiment
    gates: tuple[GateResult, ...] = ()  # of no experiment
    failures: tuple[schema.LaunchFailed, ...] = ()
    incumbent_spec_id: str | None = None  # None: still the base
    incumbent_commit: str | None = None
    kept_ids: tuple[str, ...] = ()  # experiments whose changes make the incumbent, oldest first
    confirmed: schema.Confirmed | None = None
    trees_before: schema.InstalledTrees | None = None
    trees_after: schema.InstalledTrees | None = None
    resumed: tuple[schema.NightResumed, ...] = ()
    interrupted: str | None = None  # the signal
    warned: tuple[str, ...] = ()
    unknown_kinds: tuple[str, ...] = ()  # lines of a newer version, left out here
    finish: schema.NightFinished | None = None
    finished_at: str | None = None

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        return tuple(t.experiment for t in self.tries)

    @property
    def kept(self) -> tuple[Try, ...]:
        return tuple(t for t in self.tries if t.experiment.id in self.kept_ids)

    @property
    def kept_changes(self) -> tuple[Change, ...]:
        """What the incumbent has and the base has not, oldest first."""
        return tuple(t.experiment.hypothesis.change for t in self.kept)

    @property
    def considered(self) -> tuple[Hypothesis, ...]:
        """Every hypothesis of the night once: the tried ones in the order of trying, with the numbers that they were
        picked by; then what is left of the last research, best first; then what fell away."""
        once: dict[str, Hypothesis] = {}
        for h in (*(t.experiment.hypothesis for t in self.tries), *self.hypotheses, *self.earlier):
            once.setdefault(h.id, h)
        return tuple(once.values())

    @property
    def lost(self) -> tuple[str, ...]:
        """What was in flight when the loop died, in words."""
        return tuple(word for resumed in self.resumed for word in resumed.lost)

    @property
    def incumbent_gain(self) -> float:
        """Product of the kept ratios: an estimate on the way, no claim. 1 when nothing is kept."""
        ratios = [t.experiment.verdict.ratio for t in self.kept if t.experiment.verdict]
        return math.prod((r for r in ratios if r is not None), start=1.0)

    @property
    def metric(self) -> str:
        """What the night improves."""
        return self.config.workload.objective.metric if self.config else "output_tokens_per_s"

    @property
    def running(self) -> bool:
        """No finish was written: the night is running, or was killed."""
        return self.finish is None

    def used_s(self, now: str | None = None) -> float:
        """Seconds that the night has run, without those that it lay dead; up to `now` (UTC, ISO 8601) if it still
        runs, else up to its last line."""
        used = self.time.running
        if now and self.last_at and self.running:
            used += seconds_between(self.last_at, now)
        return used

    def left_s(self, now: str | None = None) -> float | None:
        return max(0.0, self.config.minutes * 60 - self.used_s(now)) if self.config else None

    def of(self, experiment_id: str) -> Try | None:
        return next((t for t in self.tries if t.experiment.id == experiment_id), None)

    def after(self, event: Event) -> NightView:
        """This view with one more event."""
        gap = seconds_between(self.last_at, event.at) if self.last_at else 0.0
        starting = any(not o.ready for o in self.open_launches)
        time = divide(self.time, gap, event, starting, self.stage)
        update: dict[str, Any] = {"last_at": event.at, "lines": self.lines + 1, "time": time}
        view = self.model_copy(update=update)
        step = _STEPS.get(event.kind)
        if step is None:
            return view.but(unknown_kinds=tuple(dict.fromkeys((*view.unknown_kinds, event.kind))))
        data = schema.KINDS[event.kind].model_validate(event.data)
        return step(view, data, event.at)

    def but(self, **changes: Any) -> NightView:
        return self.model_copy(update=changes)


def fold(events: Iterable[Event], view: NightView | None = None) -> NightView:
    """The view after these events, from the beginning or on top of `view`."""
    view = view or NightView()
    for event in events:
        view = view.after(event)
    return view


def medians(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Median of each metric over the runs that are not void."""
    values: dict[str, list[float]] = {}
    for m in measurements:
        for name, value in m.metrics.items() if not m.void_reasons else ():
            if value is not None:
                values.setdefault(name, []).append(value)
    return {name: median(found) for name, found in sorted(values.items())}


def _started(view: NightView, data: schema.NightStarted, at: str) -> NightView:
    return view.but(
        started_at=at,
        config=data.config,
        card=data.card,
        versions=data.versions,
        guarded_files=data.guarded_files,
    )


def _resumed(view: NightView, data: schema.NightResumed, at: str) -> NightView:
    return view.but(
        resumed=(*view.resumed, data),
        open_launches=(),
        stage=None,
        stage_experiment=None,
        interrupted=None,
        finish=None,
        finished_at=None,
    )


def _entered(view: NightView, data: schema.StageEntered, at: str) -> NightView:
    return view.but(stage=data.stage, stage_experiment=data.experiment_id, stage_since=at)


def _left(view: NightView, data: schema.StageLeft, at: str) -> NightView:
    return view.but(stage=None, stage_experiment=None, stage_since=at)


def _launch_started(view: NightView, data: schema.LaunchStarted, at: str) -> NightView:
    launch = OpenLaunch(launch=data.launch, arm=data.arm, experiment_id=data.experiment_id, since=at)
    view = view.but(open_launches=(*view.open_launches, launch))
    return _put_launch(view, data.launch, data.experiment_id)


def _launch_ready(view: NightView, data: schema.LaunchReady, at: str) -> NightView:
    def ready(o: OpenLaunch) -> OpenLaunch:
        if o.launch.launch_id != data.launch.launch_id:
            return o
        return o.model_copy(update={"ready": True, "since": at, "launch": data.launch})

    view = view.but(open_launches=tuple(ready(o) for o in view.open_launches))
    return _put_launch(view, data.launch, data.experiment_id)


def _launch_failed(view: NightView, data: schema.LaunchFailed, at: str) -> NightView:
    return _launch_gone(view.but(failures=(*view.failures, data)), data.launch_id)


def _launch_stopped(view: NightView, data: schema.LaunchStopped, at: str) -> NightView:
    return _launch_gone(view, data.launch_id)


def _launch_gone(view: NightView, launch_id: str) -> NightView:
    return view.but(open_launches=tuple(o for o in view.open_launches if o.launch.launch_id != launch_id))


def _put_launch(view: NightView, launch: LaunchRecord, experiment_id: str | None) -> NightView:
    """Adds a launch, or replaces what was known of it, in its experiment or in the night."""

    def put(launches: tuple[LaunchRecord, ...]) -> tuple[LaunchRecord, ...]:
        if any(known.launch_id == launch.launch_id for known in launches):
            return tuple(launch if known.launch_id == launch.launch_id else known for known in launches)
        return (*launches, launch)

    if experiment_id is None:
        return view.but(launches=put(view.launches))
    return _change(view, experiment_id, lambda e: {"launches": put(e.launches)})


def _measured(view: NightView, data: schema.Measured, at: str) -> NightView:
    if data.experiment_id is None:
        return view.but(measured=(*view.measured, data))
    return _change(view, data.experiment_id, lambda e: {"measurements": (*e.measurements, data.measurement)})


def _gated(view: NightView, data: schema.Gated, at: str) -> NightView:
    if data.experiment_id is None:
        return view.but(gates=(*view.gates, data.result))
    return _change(view, data.experiment_id, lambda e: {"gates": (*e.gates, data.result)})


def _path(view: NightView, data: schema.PathProven, at: str) -> NightView:
    return _change(view, data.experiment_id, lambda e: {"path_evidence": data.evidence})


def _baseline(view: NightView, data: schema.Baseline, at: str) -> NightView:
    return view.but(baseline=data)


def _sealed(view: NightView, data: schema.GateSealed, at: str) -> NightView:
    return view.but(sealed=view.sealed or data.secret_sha256)  # the first promise holds


def _referenced(view: NightView, data: schema.GateReferenced, at: str) -> NightView:
    return view.but(referenced=data)


def _unsealed(view: NightView, data: schema.GateUnsealed, at: str) -> NightView:
    return view.but(secret=data.secret)


def _card_measured(view: NightView, data: schema.CardMeasured, at: str) -> NightView:
    return view.but(card_measured=data)


def _profiled(view: NightView, data: schema.Profiled, at: str) -> NightView:
    return view.but(findings=data.findings)


def _researched(view: NightView, data: schema.Researched, at: str) -> NightView:
    """Asked again after each change that is kept: what fell away meanwhile is remembered."""
    found = {h.id for h in data.hypotheses}
    earlier = tuple(h for h in (*view.earlier, *view.hypotheses) if h.id not in found)
    return view.but(hypotheses=data.hypotheses, dropped=data.dropped, earlier=earlier)


def _experiment_started(view: NightView, data: schema.ExperimentStarted, at: str) -> NightView:
    """Said again after a resume: what was seen before stays, as it did happen."""
    known = view.of(data.experiment_id)
    experiment = known.experiment if known else Experiment(id=data.experiment_id, hypothesis=data.hypothesis)
    fresh = Try(experiment=experiment, number=data.try_number, alpha=data.alpha, started_at=at)
    if known:
        return view.but(tries=tuple(fresh if t is known else t for t in view.tries))
    return view.but(tries=(*view.tries, fresh))


def _judged(view: NightView, data: schema.Judged, at: str) -> NightView:
    return _change(view, data.experiment_id, lambda e: {"verdict": data.verdict, "seconds": data.seconds})


def _kept(view: NightView, data: schema.Kept, at: str) -> NightView:
    kept_ids = tuple(dict.fromkeys((*view.kept_ids, data.experiment_id)))
    return _decide(view, data, "kept").but(kept_ids=kept_ids)


def _reverted(view: NightView, data: schema.Reverted, at: str) -> NightView:
    kept_ids = tuple(i for i in view.kept_ids if i != data.experiment_id)
    return _decide(view, data, "reverted").but(kept_ids=kept_ids)


def _decide(view: NightView, data: schema.Kept | schema.Reverted, word: str) -> NightView:
    decided = {"decided": word, "commit": data.commit}
    return view.but(
        incumbent_spec_id=data.spec_id,
        incumbent_commit=data.commit,
        tries=tuple(t.model_copy(update=decided) if t.experiment.id == data.experiment_id else t for t in view.tries),
    )


def _change(view: NightView, experiment_id: str, fields: Callable[[Experiment], dict[str, Any]]) -> NightView:
    def change(t: Try) -> Try:
        if t.experiment.id != experiment_id:
            return t
        return t.model_copy(update={"experiment": t.experiment.model_copy(update=fields(t.experiment))})

    return view.but(tries=tuple(change(t) for t in view.tries))


def _confirmed(view: NightView, data: schema.Confirmed, at: str) -> NightView:
    return view.but(confirmed=data)


def _installed_trees(view: NightView, data: schema.InstalledTrees, at: str) -> NightView:
    if data.when == "after":
        return view.but(trees_after=data)
    return view.but(trees_before=view.trees_before or data)  # of the first start


def _interrupted(view: NightView, data: schema.Interrupted, at: str) -> NightView:
    return view.but(interrupted=data.signal)


def _warned(view: NightView, data: schema.Warned, at: str) -> NightView:
    return view.but(warned=(*view.warned, data.message))


def _finished(view: NightView, data: schema.NightFinished, at: str) -> NightView:
    return view.but(finish=data, finished_at=at, open_launches=(), stage=None, stage_experiment=None)


_STEPS: dict[str, Callable[[NightView, Any, str], NightView]] = {
    "night_started": _started,
    "night_resumed": _resumed,
    "gate_sealed": _sealed,
    "gate_referenced": _referenced,
    "gate_unsealed": _unsealed,
    "card_measured": _card_measured,
    "stage_entered": _entered,
    "stage_left": _left,
    "launch_started": _launch_started,
    "launch_ready": _launch_ready,
    "launch_failed": _launch_failed,
    "launch_stopped": _launch_stopped,
    "measured": _measured,
    "gated": _gated,
    "path_evidence": _path,
    "baseline": _baseline,
    "profiled": _profiled,
    "researched": _researched,
    "experiment_started": _experiment_started,
    "judged": _judged,
    "kept": _kept,
    "reverted": _reverted,
    "confirmed": _confirmed,
    "installed_trees": _installed_trees,
    "interrupted": _interrupted,
    "warned": _warned,
    "night_finished": _finished,
}
