"""PLACEHOLDER until written."""
from __future__ import annotations
from agents.research.dossier import Dossier
from agents.research.shares import Estimate
def estimate(dossier: Dossier) -> Estimate | None:
    return None
