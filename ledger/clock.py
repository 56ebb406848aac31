"""How a night's wall clock was divided. Each second counts once, also when two engines start side by side.

The time between two neighbouring lines of the ledger is divided so:

- **away**: the line that ends it is `night_resumed`; the loop was dead. Not part of the night's running time.
- **engine_starts**: an engine was starting (between its `launch_started` and its `launch_ready` or `launch_failed`), or
  the line that ends it is a launch's end, for as many seconds as that line says that it took.
- **measurements_and_gates**: all other time in the stages baseline, prove_path, quick_gate, measure, full_gate and
  confirm: warm-up, runs, gate prompts, path probes.
- **rest**: everything else (preflight, profile, research, picking, judging, commits, the report).
"""

from __future__ import annotations

from datetime import datetime

from contracts import Event, Frozen

MEASURING = frozenset({"baseline", "prove_path", "quick_gate", "measure", "full_gate", "confirm"})


class TimeShare(Frozen):
    """Seconds of wall clock. The first three add up to the running time."""

    measurements_and_gates: float = 0.0
    engine_starts: float = 0.0
    rest: float = 0.0
    away: float = 0.0

    @property
    def running(self) -> float:
        return self.measurements_and_gates + self.engine_starts + self.rest

    def shares(self) -> dict[str, float | None]:
        """Fractions of the running time, which add up to 1; None before any time has passed."""
        total = self.running
        return {
            name: round(getattr(self, name) / total, 4) if total else None
            for name in ("measurements_and_gates", "engine_starts", "rest")
        }


def seconds_between(earlier: str, later: str) -> float:
    """Never negative: a clock that was set back says nothing about time that passed."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


def divide(share: TimeShare, gap_s: float, event: Event, starting: bool, stage: str | None) -> TimeShare:
    """`share` with the gap before `event` added. `starting` and `stage` are as they were during the gap."""
    if event.kind == "night_resumed":
        return share.model_copy(update={"away": share.away + gap_s})
    if starting:
        engines = gap_s
    elif event.kind in ("launch_stopped", "launch_failed"):
        engines = min(gap_s, max(0.0, float(event.data["seconds"])))
    else:
        engines = 0.0
    other = "measurements_and_gates" if stage in MEASURING else "rest"
    return share.model_copy(
        update={
            "engine_starts": share.engine_starts + engines,
            other: getattr(share, other) + gap_s - engines,
        }
    )
