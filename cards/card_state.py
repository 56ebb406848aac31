"""What can be known of a card at one moment: the noun that every reader of a card's state fills."""

from __future__ import annotations

from contracts import Frozen


class CardState(Frozen):
    """One moment. MHz, watts, degrees Celsius by sensor ("edge", "junction", "mem", "gpu"), bytes, percent.

    `throttled` is None where the driver says neither yes nor no. `reasons` of a yes begin with "heat:", "power:",
    "current:", "external:", "other:" or "unnamed:", then the driver's own word. A power cap that is reached is one of
    them, because it lowers the clocks; an idle card's low clocks are not.
    `throttle_counters` are running totals of limiters, for cards that say no more (MI300, MI350): two readings'
    difference says what held the clocks down between them, as a share of accumulation_counter's difference.
    """

    sclk_mhz: float | None = None  # the cores' clock
    mclk_mhz: float | None = None  # the memory's clock
    power_w: float | None = None
    power_cap_w: float | None = None
    temperatures_c: dict[str, float] = {}
    throttled: bool | None = None
    reasons: tuple[str, ...] = ()
    throttle_counters: dict[str, int] = {}
    vram_used_bytes: int | None = None
    busy_percent: float | None = None

    @property
    def hottest_c(self) -> float | None:
        return max(self.temperatures_c.values(), default=None)
