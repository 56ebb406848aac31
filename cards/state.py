"""What a card is doing now: clocks, power, heat, throttling, memory in use.

One reading of small files (AMD) or of NVML (NVIDIA). Nothing here initialises HIP or CUDA, and nothing is invented:
what the driver does not tell is None.
"""

from __future__ import annotations

from pathlib import Path

from contracts import Card, Frozen

HERE = Path("/")


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


def read_state(card: Card, root: Path = HERE) -> CardState:
    """The card's state now. Never raises: a card that has gone answers with None everywhere. Another root is a recorded
    /sys (NVML, which can only speak of this machine, is then not asked). A CPU's is empty."""
    if card.kind == "amd":  # imported here, because the readers make a CardState
        from cards.amd_state import read_amd

        return read_amd(card, root)
    if card.kind == "nvidia" and root == HERE:
        from cards.nvidia import read_nvidia

        return read_nvidia(card)
    return CardState()
