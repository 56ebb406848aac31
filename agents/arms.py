"""The two arms of an experiment: bringing engines up and down, one launch at a time or both at once.

A launch is used for one launch pair and then ended: the launch, not the run, is the unit of replication.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from agents.card_guard import CardGuard
from agents.tuning.placed import PlacementError
from agents.tuning.placing import place
from cards.installed import installed
from cards.visible import card_environment
from contracts import Card, EngineSpec, Failure, FailureKind, Frozen, LaunchRecord, Limits
from engine.placement import Placement
from engine.running import EngineFailure
from engine.server import Engine
from ledger.schema import LaunchFailed, LaunchReady, LaunchStarted, LaunchStopped

Arm = Literal["A", "B"]


class ArmFailure(Exception):
    """One arm's engine is not serving. The incumbent's failure is the night's problem, the change's is a verdict."""

    def __init__(self, arm: Arm, cause: EngineFailure) -> None:
        super().__init__(f"arm {arm}: {cause}")
        self.arm, self.failure = arm, cause.failure


class Arms:
    def __init__(
        self,
        folder: Path,
        limits: Limits,
        port: int | None,
        emit: Callable[[str, Frozen], None],
        guard: CardGuard,
        card: Card | None = None,  # which its engines get; None: they take what they see
    ) -> None:
        self._card = card
        self._folder, self._limits, self._port, self._emit, self._guard = folder, limits, port, emit, guard
        self._up: dict[Arm, Engine] = {}
        self._records: dict[str, LaunchRecord] = {}  # spec id -> its latest ready launch
        self._count = itertools.count(_launches_so_far(folder))

    def up(
        self,
        wanted: dict[Arm, EngineSpec],
        experiment_id: str | None,
        launch_pair: int,
        meanwhile: Callable[[], object] | None = None,
    ) -> dict[Arm, Engine]:
        """The engines asked for, up and ours; those already up with the same spec are used as they are. Others are
        started together on a CPU, and one after the other on a GPU: there vLLM takes the card's free memory before and
        after a trial step for its own use, and counts what a neighbour takes in that moment (two at once on one H200:
        the second found "No available memory for the cache blocks" in one of two pairs; vLLM 0.26, 2026-11-30).
        `meanwhile` is work that needs no card, done while the first start; what it raises is raised. Raises ArmFailure;
        what was started beside a failed one stays up. Raises CardBusy before anything is started."""
        missing = [arm for arm, spec in wanted.items() if not self.is_up(arm, spec)]
        if missing:
            self.down(*missing)
            self._guard.before_launch(self.pids())
        alone = self._card is not None and self._card.kind != "cpu"
        for together in [[arm] for arm in missing] if alone else [missing]:
            self._bring_up({arm: wanted[arm] for arm in together}, experiment_id, launch_pair, meanwhile)
            meanwhile = None
        return {arm: self._up[arm] for arm in wanted}

    def _bring_up(
        self,
        wanted: dict[Arm, EngineSpec],
        experiment_id: str | None,
        launch_pair: int,
        meanwhile: Callable[[], object] | None,
    ) -> None:
        """These at the same time, until all are ready or have failed. Raises ArmFailure for the first that failed."""
        waiting: dict[Arm, tuple[Engine, float]] = {}
        failed: ArmFailure | None = None
        for arm, spec in wanted.items():
            try:
                waiting[arm] = (self._start(arm, spec, experiment_id, launch_pair), time.monotonic())
            except EngineFailure as cause:
                failed = failed or ArmFailure(arm, cause)
        if meanwhile is not None and waiting:
            meanwhile()
        for arm, (engine, began) in waiting.items():
            try:
                record = engine.wait_ready()
                if wrong := self._guard.wrong_card(engine.pids()):
                    raise EngineFailure(Failure(kind=FailureKind.NOT_OURS, reason=wrong))
            except EngineFailure as cause:
                self._fail(arm, engine, cause, experiment_id, time.monotonic() - began)
                failed = failed or ArmFailure(arm, cause)
                continue
            self._records[record.spec_id] = record
            self._emit("launch_ready", LaunchReady(launch=record, experiment_id=experiment_id))
        if failed:
            raise failed

    def _start(self, arm: Arm, spec: EngineSpec, experiment_id: str | None, launch_pair: int) -> Engine:
        launch_id = f"L{next(self._count):03d}"
        port = self._port if self._port and not self._up else None  # a twin always takes a free one
        card_env: dict[str, str] = {}
        if self._card and spec.container is None:  # into a container, the card itself is put
            card_env = card_environment(self._card, spec.flags, spec.env, installed(spec.python).vllm)
        try:
            placement = self._placement(spec)
            engine = Engine.start(spec, launch_id, self._folder, self._limits, port, placement, card_env, self._card)
        except EngineFailure as cause:
            self._emit(
                "launch_failed",
                LaunchFailed(launch_id=launch_id, failure=cause.failure, experiment_id=experiment_id, seconds=0.0),
            )
            raise
        self._up[arm] = engine
        self._emit(
            "launch_started",
            LaunchStarted(launch=engine.record, arm=arm, experiment_id=experiment_id, launch_pair=launch_pair),
        )
        return engine

    def _placement(self, spec: EngineSpec) -> Placement:
        """Tables and patches of this spec, laid out. One that does not fit what is installed is a launch that failed:
        a verdict on the change, and no fault of the night's. Raises EngineFailure, and OSError for a full disk."""
        try:
            return place(spec, self._folder / "artifacts" / "overlays" / spec.id)
        except PlacementError as problem:
            refused = Failure(kind=FailureKind.REFUSED_CONFIGURATION, reason=str(problem))
            raise EngineFailure(refused) from problem

    def _fail(self, arm: Arm, engine: Engine, cause: EngineFailure, experiment_id: str | None, seconds: float) -> None:
        engine.stop()
        self._up.pop(arm, None)
        self._emit(
            "launch_failed",
            LaunchFailed(
                launch_id=engine.record.launch_id,
                failure=cause.failure,
                experiment_id=experiment_id,
                seconds=seconds,
            ),
        )
        self._settle()

    def failed(self, arm: Arm, cause: EngineFailure, experiment_id: str | None) -> ArmFailure:
        """An engine that was up broke under load: end it, record why, and say which arm it was."""
        engine = self._up.get(arm)
        if engine is not None:
            self._fail(arm, engine, cause, experiment_id, 0.0)
        return ArmFailure(arm, cause)

    def down(self, *arms: Arm) -> None:
        """End these engines (all when none is named) and wait until their memory is back. Safe to call twice."""
        stopped = False
        for arm in arms if arms else tuple(self._up):
            engine = self._up.pop(arm, None)
            if engine is None:
                continue
            report = engine.stop()
            stopped = True
            self._emit(
                "launch_stopped",
                LaunchStopped(launch_id=engine.record.launch_id, seconds=report.seconds, forced=report.forced),
            )
        if stopped:
            self._settle()

    def _settle(self) -> None:
        if not self._up:
            self._guard.after_stop()

    def pids(self) -> frozenset[int]:
        """Every process of every engine that is up: the idle twin is ours too."""
        return frozenset(pid for engine in self._up.values() for pid in engine.pids())

    def is_up(self, arm: Arm, spec: EngineSpec) -> bool:
        engine = self._up.get(arm)
        return engine is not None and engine.record.spec_id == spec.id

    def rss(self) -> int | None:
        """Resident bytes of the largest engine that is up; None when none is."""
        return max((engine.rss_bytes() for engine in self._up.values()), default=None)

    def remember(self, records: Iterable[LaunchRecord]) -> None:
        """After a resume: launches that became ready before, so that their logs are still known."""
        self._records.update({record.spec_id: record for record in records})

    def record_of(self, spec: EngineSpec) -> LaunchRecord | None:
        """The latest launch of this spec that became ready tonight, up or not."""
        return self._records.get(spec.id)

    def log_of(self, spec: EngineSpec) -> str | None:
        """The whole log of the latest launch of this spec, or None when it has not run tonight."""
        record = self.record_of(spec)
        if record is None:
            return None
        return (self._folder / record.log_path).read_text(errors="replace")


def _launches_so_far(folder: Path) -> int:
    """Launch numbers go on after a resume: no two launches of a night share a folder."""
    return sum(1 for _ in (folder / "artifacts" / "launches").glob("L*"))
