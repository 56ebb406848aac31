"""The running night: its folder, ledger, overlay, engines and clock. Everything that cannot be checkpointed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from agents.arms import Arms
from agents.card_guard import CardGuard
from agents.command import Problem
from agents.tuning.overlay import Overlay
from contracts import Card, Event, Frozen, NightConfig
from ledger.log import Ledger
from ledger.schema import Warned

CHECKOUT = Path(__file__).resolve().parent.parent
GUARDED = ("judge", "accuracy_gate", "agents/gating.py")  # the proposer never edits what judges it
GUARDED_KINDS = (".py", ".json", ".safetensors")  # the small model's files too


class Interrupted(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived. A KeyboardInterrupt, because asyncio lets nothing else out of a task or a
    callback: a plain BaseException was kept as the task's own result, and the night ran on."""


class NightProblem(Problem):
    """Something that the night cannot work around. The text is one line that names the fix."""


class Night:
    """What a stage may use besides the checkpointed progress."""

    def __init__(
        self,
        config: NightConfig,
        card: Card,
        folder: Path,
        ledger: Ledger,
        overlay: Overlay,
        used_s: float = 0.0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.config, self.card, self.folder, self.ledger, self.overlay = config, card, folder, ledger, overlay
        self._on_event = on_event
        self._writing, self._pending, self._heard, self._ended = False, "", "", False
        self._used_s = used_s
        self._began = time.monotonic()
        self.guard = CardGuard(
            card, config.card, config.limits.engine_stop_s, self.warn, self.check_interrupted,
            left=lambda: config.minutes * 60 - self.clock(),
        )  # fmt: skip
        self.arms = Arms(folder, config.limits, config.engine.port, self.emit, self.guard, card)
        self.guarded = guarded_files()

    def emit(self, kind: str, data: Frozen) -> None:
        """One more line in the ledger, synced to disk before anything else happens."""
        self._writing = True
        try:
            event = self.ledger.append(kind, data)
        finally:
            self._writing = False
        if self._on_event:
            self._on_event(event)
        if self._pending:
            self.interrupt(self._pending)

    def interrupt(self, signal_name: str) -> None:
        """Called by the signal handler. Raises Interrupted now, or once the line that is being written is safe; does
        nothing once the stages are over: a second later the report is written, and it is not torn out of that."""
        if self._ended:
            return
        self._heard = signal_name
        if self._writing:
            self._pending = signal_name
            return
        self._pending = ""
        raise Interrupted(signal_name)

    def check_interrupted(self) -> None:
        """Raises Interrupted once more when work goes on after a signal: Python drops an exception that a handler
        raises inside a finaliser or a callback of C code, and the night would run on to its end."""
        if self._heard and not self._ended:
            raise Interrupted(self._heard)

    def end(self) -> None:
        """The stages are over, however they ended: from here on no signal is raised."""
        self._ended, self._pending = True, ""

    def warn(self, message: str) -> None:
        self.emit("warned", Warned(message=message))

    def clock(self) -> float:
        """Seconds that this night has been running, without the time it lay dead before a resume."""
        return self._used_s + time.monotonic() - self._began

    def left(self) -> float:
        """Seconds of the budget left for experiments and confirmation."""
        return self.config.minutes * 60 - self.config.limits.report_reserve_s - self.clock()

    def check_guarded(self) -> None:
        """Raises NightProblem when a file that judges has changed since the night began."""
        changed = [path for path, digest in guarded_files().items() if self.guarded.get(path) != digest]
        changed += [path for path in self.guarded if not (CHECKOUT / path).exists()]
        if changed:
            raise NightProblem(
                f"{changed[0]} changed while the night was running: verdicts before and after would not "
                "be comparable; restore it and start a new night"
            )


def guarded_files() -> dict[str, str]:
    """SHA-256 of every source file of the judge and the gate and of the small model, by path in the checkout."""
    return {
        str(path.relative_to(CHECKOUT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for place in GUARDED
        for path in ([CHECKOUT / place] if place.endswith(".py") else sorted((CHECKOUT / place).rglob("*")))
        if path.suffix in GUARDED_KINDS
    }
