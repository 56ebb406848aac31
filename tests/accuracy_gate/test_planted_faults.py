"""The plugin that is wrong on purpose: complete, inert unless told, and its rules where they need no engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from accuracy_gate.arithmetic.generate import problems
from accuracy_gate.arithmetic.measure import MODEL, ask, spec
from accuracy_gate.arithmetic.problem import final_number
from accuracy_gate.collect import collect
from accuracy_gate.prompts import prompts
from contracts import Limits
from engine.server import Engine

PLANTED = Path(__file__).parents[1] / "planted"
VARIABLE = "NIGHTGATE_PLANTED_FAULT"
ENGINE_PYTHON = MODEL.parents[1] / ".venv-engine" / "bin" / "python"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PLANTED)
    import nightgate_planted_faults.kv_cache

    return nightgate_planted_faults


def test_every_fault_is_explained_and_every_file_recorded(planted: ModuleType) -> None:
    rows = [line.split("`")[1] for line in (PLANTED / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert set(rows[1:]) == set(planted.FAULTS)
    recorded = {line.split(",")[0] for line in next(PLANTED.glob("*.dist-info/RECORD")).read_text().splitlines()}
    there = {str(path.relative_to(PLANTED)) for path in PLANTED.rglob("*") if path.is_file()}
    assert recorded == {name for name in there if "__pycache__" not in name} - {"README.md"}


def test_without_the_variable_nothing_happens() -> None:
    """In a process of its own: no module of vLLM is touched, nor the environment."""
    code = (
        "import os, sys, nightgate_planted_faults as planted; before = dict(os.environ); planted.register(); "
        "assert dict(os.environ) == before and not {'torch', 'vllm'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(PLANTED)}, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_name_that_does_not_exist_stops_the_engine(planted: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "skip_leyer")
    with pytest.raises(ValueError, match=f"{VARIABLE}=skip_leyer: no such planted fault; one of skip_layer"):
        planted.register()
    for fault in ("one_in_five:0", "stale_kv_block:x", "drop_last_kv_block:1.5"):
        name, _, argument = fault.partition(":")
        with pytest.raises(ValueError, match="must be a whole number of at least 1"):
            planted.FAULTS[name](argument)


@pytest.mark.parametrize(
    ("length", "query", "told"),
    [
        (128, 1, 128),  # one block, full: nothing would be left
        (129, 1, 128),  # the second block holds only the current token
        (256, 1, 128),
        (257, 1, 256),
        (200, 200, 200),  # prefill
        (1, 1, 1),
    ],
)
def test_the_last_block_is_dropped(planted: ModuleType, length: int, query: int, told: int) -> None:
    assert planted.kv_cache.without_last_block(length, query, 128) == told


def test_a_late_table_gives_what_the_row_had_before(planted: ModuleType) -> None:
    never, once = planted.kv_cache.LateTable(0), planted.kv_cache.LateTable(1)
    assert never.read([7, None]) == once.read([7, None]) == {0: 0}  # nobody before: the null block
    assert (never.read([7, 8]), once.read([7, 8])) == ({0: 0, 1: 0}, {1: 0})
    assert (never.read([9, 8]), once.read([9, 8])) == ({0: 7, 1: 0}, {0: 7})  # another request in row 0


@pytest.mark.real_engine
def test_a_wrong_end_token_cuts_answers_that_ignoring_it_does_not_show(tmp_path: Path) -> None:
    """The token gate ignores end tokens, so that it cannot see this fault; problems asked as a chat show it."""
    if not ENGINE_PYTHON.exists():
        pytest.skip("needs .venv-engine of `make setup`")
    base = spec(ENGINE_PYTHON, dtype="float32")
    faulty = base.model_copy(update={"env": base.env | {VARIABLE: "stop_token"}, "plugin_paths": (str(PLANTED),)})
    with Engine.start(faulty, "L000", tmp_path, Limits()) as engine:
        engine.wait_ready()
        assert engine.log_since(0).count("PLANTED FAULT active: stop_token, token") == 1
        score = ask(engine, problems("held_out_numbers", 16, seed=4))
        run = collect(engine, prompts(4), mode="concurrent", concurrency=4)
    assert score.errors == 0 and score.right <= 12
    assert all("9" not in text and final_number(text) != problem.result for problem, text in score.wrong)
    assert [len(sequence.ids) for sequence in run.sequences] == [60] * 4
