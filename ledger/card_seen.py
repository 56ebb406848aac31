"""How the card was while it was measured: what the sentinel's looks say of a whole night. Pure.

Each `measured` line holds one window's facts (cards/window.py makes them, engine/measure.py lists them). What nobody
told is None, here as there. card_words.py says it to a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Literal

from contracts import Frozen, Measurement
from ledger.view import NightView

# The same numbers as judge/void.py's and cards/window.py's, which this room may not import; a test holds them together.
LEAST_LOADED = 4  # looks at a loaded card before their median clock says something
OTHERS_GROWTH_BYTES = 1 << 30  # memory that none of our engines holds, risen in a window: somebody came
MOST = 1e18  # of any fact; bytes of a card are below 1e15
HALF_BUSY = 50.0  # percent; a card that is less busy waits for something most of the time


class CardSeen(Frozen):
    """Of all windows of a night. Mean values are over the looks, the rest over the windows."""

    windows: int = 0  # measured, void ones too
    looked_at: int = 0  # of them, with a look at the card
    looks: int = 0
    gaps: int = 0  # times without a look inside the windows
    errors: tuple[str, ...] = ()  # of the sentinel itself
    hottest_c: float | None = None
    hottest_sensor: str | None = None
    loaded_looks: int | None = None  # at least half busy, or nobody said how busy; None: no clock was told
    loaded_clock_lowest_mhz: float | None = None  # of the windows' medians
    loaded_clock_median_mhz: float | None = None
    clock_lowest_mhz: float | None = None  # of single looks, loaded or not
    clock_median_mhz: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None
    power_cap_w: float | None = None
    at_cap_windows: int | None = None  # whose highest power was the cap or more; None: power or cap not told
    throttling_told: int = 0  # windows of which the driver said whether it throttled
    throttled_windows: int | None = None  # for any reason, a power cap among them
    slowed_windows: int | None = None  # of them by heat or the hardware's own protection
    throttle_reasons: dict[str, float] = {}  # the driver's word -> its largest share of one window
    busy_percent: float | None = None
    busy_percent_lowest: float | None = None
    busy_percent_highest: float | None = None
    waited_for: Literal["host", "host or requests"] | None = None  # None: busy at least half of the time, or not told
    tenants_told_by: tuple[str, ...] = ()
    foreign: tuple[str, ...] | None = None  # everybody else seen on it, in words; None: nobody tells
    foreign_windows: int | None = None
    others_growth_bytes: int | None = None  # the largest in one window; None: not told


def card_seen(view: NightView) -> CardSeen:
    """The whole night's: baseline, experiments, confirmation, void runs and lost ones too."""
    runs = [m.measurement for m in view.measured] + [m for t in view.tries for m in t.experiment.measurements]
    looked = [m for m in runs if (look := fact(m, "card_samples")) is not None and look > 0]
    busy = _values(looked, "card_busy_percent_mean")
    mean_busy = _mean(looked, "card_busy_percent_mean")
    tenants = [m for m in looked if isinstance(m.conditions.get("card_foreign"), list)]
    return CardSeen(
        windows=len(runs),
        looked_at=len(looked),
        looks=_count(looked, "card_samples"),
        gaps=_count(runs, "card_gaps"),
        errors=_once(str(e) for m in runs if (e := m.conditions.get("sentinel_error"))),
        **_heat(looked),
        **_clocks(looked),
        **_power(looked),
        **_throttling(looked),
        busy_percent=mean_busy,
        busy_percent_lowest=min(busy, default=None),
        busy_percent_highest=max(busy, default=None),
        waited_for=_waited_for(view, mean_busy),
        tenants_told_by=_once(name for m in looked for name in words_of(m, "card_tenants_told_by")),
        foreign=_once(who for m in tenants for who in words_of(m, "card_foreign")) if tenants else None,
        foreign_windows=sum(bool(words_of(m, "card_foreign")) for m in tenants) if tenants else None,
        others_growth_bytes=_whole(_most(max, looked, "card_vram_others_growth_bytes")),
    )


