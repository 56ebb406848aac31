"""Questions from a file, from the `datasets` library, and from the embedded problems."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from accuracy_gate.gsm8k.questions import Question, read, train_for
from accuracy_gate.gsm8k.styles import STYLES

DATA = Path(__file__).parents[3] / "shared" / "data" / "gsm8k" / "test.jsonl"


def write(path: Path, n: int) -> Path:
    rows = [{"question": f"{i}?", "answer": f"It is {i}.\n#### {i}"} for i in range(n)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def test_the_first_rows_of_a_file(tmp_path: Path) -> None:
    found = read(write(tmp_path / "q.jsonl", 9), count=4)
    assert [q.question for q in found.questions] == ["0?", "1?", "2?", "3?"]
    assert found.questions[1] == Question(id="q.jsonl:2", question="1?", answer="It is 1.\n#### 1")
    assert found.questions[1].gold == 1.0 and found.source == str(tmp_path / "q.jsonl")
    assert len(read(tmp_path / "q.jsonl", count=100).questions) == 9


def test_a_seed_draws_rows_and_keeps_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", 50)
    drawn, again, other = (read(path, 10, seed) for seed in (1, 1, 2))
    numbers = [int(q.id.partition(":")[2]) for q in drawn.questions]
    assert drawn == again != other and numbers == sorted(set(numbers)) != list(range(1, 11))


def test_the_digest_knows_every_text_and_the_order(tmp_path: Path) -> None:
    found = read(write(tmp_path / "q.jsonl", 3))
    turned = found.model_copy(update={"questions": found.questions[::-1]})
    softer = found.questions[0].model_copy(update={"answer": "#### 1"})
    changed = found.model_copy(update={"questions": (softer, *found.questions[1:])})
    assert len({found.digest, turned.digest, changed.digest}) == 3
    assert found.model_copy(update={"source": "elsewhere"}).digest == found.digest


@pytest.mark.parametrize(
    "line",
    ["not json", "[1]", '{"question": "q"}', '{"question": "q", "answer": "#### none"}',
     '{"question": "q", "answer": "5"}', '{"question": 1, "answer": "#### 5"}'],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "q", "answer": "#### 1"}) + f"\n\n{line}\n")
    with pytest.raises(ValueError, match=r"q\.jsonl:3: (need|no number)"):
        read(path)


def test_an_empty_or_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"q\.jsonl: no questions in it"):
        read(tmp_path / "q.jsonl")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing.jsonl")


def test_embedded_problems_come_from_a_seed() -> None:
    found = read("arithmetic:held_out_numbers", 5, seed=3)
    assert found == read("arithmetic:held_out_numbers", 5, seed=3) != read("arithmetic:held_out_numbers", 5, seed=4)
    assert [q.id for q in found.questions][:2] == ["held_out_numbers/0", "held_out_numbers/1"]  # the seed stays secret
    with pytest.raises(ValueError, match="made from a seed; give one"):
        read("arithmetic:train", 5)
    with pytest.raises(ValueError, match="must be one of train, held_out_numbers"):
        read("arithmetic:test", 5, seed=1)


def test_worked_examples_belong_to_the_source(tmp_path: Path) -> None:
    assert len(train_for("arithmetic:held_out_stories").questions) == 200
    path = write(tmp_path / "test.jsonl", 3)
    with pytest.raises(ValueError, match=r"no train\*\.jsonl beside it"):
        train_for(path)
    write(tmp_path / "train.jsonl", 7)
    assert len(train_for(path).questions) == 7


def test_the_datasets_library_is_asked_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str]] = []

    def load(name: str, configuration: str, split: str) -> list[dict[str, str]]:
        asked.append((name, configuration, split))
        if split == "absent":
            raise RuntimeError("no such\nsplit")
        return [{"question": "1?", "answer": "#### 1"}] * 3

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))  # type: ignore[arg-type]
    found = read("datasets:openai/gsm8k", 2)
    assert [q.id for q in found.questions] == ["openai/gsm8k:test:0", "openai/gsm8k:test:1"]
    assert len(train_for("datasets:openai/gsm8k").questions) == 3
    with pytest.raises(ValueError, match=r"cannot be loaded \(no such split\); go online once, or name a JSONL"):
        read("datasets:openai/gsm8k:absent")
    assert [split for *_, split in asked] == ["test", "train", "absent"]


def test_without_the_datasets_library_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # type: ignore[arg-type]  # as if it were not installed
    with pytest.raises(ValueError, match="needs the `datasets` library, which is not installed: `pip install"):
        read("datasets:openai/gsm8k")


@pytest.mark.skipif(not DATA.exists(), reason="the GSM8K test set is not beside this checkout")
def test_every_gold_answer_of_the_test_set_is_read() -> None:
    questions = read(DATA, 10_000).questions
    golds = [json.loads(line)["answer"].split("####")[-1].strip() for line in DATA.read_text().splitlines()]
    assert len(questions) == len(golds) == 1319
    assert [q.gold for q in questions] == [float(gold.replace(",", "")) for gold in golds]
    assert sum("," in gold for gold in golds) == 14 and sorted(q.gold for q in questions)[:2] == [-10.0, -3.0]
    for known in STYLES.values():  # the gold text, given as an answer, is right in every style
        assert all(known.right(known.extract(q.answer), q) for q in questions), known.name
