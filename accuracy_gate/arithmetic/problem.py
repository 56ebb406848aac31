"""A family of word problems as data, and one problem of it. Standard library only: training imports this too.

A family is a structure of quantities, not a wording: which numbers are drawn, which single operation each step does,
in what order. Its wordings and its names and things vary and change nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from accuracy_gate.arithmetic import words

LARGEST = 9999  # of any number in a problem: four digits
# One operation in one go is learned exactly only where one side is small, or round as hours, cents and dozens are.
SMALL = 12
ROUND = frozenset({20, 24, 25, 30, 40, 50, 60, 70, 80, 90, 100})

_STEP = re.compile(r"(\w+) = (\w+) ([-+*/]) (\w+)(?:: (.+))?")
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}


class OutOfReach(Exception):
    """These numbers do not suit the family: a result is not positive, not whole, too large, or too hard in one go."""


@dataclass(frozen=True)
class Step:
    """`result = left op right`; an operand is a quantity's name or a whole number. `text` holds {} for the sum."""

    result: str
    left: str
    op: str
    right: str
    text: str = ""

    @classmethod
    def parse(cls, line: str) -> Step:
        """From "cost = n * price: The {items} cost {} dollars." Raises ValueError."""
        found = _STEP.fullmatch(line)
        if not found:
            raise ValueError(f"not a step: {line!r}; write 'cost = n * price: They cost {{}} dollars.'")
        result, left, op, right, text = found.groups()
        return cls(result, left, op, right, text or "")

    def work_out(self, values: Mapping[str, int]) -> tuple[int, int, int]:
        """(left, right, result). Raises OutOfReach."""
        left, right = (values[name] if name in values else int(name) for name in (self.left, self.right))
        if self.op == "*" and min(left, right) > SMALL and not ROUND & {left, right}:
            raise OutOfReach
        if self.op == "/" and (right == 0 or left % right or (right > SMALL and right not in ROUND)):
            raise OutOfReach
        result = _OPERATIONS[self.op](left, right)
        if not 0 < result <= LARGEST:
            raise OutOfReach
        return left, right, result


@dataclass(frozen=True)
class Family:
    """`draws`: quantity -> inclusive range. `derived`: quantities worked out from draws before the question is put, for
    totals that must divide. `steps`: 2 to 6 lines for Step.parse. Each wording is its sentences, the question last."""

    name: str
    draws: Mapping[str, tuple[int, int]]
    steps: tuple[str, ...]
    wordings: tuple[tuple[str, ...], ...]
    derived: tuple[str, ...] = ()
    parsed_steps: tuple[Step, ...] = field(init=False)
    parsed_derived: tuple[Step, ...] = field(init=False)
    given: tuple[str, ...] = field(init=False)  # the quantities that the question states, sorted by name

    def __post_init__(self) -> None:
        object.__setattr__(self, "parsed_steps", tuple(map(Step.parse, self.steps)))
        object.__setattr__(self, "parsed_derived", tuple(map(Step.parse, self.derived)))
        numbers = {*self.draws, *(step.result for step in self.parsed_derived)}
        if taken := words.SLOTS & {*numbers, *(step.result for step in self.parsed_steps)}:
            raise ValueError(f"{self.name}: {', '.join(taken)} is a word's slot, rename the quantity")
        stated = [numbers & set(re.findall(r"{(\w+)}", " ".join(wording))) for wording in self.wordings]
        if any(names != stated[0] for names in stated):
            raise ValueError(f"{self.name}: every wording must state the same quantities, got {stated}")
        object.__setattr__(self, "given", tuple(sorted(stated[0])))


@dataclass(frozen=True)
class Problem:
    """`numbers`: the stated quantities, smallest first, without distractors. `sums`: each step's (a, op, b, result)."""

    family: str
    question: str
    answer: str  # the steps, one a line, then `#### N`
    result: int
    numbers: tuple[int, ...]
    sums: tuple[tuple[int, str, int, int], ...]

    def row(self) -> dict[str, str]:
        """As a line of GSM8K's JSONL."""
        return {"question": self.question, "answer": self.answer}


def final_number(text: str) -> int | None:
    """What an answer comes to: the N of its last line, when that is `#### N`."""
    found = re.fullmatch(r"#### (-?\d+)", text.strip().rpartition("\n")[2])
    return int(found.group(1)) if found else None
