"""What a sentinel's samples say about one measurement window: plain facts, missing ones None. Pure; judge/void.py says
what they mean, engine/measure.py lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from pydantic import JsonValue

from cards.card_state import CardState
from cards.tenancy import Tenancy, Tenant, foreign, others_bytes

LOADED_PERCENT = 50.0  # a card less busy than this lowers its clocks by itself, and its clocks say nothing about heat
GAP = 2.5  # two samples further apart than so many periods leave a hole
MOST_NAMED = 5
# Reasons that are a fault of the place and not the card's normal life at its power cap (cards/state.py's words; a
# reason without a name may be the cap, so it is shown and not counted).
FAULTS = ("heat:", "external:", "other:")
# The same in the running totals of MI300 and MI350 (gpu_metrics 1.6 and later); ppt_residency_acc is the power cap.
FAULT_COUNTERS = ("prochot_residency_acc", "socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc")
ALL_TIME = "accumulation_counter"


@dataclass(frozen=True)
class Sample:
    at: float  # monotonic seconds
    state: CardState
    tenancy: Tenancy


def summary(samples: Sequence[Sample], own_pids: frozenset[int], period_s: float) -> dict[str, JsonValue]:
    """The conditions of a window from the samples inside it. `period_s` is how often it was meant to be looked at."""
    states = [s.state for s in samples]
    loaded = [s for s in states if s.busy_percent is None or s.busy_percent >= LOADED_PERCENT]
    return {
        "card_samples": len(samples),
        "card_gaps": sum(b.at - a.at > GAP * period_s for a, b in zip(samples, samples[1:], strict=False)),
        **_spread("card_sclk_mhz", [s.sclk_mhz for s in states]),
        "card_sclk_mhz_loaded": _or_none(median, [s.sclk_mhz for s in loaded]),
        "card_loaded_samples": sum(s.sclk_mhz is not None for s in loaded),
        **_spread("card_mclk_mhz", [s.mclk_mhz for s in states]),
        "card_power_w_mean": _or_none(fmean, [s.power_w for s in states]),
        "card_power_w_max": _or_none(max, [s.power_w for s in states]),
        "card_power_cap_w": _or_none(min, [s.power_cap_w for s in states]),
        **_hottest(states),
        "card_busy_percent_mean": _or_none(fmean, [s.busy_percent for s in states]),
        **_throttling(states),
        **_tenants(samples, own_pids),
    }


def not_told(conditions: dict[str, JsonValue]) -> list[str]:
    """The names of the facts above that neither the card nor its driver told."""
    return [name for name, value in conditions.items() if name.startswith("card_") and value is None]


def _or_none(of: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return round(of(told), 3) if told else None


def _spread(name: str, values: Sequence[float | None]) -> dict[str, JsonValue]:
    kinds: dict[str, Callable[[list[float]], float]] = {"min": min, "median": median, "max": max}
    return {f"{name}_{kind}": _or_none(of, values) for kind, of in kinds.items()}


def _hottest(states: Sequence[CardState]) -> dict[str, JsonValue]:
    degrees, sensor = max(((t, n) for s in states for n, t in s.temperatures_c.items()), default=(None, None))
    return {"card_hottest_c": degrees, "card_hottest_sensor": sensor}


def _throttling(states: Sequence[CardState]) -> dict[str, JsonValue]:
    """Shares of the looks, or of the time where the card counts it itself."""
    told = [s for s in states if s.throttled is not None]
    if not told:
        return _residency(states)
    reasons = Counter(reason for s in told if s.throttled for reason in set(s.reasons))
    slowed = sum(bool(s.throttled) and any(reason.startswith(FAULTS) for reason in s.reasons) for s in told)
    shares: dict[str, JsonValue] = {reason: round(count / len(told), 3) for reason, count in sorted(reasons.items())}
    return {
        "card_throttled_share": sum(bool(s.throttled) for s in told) / len(told),
        "card_slowed_share": slowed / len(told),
        "card_throttle_reasons": shares,
    }


def _residency(states: Sequence[CardState]) -> dict[str, JsonValue]:
    """From the first and the last look at counters that only grow. The largest of several limiters, because they may
    hold at once."""
    counters = [s.throttle_counters for s in states if s.throttle_counters.get(ALL_TIME) is not None]
    steps = counters[-1][ALL_TIME] - counters[0][ALL_TIME] if counters else 0
    if steps <= 0:
        return {"card_throttled_share": None, "card_slowed_share": None, "card_throttle_reasons": None}
    grown = {name: now - counters[0].get(name, now) for name, now in counters[-1].items() if name != ALL_TIME}
    shares = {name: round(min(1.0, count / steps), 3) for name, count in sorted(grown.items()) if count > 0}
    return {
        "card_throttled_share": max(shares.values(), default=0.0),
        "card_slowed_share": max((shares.get(name, 0.0) for name in FAULT_COUNTERS), default=0.0),
        "card_throttle_reasons": dict(shares),
    }


def _tenants(samples: Sequence[Sample], own_pids: frozenset[int]) -> dict[str, JsonValue]:
    """Each stranger once, with the most memory that it was seen with."""
    seen: dict[tuple[int, bool], Tenant] = {}
    for sample in samples:
        for tenant in foreign(sample.tenancy, own_pids):
            old = seen.get((tenant.pid, tenant.here))
            if old is None or (tenant.memory_bytes or 0) > (old.memory_bytes or 0):
                seen[tenant.pid, tenant.here] = tenant
    others = [held for s in samples if (held := others_bytes(s.tenancy, own_pids)) is not None]
    told = sorted({name for s in samples for name in s.tenancy.told})
    used = [s.tenancy.used_bytes for s in samples if s.tenancy.used_bytes is not None]
    strangers: list[JsonValue] = [tenant.words for tenant in seen.values()]
    return {
        "card_foreign": strangers if told else None,
        "card_tenants_told_by": list(told) or None,
        "card_vram_used_bytes_max": max(used, default=None),
        "card_vram_others_bytes_max": max(others, default=None),
        "card_vram_others_growth_bytes": max(others) - others[0] if others else None,
    }
