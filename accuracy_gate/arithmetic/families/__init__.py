"""The families by subject. TRAINING and HELD_OUT share none."""

from __future__ import annotations

from accuracy_gate.arithmetic.families import groups, held_out, measures, money, people, rates

TRAINING = (*money.FAMILIES, *groups.FAMILIES, *people.FAMILIES, *rates.FAMILIES, *measures.FAMILIES)
HELD_OUT = held_out.FAMILIES
