"""How the card was meanwhile, said to a person: a few lines for the night, at most one for an experiment. Pure.

What of an experiment is worth a line is judged by the judge's own rules (judge/void.py): the loaded clock of one arm
against the other's (judge.clock_drop), the share of a window that was slowed (judge.slowed_share), anybody else on the
card. Half of what voids a pair is near enough to be told. A power cap that is reached is no such limit, because a
loaded card lives at its cap in both arms; it shows as a clock that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contracts import JudgeRule, Measurement
from ledger.card_seen import OTHERS_GROWTH_BYTES, CardSeen, fact, loaded_clock, words_of
from ledger.view import NightView
from ledger.words import clean, gibibytes, number, percent

NEAR = 0.5  # of the judge's limit; judged, not measured
MOST_NAMED = 3


def night_words(view: NightView, seen: CardSeen) -> list[tuple[str, str]]:
    """(label, text) for each fact that was told, or one line that says that nothing was."""
    if not seen.windows:
        return [("Not known", "nothing was measured")]
    facts = [*_busy(view, seen), *_clock(seen), *_heat(seen), *_power(seen), *_throttling(seen), *_others(seen)]
    looking = [*_looking(seen)]
    if not facts:
        why = "nobody looked at it" if not seen.looked_at else "it tells nothing of itself"
        return [("Not known", f"{why} during the {_windows(seen.windows)}"), *looking]
    return [(label, clean(text)) for label, text in (*facts, *_not_told(view, seen), *looking)]


def experiment_words(runs: Sequence[Measurement], rule: JudgeRule) -> str | None:
    """One line where the card differed between the arms or was near a limit; None where there is nothing to say."""
    said = [*_pair_clocks(runs, rule.clock_drop), *_slowed(runs, rule.slowed_share), *_strangers(runs)]
    return clean("; ".join(said)) or None


# --- the night ---


def _busy(view: NightView, seen: CardSeen) -> Iterator[tuple[str, str]]:
    busy = seen.busy_percent
    if busy is None or seen.busy_percent_lowest is None or seen.busy_percent_highest is None:
        return
    low, high = f"{seen.busy_percent_lowest:.0f}", f"{seen.busy_percent_highest:.0f}"
    share = f"{busy:.0f} % of the time" + (f" ({low} to {high} % in single windows)" if low != high else "")
    load = view.config.workload if view.config else None
    if view.card and view.card.kind == "cpu":
        share = f"all cores together {share}, with whatever else ran"
    elif seen.waited_for == "host" and load:
        always = f"with {load.concurrency} requests always under way it waited for the host"
        share += f": {always}, so the host was the limit and not the card"
    elif seen.waited_for and load:
        share += f": the rest it waited, for the host or for requests ({number(load.rate_per_s)} a second came)"
    yield "Busy", share


def _clock(seen: CardSeen) -> Iterator[tuple[str, str]]:
    lowest, middle = seen.loaded_clock_lowest_mhz, seen.loaded_clock_median_mhz
    if lowest is not None and middle is not None:
        yield "Clock", f"under load {number(middle)} MHz (the windows' median), {number(lowest)} in the slowest window"
    elif seen.clock_median_mhz is not None and seen.clock_lowest_mhz is not None:
        few = f"half busy in {seen.loaded_looks or 'none'} of {seen.looks:,} looks, so none under load is known"
        yield "Clock", f"{number(seen.clock_median_mhz)} MHz, at least {number(seen.clock_lowest_mhz)}; {few}"


def _heat(seen: CardSeen) -> Iterator[tuple[str, str]]:
    if seen.hottest_c is not None:
        yield "Heat", f"at most {seen.hottest_c:.0f} °C (sensor {seen.hottest_sensor})"


def _power(seen: CardSeen) -> Iterator[tuple[str, str]]:
    if seen.power_mean_w is None or seen.power_max_w is None:
        return
    cap = "; its cap is not told"
    if seen.power_cap_w is not None:
        reached = f", reached in {_of(seen.at_cap_windows, seen.looked_at)}" if seen.at_cap_windows else ""
        cap = f" of a cap of {seen.power_cap_w:.0f} W{reached}"
    yield "Power", f"mean {seen.power_mean_w:.0f} W, at most {seen.power_max_w:.0f} W{cap}"


def _throttling(seen: CardSeen) -> Iterator[tuple[str, str]]:
    if not seen.throttling_told:
        return
    if not seen.throttled_windows:
        yield "Slowed", f"never, neither by heat nor at its power cap ({_windows(seen.throttling_told)})"
        return
    told = ", ".join(f"{word} in up to {percent(share)} of a window" for word, share in seen.throttle_reasons.items())
    yield (
        "Slowed",
        f"by heat or its own protection in {_of(seen.slowed_windows, seen.throttling_told)}; for any reason, a power "
        f"cap included, in {seen.throttled_windows}" + (f": {told}" if told else ""),
    )


def _others(seen: CardSeen) -> Iterator[tuple[str, str]]:
    if seen.foreign:
        named = ", ".join(seen.foreign[:MOST_NAMED])
        more = f" and {len(seen.foreign) - MOST_NAMED} more" if len(seen.foreign) > MOST_NAMED else ""
        yield "Others", f"in {_of(seen.foreign_windows, seen.looked_at)}: {named}{more}"
    elif seen.others_growth_bytes is not None and seen.others_growth_bytes > OTHERS_GROWTH_BYTES:
        rose = f"memory that none of our engines holds rose by {gibibytes(seen.others_growth_bytes)} in one window"
        yield "Others", f"{rose}: somebody whom this user cannot see came"
    elif seen.foreign is not None:
        by = f" (asked: {', '.join(seen.tenants_told_by)})" if seen.tenants_told_by else ""
        yield "Others", f"nobody else was seen on it{by}"


def _not_told(view: NightView, seen: CardSeen) -> Iterator[tuple[str, str]]:
    """On a CPU who else is on it is told elsewhere: by the share of the CPU that others used."""
    missing = {
        "how busy": seen.busy_percent, "clock": seen.clock_median_mhz, "heat": seen.hottest_c,
        "power": seen.power_mean_w, "throttling": seen.throttled_windows, "who else is on it": seen.foreign,
    }  # fmt: skip
    if view.card and view.card.kind == "cpu":
        del missing["who else is on it"]
    names = [name for name, value in missing.items() if value is None]
    if names:
        yield "Not told", ", ".join(names)


def _looking(seen: CardSeen) -> Iterator[tuple[str, str]]:
    """Where the sentinel itself fell short."""
    said = [f"{seen.gaps} gap{'' if seen.gaps == 1 else 's'} between the looks"] if seen.gaps else []
    if 0 < seen.looked_at < seen.windows:
        said.append(f"no look at all in {_of(seen.windows - seen.looked_at, seen.windows)}")
    if said or seen.errors:
        yield "Not seen", clean("; ".join([*said, *seen.errors[:MOST_NAMED]]))


# --- one experiment ---


def _pair_clocks(runs: Sequence[Measurement], allowed: float) -> Iterator[str]:
    """The run pair whose loaded clocks differ most."""
    pairs: dict[tuple[int, int, int], dict[str, float]] = {}
    for m in runs:
        if (clock := loaded_clock(m)) is not None:
            pairs.setdefault((m.launch_pair, m.run, m.prompt_seed), {})[m.arm] = clock
    found = [(1 - min(p["A"], p["B"]) / max(p["A"], p["B"]), p) for p in pairs.values() if "A" in p and "B" in p]
    drop, pair = max(found, key=lambda f: f[0], default=(0.0, {}))
    if drop > NEAR * allowed:
        lower = min(pair, key=lambda arm: pair[arm])
        yield (
            f"arm {lower}'s clock under load was {percent(drop)} lower ({number(pair['A'])} MHz in A, "
            f"{number(pair['B'])} in B); more than {percent(allowed)} voids a pair (judge.clock_drop)"
        )


def _slowed(runs: Sequence[Measurement], allowed: float) -> Iterator[str]:
    """The window of each arm that was slowed most."""
    for arm in ("A", "B"):
        told = [(share, m) for m in runs if m.arm == arm and (share := fact(m, "card_slowed_share")) is not None]
        share, m = max(told, key=lambda t: t[0], default=(0.0, None))
        if m is not None and share > NEAR * allowed:
            why = ", ".join(words_of(m, "card_throttle_reasons")) or "no reason told"
            degrees = fact(m, "card_hottest_c")
            heat = "" if degrees is None else f", {degrees:.0f} °C"
            yield (
                f"arm {arm}'s card was slowed in {percent(share)} of a window ({why}{heat}); more than "
                f"{percent(allowed)} voids a pair (judge.slowed_share)"
            )


def _strangers(runs: Sequence[Measurement]) -> Iterator[str]:
    for arm in ("A", "B"):
        mine = [m for m in runs if m.arm == arm]
        named = dict.fromkeys(who for m in mine for who in words_of(m, "card_foreign"))
        growth = max((fact(m, "card_vram_others_growth_bytes") or 0 for m in mine), default=0)
        if named:
            yield f"somebody else was on the card in arm {arm}: {', '.join(list(named)[:MOST_NAMED])}"
        elif growth > NEAR * OTHERS_GROWTH_BYTES:
            rose = f"memory that none of our engines holds rose by {gibibytes(int(growth))} in arm {arm}"
            yield f"{rose}; more than {gibibytes(OTHERS_GROWTH_BYTES)} voids a run"


def _windows(count: int) -> str:
    return f"{count} window{'' if count == 1 else 's'}"


def _of(count: int | None, all_of: int) -> str:
    return f"{count or 0} of {_windows(all_of)}"
