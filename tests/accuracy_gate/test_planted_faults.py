"""The plugin that is wrong on purpose: complete, inert unless told, and its rules where they need no engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PLANTED = Path(__file__).parents[1] / "planted"
VARIABLE = "NIGHTGATE_PLANTED_FAULT"


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
