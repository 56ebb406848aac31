"""The problems: right, reproducible, and kept apart."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest

from accuracy_gate.arithmetic import stories
from accuracy_gate.arithmetic.families import HELD_OUT, TRAINING
from accuracy_gate.arithmetic.generate import Split, is_held_out, problems
from accuracy_gate.arithmetic.problem import LARGEST, Family, OutOfReach, Problem, Step, final_number

ROOT = Path(__file__).resolve().parents[2]
SPLITS: tuple[Split, ...] = get_args(Split)
# Numbers that steps may use although no question states them: twice, a third, a dozen, a week, an hour, a hundredth.
CONSTANTS = {1, 2, 3, 4, 7, 12, 25, 60, 100}


@pytest.fixture(scope="module")
def made() -> dict[Split, tuple[Problem, ...]]:
    return {split: problems(split, 2500, seed=11) for split in SPLITS}


def test_one_problem() -> None:
    problem = problems("train", 1, seed=3)[0]
    assert set(problem.row()) == {"question", "answer"}
    assert problem.answer.splitlines()[-1] == f"#### {problem.result}"
    assert final_number(problem.answer) == problem.result


@pytest.mark.parametrize("split", SPLITS)
def test_same_seed_same_problems_and_a_longer_list_only_adds(split: Split) -> None:
    assert problems(split, 50, seed=5) == problems(split, 200, seed=5)[:50]
    assert problems(split, 50, seed=5) != problems(split, 50, seed=6)


def test_another_process_makes_the_same() -> None:
    """Strings hash differently in each process; nothing here may depend on that."""
    code = "from accuracy_gate.arithmetic.generate import problems; print(hash('a')); print(problems('train', 40, 5))"
    seen = [
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert seen[0].splitlines()[1] == seen[1].splitlines()[1] == str(problems("train", 40, 5))


@pytest.mark.parametrize(
    ("split", "digest"),
    [
        ("train", "9ce1e3a519f4f890"),
        ("held_out_numbers", "2699f95a9c137c2d"),
        ("held_out_stories", "d4fed9a79502da7e"),
        ("held_out_families", "76646bf3c2078572"),
    ],
)
def test_the_data_is_what_the_model_was_trained_on(split: Split, digest: str) -> None:
    """When this fails, DATA_VERSION must change and the model be trained again."""
    text = "\n".join(json.dumps(problem.row()) for problem in problems(split, 200, seed=1))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_right(made: dict[Split, tuple[Problem, ...]], split: Split) -> None:
    """Read from the answer's text alone, in exact fractions: each sum holds, and each operand is known by then."""
    for problem in made[split]:
        *lines, last = problem.answer.splitlines()
        known = {Fraction(number) for number in re.findall(r"\d+", problem.question)} | set(map(Fraction, CONSTANTS))
        for line in lines:
            found = re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", line)
            assert len(found) == 1, line
            a, op, b, c = found[0]
            left, right, result = Fraction(a), Fraction(b), Fraction(c)
            assert {left, right} <= known, (problem.question, line)
            assert {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[op] == result, line
            known.add(result)
        assert last == f"#### {c}"
        assert 0 < problem.result <= LARGEST


@pytest.mark.parametrize("split", SPLITS)
def test_questions_are_whole_and_different(made: dict[Split, tuple[Problem, ...]], split: Split) -> None:
    for problem in made[split]:
        stated = [int(number) for number in re.findall(r"\d+", problem.question)]
        assert set(problem.numbers) <= set(stated)
        assert not set("{}") & set(problem.question + problem.answer)
        assert problem.question.endswith("?")
    assert len({problem.question for problem in made[split]}) == 2500


def test_no_step_gives_its_result_away(made: dict[Split, tuple[Problem, ...]]) -> None:
    """A quantity named as a word's slot once put a result into the question. The final result may only be there by
    chance, as one of the stated numbers."""
    for problem in made["train"]:
        spoken = re.sub(r"\d+", "#", problem.question)
        assert spoken.count("#") <= len(problem.numbers) + 3  # two facts beside the point, and one number said twice


def test_steps_and_families(made: dict[Split, tuple[Problem, ...]]) -> None:
    assert len(TRAINING) >= 30 and len(HELD_OUT) >= 5
    names = [family.name for family in (*TRAINING, *HELD_OUT)]
    assert len(names) == len(set(names))
    for split in SPLITS:
        assert {len(problem.sums) for problem in made[split]} <= {2, 3, 4, 5, 6}
    assert {len(problem.sums) for problem in made["train"]} == {2, 3, 4, 5, 6}
    assert {family.name for family in TRAINING} <= {problem.family for problem in made["train"]}
    assert all(len(family.wordings) >= 2 for family in (*TRAINING, *HELD_OUT))


def formula(family: Family) -> str:
    """The last result as one expression of anonymous quantities; the sides of + and * sorted. Words play no part."""
    steps = {step.result: step for step in family.parsed_steps}

    def written(name: str) -> str:
        if name not in steps:
            return name if name.isdigit() else "g"
        step = steps[name]
        sides = [written(step.left), written(step.right)]
        return f"({step.op.join(sorted(sides) if step.op in '+*' else sides)})"

    return written(family.parsed_steps[-1].result)


def test_families_differ_in_more_than_words() -> None:
    """Nearly each has a formula of its own; the numbers here are those that docs/arithmetic_model.md states."""
    trained = {formula(family) for family in TRAINING}
    assert len(trained) == 53
    assert sum(formula(family) not in trained for family in HELD_OUT) == 6


def test_the_splits_share_no_numbers(made: dict[Split, tuple[Problem, ...]]) -> None:
    trained = {problem.numbers for problem in made["train"]}
    for split in SPLITS[1:]:
        kept = {problem.numbers for problem in made[split]}
        assert not trained & kept
        assert all(is_held_out(numbers) for numbers in kept)
    assert not any(map(is_held_out, trained))


def test_the_order_of_numbers_does_not_matter_to_the_split() -> None:
    assert all(is_held_out((a, 7, 30)) == is_held_out((30, a, 7)) for a in range(200))
    share = sum(is_held_out((a, b)) for a in range(100) for b in range(a)) / 4950
    assert 0.08 < share < 0.12


def test_the_splits_share_no_held_out_family(made: dict[Split, tuple[Problem, ...]]) -> None:
    trained = {problem.family for problem in (*made["train"], *made["held_out_numbers"])}
    for split in ("held_out_stories", "held_out_families"):
        assert not trained & {problem.family for problem in made[split]}


def test_one_story() -> None:
    family = stories.family(("boxes", "half", "friends", "sell"))
    assert family.name == "story:boxes-half-friends-sell"
    assert [f"{s.left} {s.op} {s.right}" for s in family.parsed_steps] == [
        "b0 * n0", "y0 / 2", "d2 * c2", "y1 - s2", "y2 * p3",
    ]  # fmt: skip


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="held_out_numbers"):
        problems("test", 1, 1)  # type: ignore[arg-type]


