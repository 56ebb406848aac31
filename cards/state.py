"""What a card is doing now: clocks, power, heat, throttling, memory in use.

One reading of small files (AMD) or of NVML (NVIDIA). Nothing here initialises HIP or CUDA, and nothing is invented:
what the driver does not tell is None.
"""

from __future__ import annotations

from pathlib import Path

from cards.amd_state import read_amd
from cards.card_state import CardState
from cards.nvidia import read_nvidia
from contracts import Card

HERE = Path("/")


def read_state(card: Card, root: Path = HERE) -> CardState:
    """The card's state now. Never raises: a card that has gone answers with None everywhere. Another root is a recorded
    /sys (NVML, which can only speak of this machine, is then not asked). A CPU's is empty."""
    if card.kind == "amd":
        return read_amd(card, root)
    if card.kind == "nvidia" and root == HERE:
        return read_nvidia(card)
    return CardState()
