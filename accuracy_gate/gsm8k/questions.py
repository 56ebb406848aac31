"""Where the questions come from: a JSONL, the `datasets` library, or the embedded arithmetic problems.

A row is GSM8K's: {"question": ..., "answer": "worked steps ... #### 18"}. What follows the last `####` is the gold
answer; in the 1319 test rows of openai/gsm8k it is a whole number, 14 times with a comma and twice negative.
"""

from __future__ import annotations

import importlib
import json
import random
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from accuracy_gate.arithmetic.generate import Split, problems
from contracts import Frozen, content_hash

Kind = Literal["file", "datasets", "arithmetic"]
TRAIN_PROBLEMS = 200  # a pool of embedded problems to draw worked examples from
_GOLD = re.compile(r"-?\$?(?:\d[\d,]*)(?:\.\d+)?")


class Question(Frozen):
    id: str
    question: str
    answer: str  # the gold text: worked steps, then `#### N`

    @property
    def gold(self) -> float:
        """The N after the last `####`; `1,234` is one number. Raises ValueError when there is none."""
        text = self.answer.rpartition("####")[2].strip()
        if "####" not in self.answer or not _GOLD.fullmatch(text):
            raise ValueError(f"no number after #### in the answer of {self.id}")
        return float(text.replace(",", "").replace("$", ""))


class QuestionSet(Frozen):
    source: str
    questions: tuple[Question, ...]

    @property
    def digest(self) -> str:
        """Hash over the id, question and answer of each, in order: two sets that share it ask the same."""
        return content_hash([[q.id, q.question, q.answer] for q in self.questions])


def kind_of(source: str | Path) -> Kind:
    """What a source names, by what stands before its first colon."""
    kind = str(source).partition(":")[0]
    return "datasets" if kind == "datasets" else "arithmetic" if kind == "arithmetic" else "file"


def read(source: str | Path, count: int = 250, seed: int | None = None) -> QuestionSet:
    """At most `count` questions from

        PATH                          a JSONL of rows
        datasets:openai/gsm8k[:split] the `datasets` library's cache or hub; the split is `test` unless named
        arithmetic:SPLIT              problems of accuracy_gate/arithmetic, made from `seed`

    Rows are the first ones in the file's order; with a seed `count` are drawn instead, and kept in that order. Raises
    OSError when a file cannot be read, else ValueError with the fix.
    """
    text = str(source)
    if count < 1:
        raise ValueError(f"asked for {count} questions; ask for at least one")
    kind, rest = kind_of(text), text.partition(":")[2]
    if kind == "arithmetic":
        if rest not in get_args(Split):
            raise ValueError(f"{text}: the split after `arithmetic:` must be one of {', '.join(get_args(Split))}")
        if seed is None:
            raise ValueError(f"{text}: these problems are made from a seed; give one")
        split: Split = rest  # type: ignore[assignment]  # one of them: checked above
        made = problems(split, count, seed)
        return QuestionSet(source=text, questions=tuple(_question(f"{rest}/{i}", p.row()) for i, p in enumerate(made)))
    numbered = _dataset(text, rest) if kind == "datasets" else _jsonl(Path(source))
    questions = tuple(islice(numbered, count if seed is None else None))
    if not questions:
        raise ValueError(f"{text}: no questions in it")
    if seed is not None and len(questions) > count:
        drawn = random.Random(seed).sample(range(len(questions)), count)
        questions = tuple(questions[index] for index in sorted(drawn))
    return QuestionSet(source=text, questions=questions)


def train_for(source: str | Path) -> QuestionSet:
    """The training questions that belong to a source, for worked examples: the problems' own train split, the data
    set's, or the first file named train*.jsonl beside a JSONL. Raises OSError or ValueError, with the fix."""
    kind, rest = kind_of(source), str(source).partition(":")[2]
    if kind == "arithmetic":
        return read("arithmetic:train", TRAIN_PROBLEMS, seed=0)
    if kind == "datasets":
        return read(f"datasets:{rest.partition(':')[0]}:train", count=1_000_000)
    beside = sorted(Path(source).parent.glob("train*.jsonl"))
    if not beside:
        raise ValueError(
            f"{source}: no train*.jsonl beside it for the worked examples of this style; put GSM8K's train.jsonl "
            "there, or choose style mi355x_night, which shows none"
        )
    return read(beside[0], count=1_000_000)


def _question(name: str, row: Any) -> Question:
    """Raises ValueError when the row is not one of GSM8K's kind."""
    try:
        question, answer = row["question"], row["answer"]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f'{name}: need {{"question": ..., "answer": "... #### 18"}}') from error
    if not isinstance(question, str) or not isinstance(answer, str):
        raise ValueError(f'{name}: need {{"question": ..., "answer": "... #### 18"}}, both texts')
    found = Question(id=name, question=question, answer=answer)
    try:
        found.gold  # noqa: B018  # read here, so that a bad row is named now and not in the middle of a night
    except ValueError as error:
        raise ValueError(f"{name}: no number after #### in the answer") from error
    return found


def _jsonl(path: Path) -> Iterable[Question]:
    """Ids are file name and line, as are the errors."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            name = f"{path.name}:{number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f'{name}: need {{"question": ..., "answer": "... #### 18"}}') from error
            yield _question(name, row)


def _dataset(source: str, rest: str) -> Iterable[Question]:
    """Configuration `main`, from the library's cache or the hub."""
    name, _, split = rest.partition(":")
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise ValueError(
            f"{source} needs the `datasets` library, which is not installed: `pip install datasets`, or name a JSONL"
        ) from error
    try:
        rows = library.load_dataset(name, "main", split=split or "test")
    except Exception as error:  # the library's and the hub client's own classes; the user needs their words only
        words = " ".join(str(error).split())[:200]
        raise ValueError(f"{source} cannot be loaded ({words}); go online once, or name a JSONL") from error
    for number, row in enumerate(rows):
        yield _question(f"{name}:{split or 'test'}:{number}", row)