def test_what_is_out_of_reach() -> None:
    for line, values in (
        ("c = a - b", {"a": 3, "b": 3}),  # nothing left
        ("c = a / b", {"a": 7, "b": 2}),  # not whole
        ("c = a / b", {"a": 7, "b": 0}),
        ("c = a / b", {"a": 170, "b": 17}),  # long division
        ("c = a * b", {"a": 17, "b": 19}),  # long multiplication
        ("c = a * b", {"a": 5000, "b": 2}),  # five digits
    ):
        with pytest.raises(OutOfReach):
            Step.parse(line).work_out(values)
    assert Step.parse("c = a * 60").work_out({"a": 17}) == (17, 60, 1020)


def test_a_badly_written_family_is_refused() -> None:
    with pytest.raises(ValueError, match="not a step"):
        Family("x", {"a": (2, 9)}, ("b = a + a + a: {}.",), (("{a}?",),))
    with pytest.raises(ValueError, match="rename"):
        Family("x", {"third": (2, 9)}, ("b = third + 2: {}.",), (("{third}?",),))
    with pytest.raises(ValueError, match="same quantities"):
        Family("x", {"a": (2, 9), "b": (2, 9)}, ("c = a + b: {}.",), (("{a} {b}?",), ("{a}?",)))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1+1=2.\n#### 2", 2), ("#### 2\n", 2), ("#### -3", -3), ("#### 2\nand more", None), ("#### 2.5", None),
        ("", None), ("2", None), ("#### 1,000", None),
    ],
)  # fmt: skip
def test_final_number(text: str, number: int | None) -> None:
    assert final_number(text) == number
