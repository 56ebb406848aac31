"""Before every launch and after every stop, on a fixture card in the kernel's documented format. No AMD card was at
hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents import card_guard
from agents.card_guard import CardBusy, CardGuard
from cards.tenancy import Tenancy, Tenant, tenants
from contracts import Card, CardRule
from tests.cards.tenants import GIB, MIB, computing, mi50, process, used

CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=GIB, compute_units=2, source="test")


class Clock:
    """Stands in for time: sleeping is what makes it pass, and things happen at their minute."""

    def __init__(self) -> None:
        self.now, self.plan = 0.0, list[tuple[float, Callable[[], None]]]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at, happens in [p for p in self.plan if p[0] <= self.now]:
            self.plan.remove((at, happens))
            happens()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(card_guard, "time", clock)
    return clock


REFUSE, WAIT = CardRule(), CardRule(when_busy="wait", wait_minutes=20)


def guard(
    root: Path, card: Card, said: list[str], rule: CardRule = REFUSE, left: float = 36_000,
    check: Callable[[], None] = lambda: None,
) -> CardGuard:  # fmt: skip
    return CardGuard(card, rule, 30, said.append, check, lambda: left, look=lambda card: tenants(card, root))


def leaves(root: Path, pid: int) -> None:
    """The process has ended: neither KFD nor /proc has it any more."""
    for folder in (root / f"proc/{pid}", root / f"sys/class/kfd/kfd/proc/{pid}"):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        folder.rmdir()
    used(root, 20 * MIB)


def test_refusing_names_who_is_there_and_the_fix(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 4242, "train.py", 12 * GIB)
    said: list[str] = []
    with pytest.raises(CardBusy) as refused:
        guard(tmp_path, card, said).before_launch(())
    assert str(refused.value) == (
        "AMD Instinct MI50 is in use: train.py (pid 4242) holds 12.0 GiB of it: end that work, choose another card, or "
        "set card.when_busy: wait in the night file; then go on with --resume"
    )
    assert said == []


def test_the_twin_that_is_up_is_ours(tmp_path: Path) -> None:
    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 77, "VLLM", 12 * GIB)
    guard(tmp_path, card, []).before_launch({77})


def test_waiting_says_when_it_begins_and_ends(tmp_path: Path, clock: Clock) -> None:
    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 4242, "train.py", 12 * GIB)
    clock.plan.append((180, lambda: leaves(tmp_path, 4242)))
    said: list[str] = []
    guard(tmp_path, card, said, WAIT).before_launch(())
    assert said == [
        "waiting for the card, at most 20 minutes (card.wait_minutes): AMD Instinct MI50 is in use: train.py (pid "
        "4242) holds 12.0 GiB of it",
        "the card is free after 3.0 minutes; the night goes on",
    ]


@pytest.mark.parametrize(("left", "minutes"), [(36_000.0, 20), (300.0, 5), (-5.0, 0)])
def test_no_wait_is_longer_than_its_limit_or_the_night(tmp_path: Path, clock: Clock, left: float, minutes: int) -> None:
    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 4242, "train.py", 12 * GIB)
    with pytest.raises(CardBusy, match=f"after {minutes} minutes AMD Instinct MI50 is in use: train.py"):
        guard(tmp_path, card, [], WAIT, left).before_launch(())
    assert clock.now == pytest.approx(60 * minutes)


def test_a_wait_can_be_interrupted(tmp_path: Path, clock: Clock) -> None:
    class Stop(KeyboardInterrupt):
        pass

    def check() -> None:
        if clock.now > 25:
            raise Stop

    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 4242, "train.py", 12 * GIB)
    with pytest.raises(Stop):
        guard(tmp_path, card, [], WAIT, check=check).before_launch(())
    assert clock.now < 26  # not at the next look at the card, which is 10 s away


def test_an_end_that_is_asked_for_in_the_last_moment_of_a_wait_is_no_busy_card(tmp_path: Path, clock: Clock) -> None:
    class Stop(KeyboardInterrupt):
        pass

    def check() -> None:
        if clock.now >= 20 * 60:
            raise Stop

    card = mi50(tmp_path, used_bytes=12 * GIB)
    computing(tmp_path, 4242, "train.py", 12 * GIB)
    with pytest.raises(Stop):
        guard(tmp_path, card, [], WAIT, check=check).before_launch(())


# --- memory that comes back, or does not --------------------------------------------------------------------------


def test_memory_that_comes_back_late_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    card = mi50(tmp_path, used_bytes=300 * MIB)
    said: list[str] = []
    watched = guard(tmp_path, card, said)
    watched.before_launch(())
    used(tmp_path, 20 * GIB)
    clock.plan.append((4, lambda: used(tmp_path, 500 * MIB)))  # within the tolerance
    watched.after_stop()
    assert (said, 4 <= clock.now < 5) == ([], True)
    watched.before_launch(())


def test_memory_that_does_not_come_back_is_a_warning_and_then_a_refusal(tmp_path: Path, clock: Clock) -> None:
    card = mi50(tmp_path, used_bytes=300 * MIB)
    said: list[str] = []
    watched = guard(tmp_path, card, said)
    watched.before_launch(())
    used(tmp_path, 300 * MIB + 512 * MIB)
    watched.after_stop()
    assert clock.now == pytest.approx(30, abs=1)
    (warning,) = said
    assert warning == (
        "0.5 GiB of AMD Instinct MI50's memory did not come back (0.8 GiB are in use, 0.3 GiB were before the first "
        "launch) within 30 s after our engine ended (limits.engine_stop_s): no process that this user can see holds it"
    )
    with pytest.raises(CardBusy, match="0.5 GiB of AMD Instinct MI50's memory did not come back"):
        watched.before_launch(())


def test_windows_on_a_display_may_come_and_go(tmp_path: Path) -> None:
    from tests.cards.tenants import drm

    card = mi50(tmp_path, used_bytes=300 * MIB)
    watched = guard(tmp_path, card, [])
    watched.before_launch(())
    process(tmp_path, 900, "Xorg")
    drm(tmp_path, 900, 12, f"{700 * 1024} KiB", device="/dev/dri/card1")
    used(tmp_path, 1000 * MIB)
    watched.after_stop()
    watched.before_launch(())


def test_a_card_that_does_not_say_how_much_is_used_stops_nobody() -> None:
    said: list[str] = []
    blind = CardGuard(
        mi50_of_nothing(), CardRule(), 30, said.append, lambda: None, lambda: 0.0, look=lambda _card: Tenancy()
    )
    blind.before_launch(())
    blind.after_stop()
    assert said == []


def mi50_of_nothing() -> Card:
    return CPU.model_copy(update={"kind": "amd", "name": "a card that tells nothing"})


def test_a_cpu_is_never_looked_at() -> None:
    def look(_card: Card) -> Tenancy:
        raise AssertionError("a CPU has no tenants of this kind")

    watched = CardGuard(CPU, CardRule(), 30, print, lambda: None, lambda: 0.0, look=look)
    watched.before_launch(())
    watched.after_stop()


# --- the engine is on the night's card ---


def test_an_engine_on_another_card_is_told_with_both(tmp_path: Path) -> None:
    """Two cards; the stand-in look says whose memory each process holds."""
    given = mi50(tmp_path)
    other = given.model_copy(update={"pci_address": "0000:26:00.0", "node": 2})
    held = {
        given.place: Tenancy(),
        other.place: Tenancy(tenants=(Tenant(pid=70, name="v", memory_bytes=GIB, use="compute"),)),
    }
    two = CardGuard(
        given, REFUSE, 30, print, lambda: None, lambda: 0.0, lambda c: held[c.place], lambda: (given, other)
    )
    wrong = two.wrong_card([70, 71])
    assert wrong is not None and "was given 0000:03:00.0" in wrong and "runs on 0000:26:00.0" in wrong
    assert two.wrong_card([80]) is None  # nobody can say: it holds no memory of either yet
    swapped = CardGuard(
        other, REFUSE, 30, print, lambda: None, lambda: 0.0, lambda c: held[c.place], lambda: (given, other)
    )
    assert swapped.wrong_card([70, 71]) is None
