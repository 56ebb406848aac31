"""Are the answers still right? Gates said to a person: a line a check, a row a gate, once what they could see. Pure.

A night runs the same few checks on every experiment, and most pass. What a reader wants of those is the one that was
farthest from equal; each gate's own row, and what it could not have seen, are further down in the report. Nothing that
a gate wrote is left out: its power is told where it differs, and once where it is the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from contracts import Frozen, GateResult
from ledger.words import clean

_ORDER = ("fail", "inconclusive", "pass", "not_run")  # what matters most first
_PHASE = re.compile(r"^(quick|full): ")


class Line(Frozen):
    """One check with one outcome: `mark` is the outcome, `text` starts with the check's name."""

    mark: str
    text: str


class Row(Frozen):
    """One gate. `over`: what it rests on, the first sentence of its power; "" where it told none."""

    whose: str
    check: str
    mode: str
    outcome: str
    reason: str
    over: str
    count: int = 1  # equal ones of one experiment


class Sight(Frozen):
    """What a check could see: `always` in every mode, then each mode's own."""

    check: str
    always: str
    own: tuple[tuple[str, str], ...]  # modes, text


def lines(gates: Sequence[GateResult]) -> list[Line]:
    """A failed or undecided gate has a line of its own; those of one check that passed share one, which tells the gate
    that was farthest from equal (the largest `ratio` of its statistic)."""
    told: list[Line] = []
    for outcome in _ORDER:
        of = [gate for gate in gates if gate.outcome == outcome]
        if outcome in ("fail", "inconclusive"):
            told += [Line(mark=outcome, text=f"{g.check}{_brackets(_short(g.mode))}: {clean(g.reason)}") for g in of]
            continue
        for check in dict.fromkeys(gate.check for gate in of):
            same = [gate for gate in of if gate.check == check]
            farthest = max(same, key=_ratio)
            which = f" {len(same)} times, farthest from equal{_brackets(_short(farthest.mode))}"
            which = which if len(same) > 1 else ""
            told.append(Line(mark=outcome, text=f"{check}{which}: {clean(farthest.reason)}{_allowed(farthest)}"))
    return told


def tally(gates: Sequence[GateResult]) -> str:
    """ "6 checks passed, none failed, 1 was not run." """
    count = Counter(gate.outcome for gate in gates)
    said = [f"{count['pass']} check{'' if count['pass'] == 1 else 's'} passed", f"{count['fail'] or 'none'} failed"]
    said += [f"{count['inconclusive']} undecided"] if count["inconclusive"] else []
    said += [f"{count['not_run']} {'was' if count['not_run'] == 1 else 'were'} not run"] if count["not_run"] else []
    return ", ".join(said) + "."


def rows(gates: Sequence[GateResult], whose: str) -> list[Row]:
    """Every gate; those that say the same, word for word, are one row with a count."""
    found: list[Row] = []
    for gate in gates:
        row = Row(
            whose=whose, check=gate.check, mode=clean(gate.mode), outcome=gate.outcome, reason=clean(gate.reason),
            over=_split(gate.power)[0],
        )  # fmt: skip
        same = next((i for i, other in enumerate(found) if other.model_copy(update={"count": 1}) == row), None)
        if same is None:
            found.append(row)
        else:
            found[same] = row.model_copy(update={"count": found[same].count + 1})
    return found


def sights(gates: Iterable[GateResult]) -> list[Sight]:
    """What each check could have seen, every sentence once: first what holds in all of its modes."""
    by_check: dict[str, dict[str, list[str]]] = {}  # check, then text, then its modes
    for gate in gates:
        if text := _split(gate.power)[1]:
            modes = by_check.setdefault(gate.check, {}).setdefault(text, [])
            if (mode := _PHASE.sub("", _short(gate.mode))) not in modes:
                modes.append(mode)
    told = []
    for check, texts in by_check.items():
        parts = [text.split(". ") for text in texts]
        always = [sentence for sentence in parts[0] if all(sentence in other for other in parts)]
        own = [
            ("; ".join(filter(None, modes)), ". ".join(rest))
            for modes, said in zip(texts.values(), parts, strict=True)
            if (rest := [sentence for sentence in said if sentence not in always])
        ]
        told.append(Sight(check=check, always=". ".join(always), own=tuple(own)))
    return told


def _split(power: str | None) -> tuple[str, str]:
    """What the gate rests on ("480 positions ..."), and what it could see; "" where it told only the other."""
    over, _, sight = clean(power or "").partition(". ")
    return (over, sight) if sight else ("", over)


def _short(mode: str) -> str:
    """`full: concurrent, 32 at a time; exact, and near-ties pass` without what follows the first semicolon."""
    return clean(mode).partition(";")[0]


def _brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _allowed(gate: GateResult) -> str:
    """Up to what the leads may move, where the reason says how far they moved."""
    limits = gate.statistic.get("bulk_limits")
    if not isinstance(limits, list) or not limits or "times tonight's rounding" not in gate.reason:
        return ""
    return f"; up to {limits[0]} times pass"


def _ratio(gate: GateResult) -> float:
    ratio = gate.statistic.get("ratio")
    return float(ratio) if isinstance(ratio, int | float) else 0.0
