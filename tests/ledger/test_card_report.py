"""How the card was while it was measured, in the report: from the looks that a sentinel's window sums up.

The looks are made up, their summary is the sentinel's own (cards/window.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from cards import window
from cards.amd import detect_amd
from cards.card_state import CardState
from cards.state import read_state
from cards.tenancy import Tenancy, Tenant
from cards.window import Sample, not_told, summary
from contracts import Card, Experiment, JudgeRule, Measurement, VerdictWord
from judge import void
from ledger import card_seen as seen_module
from ledger import schema
from ledger.card_seen import card_seen
from ledger.card_words import NEAR, experiment_words, night_words
from ledger.report import render_html, render_markdown
from ledger.summary import summary as as_json
from ledger.view import NightView, Try
from tests.cards.hosts import z100
from tests.ledger.made_up import SEQS, config
from tests.ledger.nights import said

Z100 = Card(arch="gfx906", kind="amd", name="Z100", memory_bytes=32 << 30, compute_units=60, source="made up")
RULE = JudgeRule()
NOBODY = Tenancy(used_bytes=20 << 30, told=("KFD", "DRM"))
STRANGER = Tenant(pid=77, name="train.py", memory_bytes=3 << 30, use="compute")
TAKEN = Tenancy(tenants=(STRANGER,), used_bytes=24 << 30, told=("KFD",))
Arm = Literal["A", "B"]


def look(mhz: float = 1700, busy: float = 98, heat: float = 71, **other: object) -> CardState:
    """One look at a card that tells everything."""
    held = {"sclk_mhz": mhz, "busy_percent": busy, "temperatures_c": {"edge": heat - 12, "junction": heat},
            "power_w": 190, "power_cap_w": 225, "throttled": False} | other  # fmt: skip
    return CardState.model_validate(held)


def run(arm: Arm, *states: CardState, tenancy: Tenancy = NOBODY, number: int = 0) -> Measurement:
    """A run whose window the sentinel looked at so often."""
    samples = [Sample(0.5 * i, state, tenancy) for i, state in enumerate(states)]
    told = summary(samples, frozenset({4001}), 0.5)
    conditions = {**told, "card_not_told": list(not_told(told)), "sentinel_error": None}
    return Measurement(
        launch_id=f"L-{arm}", arm=arm, launch_pair=0, run=number, prompt_seed=number, window_s=30, completed=48,
        failed=0, metrics={"output_tokens_per_s": 100.0}, conditions=conditions,
    )  # fmt: skip


def a_night(*runs: Measurement, card: Card = Z100) -> NightView:
    """Of a baseline alone; 16 requests are always under way."""
    measured = tuple(schema.Measured(measurement=m, purpose="aa") for m in runs)
    return NightView(config=config(), card=card, measured=measured)


def words(view: NightView) -> dict[str, str]:
    return dict(night_words(view, card_seen(view)))


# --- the night ---


def test_a_card_that_was_well() -> None:
    view = a_night(run("A", *[look()] * 6), run("B", *[look(1650, heat=78)] * 6))
    assert words(view) == {
        "Busy": "98 % of the time",
        "Clock": "under load 1,675 MHz (the windows' median), 1,650 in the slowest window",
        "Heat": "at most 78 °C (sensor junction)",
        "Power": "mean 190 W, at most 190 W of a cap of 225 W",
        "Slowed": "never, neither by heat nor at its power cap (2 windows)",
        "Others": "nobody else was seen on it (asked: DRM, KFD)",
    }
    for text in (render_markdown(view, "n"), render_html(view, "n")):
        assert "The card meanwhile" in text and "at most 78 °C (sensor junction)" in text
    told = as_json(view)["card_meanwhile"]
    assert (told["loaded_clock_lowest_mhz"], told["hottest_sensor"], told["foreign"]) == (1650, "junction", [])
    json.dumps(told, allow_nan=False)


def test_an_idle_card_says_in_one_sentence_that_the_host_was_the_limit() -> None:
    """As one H200 was in a night of 2026-11-30: busy a fifth of the time, so no clock under load is known."""
    view = a_night(run("A", *[look(1980, busy=17)] * 6), run("B", *[look(1980, busy=21)] * 6))
    assert words(view)["Busy"] == (
        "19 % of the time (17 to 21 % in single windows): with 16 requests always under way it waited for the host, so "
        "the host was the limit and not the card"
    )
    assert words(view)["Clock"].endswith("half busy in none of 12 looks, so none under load is known")
    assert as_json(view)["card_meanwhile"]["waited_for"] == "host"


def test_where_requests_come_by_the_clock_it_may_have_waited_for_them() -> None:
    view = a_night(run("A", *[look(busy=20)] * 6))
    assert view.config
    workload = view.config.workload.model_copy(update={"concurrency": None, "rate_per_s": 2.5})
    open_loop = view.but(config=view.config.model_copy(update={"workload": workload}))
    says = "20 % of the time: the rest it waited, for the host or for requests (2.5 a second came)"
    assert words(open_loop)["Busy"] == says


def test_heat_and_a_power_cap_are_told_apart_with_the_drivers_own_words() -> None:
    cap = look(1500, throttled=True, reasons=("power: PPT0",), power_w=225)
    hot = look(1300, heat=105, throttled=True, reasons=("heat: TEMP_HOTSPOT",))
    view = a_night(
        run("A", look(), look(), cap, cap), run("B", look(), hot, hot, hot), run("A", *[look()] * 4, number=1)
    )
    assert words(view)["Slowed"] == (
        "by heat or its own protection in 1 of 3 windows; for any reason, a power cap included, in 2: heat: "
        "TEMP_HOTSPOT in up to 75 % of a window, power: PPT0 in up to 50 % of a window"
    )
    assert words(view)["Power"].endswith("at most 225 W of a cap of 225 W, reached in 1 of 3 windows")


def test_somebody_else_is_named_and_one_whom_we_cannot_see_shows_in_the_memory() -> None:
    found = words(a_night(run("A", *[look()] * 4), run("B", *[look()] * 4, tenancy=TAKEN)))
    assert found["Others"].startswith("in 1 of 2 windows: ") and "train.py" in found["Others"]
    unseen = run("A", *[look()] * 4)
    unseen = unseen.model_copy(update={"conditions": unseen.conditions | {"card_vram_others_growth_bytes": 3 << 30}})
    assert "rose by 3.0 GiB in one window: somebody whom this user cannot see came" in words(a_night(unseen))["Others"]


def test_what_nobody_told_is_one_line() -> None:
    """A virtual machine's CPU tells its frequency and how busy it is; an engine without a sentinel nothing at all."""
    cpu = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=1 << 30, compute_units=2, source="made up")
    states = [CardState(sclk_mhz=2596, busy_percent=99)] * 5
    assert words(a_night(run("A", *states, tenancy=Tenancy()), card=cpu)) == {
        "Busy": "all cores together 99 % of the time, with whatever else ran",
        "Clock": "under load 2,596 MHz (the windows' median), 2,596 in the slowest window",
        "Not told": "heat, power, throttling",
    }
    silent = run("A", *[CardState()] * 5, tenancy=Tenancy())
    assert words(a_night(silent)) == {"Not known": "it tells nothing of itself during the 1 window"}
    bare = silent.model_copy(update={"conditions": {}})
    assert words(a_night(bare, bare)) == {"Not known": "nobody looked at it during the 2 windows"}
    assert words(NightView()) == {"Not known": "nothing was measured"}
    assert "- Not known: nobody looked at it during the 2 windows" in render_markdown(a_night(bare, bare), "n")


