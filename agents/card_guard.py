"""Nobody else on the card when an engine is started, and its memory back before the next one.

`refuse` ends the night with the name of who is there, `wait` waits and says so in the ledger when it begins and when it
ends. Nobody's process is ever ended here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from agents.command import Problem
from cards.detect import HERE, detect
from cards.right_card import wrong_card
from cards.tenancy import Tenancy, busy, held_for_work, size, tenants
from contracts import Card, CardRule

# How near to what it was before the first launch the card's memory must come. Judged, not measured: far less than any
# engine that serves a model holds, and room for what a driver keeps for itself once somebody has used it.
TOLERANCE_BYTES = 256 << 20
POLL_S = 0.25  # while memory comes back, which takes moments, and for hearing that the night is to end
WAIT_POLL_S = 10.0  # while somebody else works
FIX = "end that work, choose another card, or set card.when_busy: wait in the night file"


class CardBusy(Problem):
    """Somebody else is on the card, or its memory did not come back. One line that names the fix."""


def in_use(card: Card, own_pids: Collection[int] = (), root: Path = HERE) -> str | None:
    """Who is on the card besides us, in one line with its name; None when nobody is."""
    found = busy(tenants(card, root), own_pids)
    return f"{card.name} is in use: {found}" if found else None


class CardGuard:
    """Asked before every launch and told after every stop. A CPU has no tenants of this kind (judge.foreign_cpu_share
    is its rule)."""

    def __init__(
        self,
        card: Card,
        rule: CardRule,
        stop_s: float,
        warn: Callable[[str], None],
        check: Callable[[], None],
        left: Callable[[], float],
        look: Callable[[Card], Tenancy] = tenants,
        see: Callable[[], Sequence[Card]] = detect,
    ) -> None:
        """`check` raises when the night is interrupted; `left` gives the seconds that the night still has."""
        self._card, self._rule, self._stop_s = card, rule, stop_s
        self._warn, self._check, self._left, self._look, self._see = warn, check, left, look, see
        self._idle_bytes: int | None = None  # of the card's memory, in use before the first launch

    def before_launch(self, own_pids: Collection[int]) -> None:
        """Returns when the card is free for one more engine of ours; `own_pids` are those of the engines that are up.
        Raises CardBusy at once or after the wait, as the night file says; whatever `check` raises."""
        if self._card.kind == "cpu":
            return
        reason = self._in_the_way(own_pids)
        if reason is None:
            return
        if self._rule.when_busy == "refuse":
            raise CardBusy(f"{reason}: {FIX}; then go on with --resume")
        most = min(self._rule.wait_minutes * 60, max(0.0, self._left()))
        self._warn(f"waiting for the card, at most {most / 60:.0f} minutes (card.wait_minutes): {reason}")
        began = time.monotonic()
        while (waited := time.monotonic() - began) < most:
            self._pause(min(WAIT_POLL_S, most - waited))
            now = self._in_the_way(own_pids)
            if now is None:
                self._warn(f"the card is free after {(time.monotonic() - began) / 60:.1f} minutes; the night goes on")
                return
            reason = now
        raise CardBusy(f"after {most / 60:.0f} minutes {reason}: {FIX}, or a longer card.wait_minutes; then --resume")

    def _pause(self, seconds: float) -> None:
        """Python goes on with a sleep that a signal interrupted. Who asks a night to end may kill it 10 s later
        (docker stop), so it is heard within a moment."""
        end = time.monotonic() + seconds
        self._check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
            self._check()

    def after_stop(self) -> None:
        """None of our engines is up any more: waits until the card's memory is what it was before the first launch,
        at most limits.engine_stop_s, and warns when it is not. With a twin still up nothing can be said, so this is
        asked when both are down."""
        if self._card.kind == "cpu" or self._idle_bytes is None:
            return
        deadline = time.monotonic() + self._stop_s
        while True:
            tenancy = self._look(self._card)
            missing = self._missing(tenancy)
            if missing is None:
                return
            if time.monotonic() >= deadline:
                break
            self._check()
            time.sleep(POLL_S)
        who = busy(tenancy, ()) or "no process that this user can see holds it"
        self._warn(f"{missing} within {self._stop_s:.0f} s after our engine ended (limits.engine_stop_s): {who}")

    def wrong_card(self, engine_pids: Collection[int]) -> str | None:
        """Why an engine that is ready is not on the night's card, or None: it is, or nobody can say."""
        if self._card.kind == "cpu" or self._card.place is None:
            return None
        held: dict[str, list[int]] = {}
        for card in self._see():
            if card.place is not None:
                held[card.place] = [t.pid for t in self._look(card).tenants if t.here and t.memory_bytes]
        return wrong_card(self._card, held, engine_pids)

    def _in_the_way(self, own_pids: Collection[int]) -> str | None:
        tenancy = self._look(self._card)
        found = busy(tenancy, own_pids)
        if found:
            return f"{self._card.name} is in use: {found}"
        if own_pids:
            return None  # what our own engines hold moves; nothing can be said about the rest
        if self._idle_bytes is None:
            self._idle_bytes = held_for_work(tenancy)
        return self._missing(tenancy)

    def _missing(self, tenancy: Tenancy) -> str | None:
        held = held_for_work(tenancy)
        if held is None or self._idle_bytes is None or held <= self._idle_bytes + TOLERANCE_BYTES:
            return None
        return (
            f"{size(held - self._idle_bytes)} of {self._card.name}'s memory did not come back "
            f"({size(held)} are in use, {size(self._idle_bytes)} were before the first launch)"
        )
