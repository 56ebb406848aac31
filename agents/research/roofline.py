"""What the card's peaks allow a model to do."""

from __future__ import annotations

from agents.research.dossier import Dossier
from contracts import Frozen


class Estimate(Frozen):
    """What the roofline expects of one request's share of the engine's time, seconds, and of its split by category."""

    prefill_s: float
    decode_s: float
    prefill: dict[str, float]
    decode: dict[str, float]
    words: str  # "estimated: roofline of gfx950 (AMD Instinct MI355X)"


def estimate(dossier: Dossier) -> Estimate | None:
    """None without a model's shapes or a card's sheet."""
    return None  # TODO: to be written