def test_a_z100_as_the_kernel_shows_it(tmp_path: Path) -> None:
    """A folder in the kernel's formats, no card: it tells all but whether it throttles."""
    z100(tmp_path)
    card, *_ = detect_amd(tmp_path)
    found = words(a_night(run("A", *[read_state(card, tmp_path)] * 5), card=card))
    assert found["Heat"] == "at most 75 °C (sensor junction)" and found["Not told"] == "throttling"
    assert found["Power"] == "mean 225 W, at most 225 W of a cap of 300 W" and "1,319 MHz" in found["Clock"]


def test_a_sentinel_that_fell_short_is_told() -> None:
    blind = run("B").model_copy(update={"conditions": {"card_gaps": 1, "sentinel_error": "OSError: \x1b[31mgone"}})
    assert words(a_night(run("A", *[look()] * 4), blind))["Not seen"] == (
        "1 gap between the looks; no look at all in 1 of 2 windows; OSError: gone"
    )


# --- one experiment ---


def test_an_experiment_whose_card_was_the_same_for_both_arms_says_nothing() -> None:
    capped = [look(1500, throttled=True, reasons=("power: PPT0",), power_w=225)] * 6  # in both: a card's normal life
    assert experiment_words([run("A", *capped), run("B", *capped)], RULE) is None
    assert experiment_words([], RULE) is None


