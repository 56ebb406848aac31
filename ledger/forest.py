"""Where the marks of the forest plot stand: ratios and intervals on a logarithmic axis, as percent of its width."""

from __future__ import annotations

import math

from contracts import Frozen, Verdict

_TICKS = (0.01, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7,
          10, 20, 50, 100)  # fmt: skip
_APART = 11.0  # percent of the width that a tick's label needs on a phone


class Mark(Frozen):
    """Percent from the left. An end that lies off the axis is cut there and said so."""

    at: float
    low: float | None
    high: float | None
    low_cut: bool = False
    high_cut: bool = False


class Axis(Frozen):
    low: float  # ratios at the two ends
    high: float
    ticks: tuple[tuple[float, str], ...]  # percent from the left, label
    one: float  # where nothing changes
    gain: float | None  # where a change begins to be worth keeping

    def place(self, ratio: float) -> float:
        width = math.log(self.high / self.low)
        return round(min(100.0, max(0.0, 100 * math.log(max(ratio, 1e-9) / self.low) / width)), 2)

    def mark(self, verdict: Verdict) -> Mark | None:
        """None where the verdict has no number."""
        if verdict.ratio is None:
            return None
        low, high = verdict.interval or (None, None)
        return Mark(
            at=self.place(verdict.ratio),
            low=None if low is None else self.place(low),
            high=None if high is None else self.place(high),
            low_cut=low is not None and low < self.low,
            high_cut=high is not None and high > self.high,
        )


def axis(verdicts: list[Verdict], smallest_gain: float | None) -> Axis:
    """Holds every ratio, and of the intervals as much as does not squeeze the ratios: two launch pairs can leave an
    interval a hundred times wider than what matters."""
    shown = [v for v in verdicts if v.ratio is not None and v.ratio > 0]
    ratios = [1.0, *(v.ratio for v in shown if v.ratio)]
    least, most = min(ratios), max(ratios)
    reach = max(1.1, (most / least) ** 0.5)  # beyond the outermost ratio
    ends = [end for v in shown for end in v.interval or () if end > 0]
    low = max(least / reach, min([least, *ends])) / 1.03
    high = min(most * reach, max([most, *ends])) * 1.03
    low, high = min(low, 0.95), max(high, 1.06)
    plain = Axis(low=low, high=high, ticks=(), one=0, gain=None)
    ticks = [(plain.place(1.0), "1×")]
    for tick in sorted(_TICKS, key=lambda t: abs(math.log(t))):
        place = plain.place(tick)
        if low < tick < high and 3 < place < 97 and all(abs(place - taken) >= _APART for taken, _ in ticks):
            ticks.append((place, f"{tick:g}×"))
    return plain.model_copy(
        update={
            "ticks": tuple(sorted(ticks)),
            "one": plain.place(1.0),
            "gain": None if smallest_gain is None else plain.place(1 + smallest_gain),
        }
    )
