"""A guard of a CPU, which has no tenants: for tests of engines that are not about who else is on the card."""

from __future__ import annotations

from agents.card_guard import CardGuard
from contracts import Card, CardRule

CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=1 << 40, compute_units=2, source="test")
FREE = CardGuard(CPU, CardRule(), 5, print, lambda: None, lambda: 0.0)