def loaded_clock(m: Measurement) -> float | None:
    """MHz, as the judge takes it: None with too few looks at a loaded card."""
    enough = (fact(m, "card_loaded_samples") or 0) >= LEAST_LOADED
    return fact(m, "card_sclk_mhz_loaded") if enough else None


def fact(m: Measurement, key: str) -> float | None:
    """A number among the conditions; None where it was not told."""
    return number_of(m.conditions.get(key))


def number_of(value: object) -> float | None:
    """None for what is no number, and for one that no card can have told: sums of those end in infinity."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < MOST else None  # NaN is not below it


def words_of(m: Measurement, key: str) -> tuple[str, ...]:
    value = m.conditions.get(key)
    return tuple(str(word) for word in value) if isinstance(value, (list, tuple, dict)) else ()


def _waited_for(view: NightView, busy: float | None) -> Literal["host", "host or requests"] | None:
    """A closed loop always has requests under way, so a card that is idle waits for the host. A CPU is the host."""
    if busy is None or busy >= HALF_BUSY or view.config is None or view.card is None or view.card.kind == "cpu":
        return None
    return "host" if view.config.workload.concurrency else "host or requests"


def _heat(looked: Sequence[Measurement]) -> dict[str, float | str | None]:
    told = [(c, str(m.conditions.get("card_hottest_sensor"))) for m in looked if (c := fact(m, "card_hottest_c"))]
    degrees, sensor = max(told, default=(None, None))
    return {"hottest_c": degrees, "hottest_sensor": sensor}


def _clocks(looked: Sequence[Measurement]) -> dict[str, float | int | None]:
    loaded = [clock for m in looked if (clock := loaded_clock(m)) is not None]
    every = _values(looked, "card_sclk_mhz_median")
    return {
        "loaded_looks": _count(looked, "card_loaded_samples") if every else None,
        "loaded_clock_lowest_mhz": min(loaded, default=None),
        "loaded_clock_median_mhz": median(loaded) if loaded else None,
        "clock_lowest_mhz": _most(min, looked, "card_sclk_mhz_min"),
        "clock_median_mhz": median(every) if every else None,
    }


def _power(looked: Sequence[Measurement]) -> dict[str, float | int | None]:
    both = [(w, cap) for m in looked
            if (w := fact(m, "card_power_w_max")) is not None and (cap := fact(m, "card_power_cap_w"))]  # fmt: skip
    return {
        "power_mean_w": _mean(looked, "card_power_w_mean"),
        "power_max_w": _most(max, looked, "card_power_w_max"),
        "power_cap_w": _most(min, looked, "card_power_cap_w"),
        "at_cap_windows": sum(w >= cap for w, cap in both) if both else None,
    }


def _throttling(looked: Sequence[Measurement]) -> dict[str, int | None | dict[str, float]]:
    told = [m for m in looked if fact(m, "card_throttled_share") is not None]
    largest: dict[str, float] = {}
    for m in told:
        reasons = m.conditions.get("card_throttle_reasons")
        for word, told_share in reasons.items() if isinstance(reasons, dict) else ():
            if (share := number_of(told_share)) is not None:
                largest[word] = max(share, largest.get(word, 0.0))
    return {
        "throttling_told": len(told),
        "throttled_windows": sum((fact(m, "card_throttled_share") or 0) > 0 for m in told) if told else None,
        "slowed_windows": sum((fact(m, "card_slowed_share") or 0) > 0 for m in told) if told else None,
        "throttle_reasons": dict(sorted(largest.items())),
    }


def _values(runs: Iterable[Measurement], key: str) -> list[float]:
    return [value for m in runs if (value := fact(m, key)) is not None]


def _mean(looked: Iterable[Measurement], key: str) -> float | None:
    """Of the windows' means, each by its number of looks."""
    told = [(value, fact(m, "card_samples") or 0) for m in looked if (value := fact(m, key)) is not None]
    return round(sum(v * looks for v, looks in told) / sum(looks for _, looks in told), 3) if told else None


def _most(of: Callable[[list[float]], float], runs: Iterable[Measurement], key: str) -> float | None:
    told = _values(runs, key)
    return of(told) if told else None


def _count(runs: Iterable[Measurement], key: str) -> int:
    return int(sum(_values(runs, key)))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _once(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))