@pytest.mark.parametrize(
    ("b", "says"),
    [
        (lambda: run("B", *[look(1530)] * 6),
         "arm B's clock under load was 10 % lower (1,700 MHz in A, 1,530 in B); more than 15 % voids a pair "
         "(judge.clock_drop)"),
        (lambda: run("B", *[look()] * 15, look(throttled=True, reasons=("heat: TEMP_HOTSPOT",), heat=104)),
         "arm B's card was slowed in 6.2 % of a window (heat: TEMP_HOTSPOT, 104 °C); more than 10 % voids a pair "
         "(judge.slowed_share)"),
        (lambda: run("B", *[look()] * 6, tenancy=TAKEN), "somebody else was on the card in arm B: train.py"),
    ],
)  # fmt: skip
def test_what_is_near_a_limit_of_the_judge_is_one_line(b: Callable[[], Measurement], says: str) -> None:
    found = experiment_words([run("A", *[look()] * 6), b()], RULE)
    assert found and found.startswith(says)


def test_near_is_half_of_what_voids_a_pair() -> None:
    """Beside the judge's own functions: what voids is always told, and half of it not yet."""
    a = run("A", *[look(1700)] * 6)
    for mhz, is_void, is_told in ((1580, False, False), (1500, False, True), (1400, True, True)):
        b = run("B", *[look(mhz)] * 6)
        assert bool(void.card_void_reasons(a, b, RULE)) is is_void
        assert (experiment_words([a, b], RULE) is not None) is is_told
    few = run("B", *[look(1000)] * 3)
    assert void.card_void_reasons(a, few, RULE) == () and experiment_words([a, few], RULE) is None
    own = RULE.model_copy(update={"clock_drop": 0.5})  # the night file's own limit counts
    assert experiment_words([a, run("B", *[look(1400)] * 6)], own) is None
    assert 0 < NEAR < 1


def test_the_line_stands_with_its_experiment_in_every_form() -> None:
    night = a_night()
    runs = (run("A", *[look()] * 6), run("B", *[look(1530)] * 6))
    verdict = said(VerdictWord.INCONCLUSIVE, "two pairs", 1.01)
    e = Experiment(id="e01", hypothesis=SEQS, measurements=runs, verdict=verdict)
    view = night.but(tries=(Try(experiment=e, number=1, alpha=0.01, started_at="2026-11-30T01:00:00+00:00"),))
    line = "arm B's clock under load was 10 % lower"
    assert f"- the card meanwhile: {line}" in render_markdown(view, "n")
    assert "<dt>The card</dt><dd>arm B&#39;s clock under load was 10 % lower" in render_html(view, "n")
    assert as_json(view)["experiments"][0]["card_note"].startswith(line)
    assert as_json(view)["card_meanwhile"]["windows"] == 2


def test_numbers_that_two_rooms_share_are_the_same() -> None:
    assert seen_module.LEAST_LOADED == void.LEAST_LOADED
    assert seen_module.OTHERS_GROWTH_BYTES == void.OTHERS_GROWTH_BYTES
    assert seen_module.HALF_BUSY == window.LOADED_PERCENT


ODD = (float("inf"), float("nan"), 1e308, 10**400, True, "12", [1], {"a": 1}, None)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:9])
def test_a_fact_that_no_card_can_have_was_not_told(odd: object) -> None:
    """1e999 in a ledger's line is JSON, and reads as infinity."""
    good = run("A", *[look()] * 6)
    told = {k: odd for k, v in good.conditions.items() if isinstance(v, float | int) and k != "card_samples"}
    bad = good.model_copy(update={"arm": "B", "conditions": {**good.conditions, **told}})
    throttled = {"card_throttled_share": 0.5, "card_throttle_reasons": {"heat": odd, "power": 0.25}}
    hot = good.model_copy(update={"conditions": {**good.conditions, **throttled}})
    night = a_night(good, bad, hot)
    seen = card_seen(night)
    assert seen.power_max_w == 190 and seen.hottest_c == 71 and seen.loaded_clock_lowest_mhz == 1700
    assert seen.throttle_reasons == {"power": 0.25}
    text = " ".join(f"{label} {words}" for label, words in night_words(night, seen))
    assert "1,700" in text and "inf" not in text and "nan" not in text
    assert experiment_words([good, bad], RULE) is None
