"""Problems from a seed.

Four splits. "train": the training families and stories, with nine tenths of all number combinations.
"held_out_numbers": the same ones, with the other tenth. "held_out_stories": stories whose order of events training
never sees. "held_out_families": families of another structure altogether. The last two take numbers from that other
tenth too. A combination is the stated quantities, whatever the family and their order; which tenth it is in is decided
by its checksum alone, so no seed can leak one split into another.

    python -m accuracy_gate.arithmetic.generate --split held_out_numbers --count 1000 --seed 7 > problems.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar, get_args

from accuracy_gate.arithmetic import stories, words
from accuracy_gate.arithmetic.families import HELD_OUT, TRAINING
from accuracy_gate.arithmetic.problem import Family, OutOfReach, Problem

DATA_VERSION = "sums-2"  # change it with anything that changes a problem: the model card names it
Split = Literal["train", "held_out_numbers", "held_out_stories", "held_out_families"]

HELD_OUT_SHARE = 10  # one combination in so many is held out
STORY_SHARE = 0.4  # of "train" and "held_out_numbers"
FACTS = (0, 0, 0, 1, 1, 2)  # how many facts beside the point, each as likely
MOST_TRIES = 20_000  # draws for one problem; the most unlikely family needs about 100 on average

T = TypeVar("T")


class _Dice:
    """Built on random() alone, which Python promises to keep the same for a seed in all versions."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        return low + int(self._random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        return self._random() < share

    def one_of(self, items: Sequence[T]) -> T:
        return items[int(self._random() * len(items))]


def is_held_out(numbers: Sequence[int]) -> bool:
    key = ",".join(map(str, sorted(numbers)))
    return zlib.crc32(f"{DATA_VERSION}:{key}".encode()) % HELD_OUT_SHARE == 0


def problems(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
    """`count` problems, all questions different; the first ones of a longer list are those of a shorter one.

    Fully determined by DATA_VERSION, split and seed. Raises ValueError for an unknown split.
    """
    if split not in get_args(Split):
        raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    found: dict[str, Problem] = {}
    stream = _stream(split, seed)
    while len(found) < count:
        problem = next(stream)
        found.setdefault(problem.question, problem)
    return tuple(found.values())


def _stream(split: Split, seed: int) -> Iterator[Problem]:
    dice = _Dice(f"{DATA_VERSION}/{split}/{seed}")
    story_share = {"held_out_stories": 1.0, "held_out_families": 0.0}.get(split, STORY_SHARE)
    families = HELD_OUT if split == "held_out_families" else TRAINING
    while True:
        if dice.chance(story_share):
            family = stories.family(stories.draw(dice.one_of, held_out=split == "held_out_stories"))
        else:
            family = dice.one_of(families)
        yield make(family, dice, held_out=split != "train")


def make(family: Family, dice: _Dice, held_out: bool) -> Problem:
    """One problem. Raises RuntimeError when the family's ranges hardly ever suit its steps."""
    for _ in range(MOST_TRIES):
        try:
            values = {name: dice.between(*ends) for name, ends in family.draws.items()}
            for step in family.parsed_derived:
                values[step.result] = step.work_out(values)[2]
            numbers = tuple(sorted(values[name] for name in family.given))
            if is_held_out(numbers) != held_out:
                continue
            sums = []
            for step in family.parsed_steps:
                left, right, result = step.work_out(values)
                values[step.result] = result
                sums.append((left, step.op, right, result))
        except OutOfReach:
            continue
        return _put(family, values, numbers, tuple(sums), dice)
    raise RuntimeError(f"{family.name}: {MOST_TRIES} draws and none suits; change its ranges or use `derived`")


def _put(
    family: Family, values: dict[str, int], numbers: tuple[int, ...], sums: tuple[tuple[int, str, int, int], ...],
    dice: _Dice,
) -> Problem:  # fmt: skip
    """In words. `values` holds every quantity, the steps' results too."""
    filling = _filling(dice) | {name: str(value) for name, value in values.items()}
    sentences = list(dice.one_of(family.wordings))
    pool: tuple[str, ...] = words.OTHER_FACTS
    if any("{name}" in sentence for sentence in sentences):
        pool = words.PERSONAL_FACTS + words.OTHER_FACTS
    told: list[str] = []
    for _ in range(dice.one_of(FACTS)):
        fact = dice.one_of(pool)
        if fact not in told:
            told.append(fact)
            number = str(dice.between(*words.FACT_NUMBERS))
            # After the first sentence, so that {name} is known, and before the question.
            sentences.insert(dice.between(1, len(sentences) - 1), fact.replace("{d}", number))
    question = " ".join(sentences).format_map(filling)
    lines = [
        step.text.format(f"{a}{op}{b}={c}", **filling)
        for step, (a, op, b, c) in zip(family.parsed_steps, sums, strict=True)
    ]
    result = sums[-1][3]
    return Problem(family.name, question, "\n".join([*lines, f"#### {result}"]), result, numbers, sums)


def _filling(dice: _Dice) -> dict[str, str]:
    first_is = dice.one_of(("she", "he"))
    name = dice.one_of(words.SHE if first_is == "she" else words.HE)
    other, third = name, name
    while other == name:
        other = dice.one_of(words.SHE + words.HE)
    while third in (name, other):
        third = dice.one_of(words.SHE + words.HE)
    item, items = dice.one_of(words.THINGS)
    thing, things = item, items
    while thing == item:
        thing, things = dice.one_of(words.THINGS)
    box, boxes = dice.one_of(words.HOLDERS)
    return words.PRONOUNS[first_is] | {
        "name": name, "other": other, "third": third, "item": item, "items": items, "thing": thing, "things": things,
        "box": box, "boxes": boxes, "shop": dice.one_of(words.SHOPS), "day": dice.one_of(words.DAYS),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Print problems as GSM8K's JSONL: question and answer.")
    parser.add_argument("--split", choices=get_args(Split), default="held_out_numbers")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    for problem in problems(asked.split, asked.count, asked.seed):
        print(json.dumps(problem.row(), ensure_ascii=False))


if __name__ == "__main__":
    main()
