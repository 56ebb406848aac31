"""Families put together from events: a pile of things, and what happens to it one event after the other.

A structure is a beginning, one to four events and a question, with two to six steps in all. There are thousands; one
in HELD_OUT_SHARE, by its checksum alone, is kept from training. So the score on those says whether the model can put
known steps together in an order that it has not seen.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from accuracy_gate.arithmetic.problem import Family

HELD_OUT_SHARE = 8
FEWEST_STEPS, MOST_STEPS = 2, 6


class Part(NamedTuple):
    """`said`: two ways to tell it. `steps` lead from the pile `x` to the pile `y`; without steps nothing changes."""

    draws: dict[str, tuple[int, int]]
    said: tuple[str, str]
    steps: tuple[str, ...]


BEGINNINGS = {
    "has": Part({"y": (10, 600)}, ("{name} has {y} {items}.", "At first {name} has {y} {items}."), ()),
    "boxes": Part(
        {"b": (2, 12), "n": (3, 60)},
        ("{name} has {b} {boxes} of {n} {items}.", "At first {name} has {b} {boxes} with {n} {items} in each."),
        ("y = b * n: {name} starts with {} {items}.",),
    ),
}
EVENTS = {
    "buy": Part(
        {"n": (2, 200)},
        ("{He} buys {n} more.", "On {day} {he} buys another {n} {items}."),
        ("y = x + n: After buying {he} has {}.",),
    ),
    "find": Part(
        {"n": (2, 60)},
        ("Then {he} finds {n} {items}.", "{He} finds {n} under the bed."),
        ("y = x + n: After finding {he} has {}.",),
    ),
    "lose": Part(
        {"n": (2, 60)},
        ("{He} loses {n} of them.", "Then {n} {items} are lost."),
        ("y = x - n: After losing {he} has {}.",),
    ),
    "give": Part(
        {"n": (2, 150)},
        ("{He} gives {n} to {other}.", "{other} is given {n} of the {items}."),
        ("y = x - n: After giving {he} has {}.",),
    ),
    "double": Part(
        {},
        ("Then the number of {items} doubles.", "{other} gives {him} as many as {he} has then."),
        ("y = 2 * x: Doubled it is {}.",),
    ),
    "half": Part(
        {},
        ("{He} gives half of what {he} has to {third}.", "Half of the {items} are sold."),
        ("y = x / 2: Half of it is {}.",),
    ),
    "friends": Part(
        {"c": (2, 30), "d": (2, 12)},
        ("{He} gives {c} to each of {d} friends.", "Each of {d} friends gets {c} {items}."),
        ("s = d * c: The friends get {}.", "y = x - s: After the friends {he} has {}."),
    ),
    "packs": Part(
        {"c": (2, 30), "d": (2, 12)},
        ("{He} buys {d} packs of {c}.", "Then {d} packs with {c} {items} each arrive."),
        ("s = d * c: The packs hold {}.", "y = x + s: After the packs {he} has {}."),
    ),
}
QUESTIONS = {
    "count": Part({}, ("How many {items} does {he} have in the end?", "How many {items} are left for {him}?"), ()),
    "sell": Part(
        {"p": (2, 9)},
        ("{He} sells all for ${p} each. How many dollars does {he} get?", "At ${p} each, what are they all worth?"),
        ("y = x * p: They bring {} dollars.",),
    ),
    "share": Part(
        {"k": (2, 9)},
        (
            "{k} children share them equally. How many does each get?",
            "How many does each of {k} children get in a fair split?",
        ),
        ("y = x / k: Each child gets {}.",),
    ),
    "goal": Part(
        {"g": (50, 2000)},
        ("How many more does {he} need to have {g}?", "{He} wants {g} in all. How many are missing?"),
        ("y = g - x: {} are missing.",),
    ),
}

Structure = tuple[str, ...]


def parts(structure: Structure) -> tuple[Part, ...]:
    first, *middle, last = structure
    return (BEGINNINGS[first], *(EVENTS[event] for event in middle), QUESTIONS[last])


def is_held_out(structure: Structure) -> bool:
    return zlib.crc32(("story:" + "-".join(structure)).encode()) % HELD_OUT_SHARE == 0


def draw(one_of: Callable[[tuple[str, ...]], str], held_out: bool) -> Structure:
    """A structure of the wanted kind; `one_of` picks an item."""
    while True:
        count = int(one_of(("1", "2", "2", "3", "3", "4")))
        events = (one_of(tuple(EVENTS)) for _ in range(count))
        structure = (one_of(tuple(BEGINNINGS)), *events, one_of(tuple(QUESTIONS)))
        steps = sum(len(part.steps) for part in parts(structure))
        if FEWEST_STEPS <= steps <= MOST_STEPS and is_held_out(structure) == held_out:
            return structure


@cache
def family(structure: Structure) -> Family:
    """Each part's quantities get its number: n becomes n2, the pile after part 2 is y2, the pile before it y1."""
    draws: dict[str, tuple[int, int]] = {}
    steps: list[str] = []
    told: list[tuple[str, str]] = []
    pile = 0  # the last part that changed it
    for number, part in enumerate(parts(structure)):
        own = {name: f"{name}{number}" for name in ("y", "n", "b", "c", "d", "s", "p", "k", "g")} | {"x": f"y{pile}"}

        def renamed(text: str, own: dict[str, str] = own) -> str:
            return re.sub(r"\b[a-z]\b(?=})", lambda found: own.get(found[0], found[0]), text)

        draws |= {own[name]: ends for name, ends in part.draws.items()}
        for step in part.steps:
            sum_, text = step.split(": ", 1)
            steps.append(" ".join(own.get(word, word) for word in sum_.split()) + ": " + renamed(text))
        if part.steps:
            pile = number
        told.append((renamed(part.said[0]), renamed(part.said[1])))
    wordings = [tuple(pair[pick(number)] for number, pair in enumerate(told)) for pick in _PICKS]
    return Family("story:" + "-".join(structure), draws, tuple(steps), tuple(wordings))


# Which of the two ways each sentence takes: the first, the second, or turn about.
_PICKS: tuple[Callable[[int], int], ...] = (lambda _: 0, lambda _: 1, lambda number: number % 2)
