"""The house keeps its shape: imports point only downwards, the loop stays light, files stay small.

Read from the source (no import is run), so a lazy import inside a function counts like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
MOST_LINES = 400

# Room -> what it may import besides itself. Rooms are folders or single files at the top of the checkout.
MAY_IMPORT: dict[str, set[str]] = {
    "contracts": set(),
    "cards": {"contracts"},
    "engine": {"cards", "contracts"},
    "accuracy_gate": {"engine", "contracts"},
    "judge": {"contracts"},
    "ledger": {"contracts"},
    "kernels": {"contracts"},
    "upstream": {"ledger", "contracts"},
    "agents": {"judge", "accuracy_gate", "engine", "cards", "kernels", "ledger", "upstream", "contracts"},
    "setup": set(),  # runs before anything is installed
}
EVERYTHING = {"run_night", "tests", "benchmarks"}  # may import every room
# Never in the loop's process: they open the card, take seconds and gigabytes, and tie us to one version.
HEAVY = {"torch", "vllm", "triton", "aiter", "transformers", "jax", "cupy"}
# Not the loop: run in the engine's interpreter, or at set-up, or once to train the small model.
INSIDE_THE_ENGINE = {
    "tests/planted",
    "tests/kernels/inside",
    "kernels",
    "setup",
    "accuracy_gate/arithmetic/training",
    "accuracy_gate/numerics/inside",
    "benchmarks/random_model.py",  # what the next two share
    "benchmarks/random_experts_model.py",  # run by the engine's interpreter, which has torch
    "benchmarks/random_awq_model.py",  # likewise
    "benchmarks/moe_tiles.py",  # likewise
    "cards/copy_worker.py",  # likewise
    "agents/research/compile/worker.py",  # a script that the engine's interpreter runs; nobody imports it
}


def sources() -> list[Path]:
    """Every Python file of the project, relative to the checkout; environments, models and nights left out."""
    tops = [p for p in CHECKOUT.iterdir() if p.is_dir() and not p.name.startswith(".") and p.name != "logs"]
    found = [*CHECKOUT.glob("*.py"), *(f for top in tops for f in top.rglob("*.py") if "__pycache__" not in f.parts)]
    return sorted(f.relative_to(CHECKOUT) for f in found)


def imported(text: str, package: str = "") -> Iterator[tuple[int, str]]:
    """(line, top-level name) of each import statement, and of import_module("name") and __import__("name")."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, package if node.level else (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value.split(".")[0]


def room_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def upward(path: Path, text: str) -> list[str]:
    """The imports of this file that its room may not make."""
    room = room_of(path)
    if room in EVERYTHING:
        return []
    rooms = set(MAY_IMPORT) | EVERYTHING
    return [
        f"{path}:{line}: {room} imports {name}; it may import {', '.join(sorted(MAY_IMPORT[room])) or 'no room'}"
        for line, name in imported(text, room)
        if name in rooms and name != room and name not in MAY_IMPORT[room]
    ]


def heavy(path: Path, text: str) -> list[str]:
    if any(path.is_relative_to(place) for place in INSIDE_THE_ENGINE):
        return []
    names = ((line, name) for line, name in imported(text) if name in HEAVY)
    return [f"{path}:{line}: imports {name}, which the loop never does" for line, name in names]


def test_there_is_something_to_check() -> None:
    rooms = {room_of(path) for path in sources()}
    assert {"contracts", "cards", "engine", "judge", "ledger", "accuracy_gate", "agents", "tests"} <= rooms


def test_every_room_is_in_the_table() -> None:
    unknown = sorted({room_of(path) for path in sources()} - set(MAY_IMPORT) - EVERYTHING)
    assert not unknown, f"say in tests/test_rooms.py what {', '.join(unknown)} may import"


def test_arrows_point_only_downwards() -> None:
    wrong = [line for path in sources() for line in upward(path, (CHECKOUT / path).read_text())]
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_circle() -> None:
    left = {room: set(below) for room, below in MAY_IMPORT.items()}
    while left:
        bottom = {room for room, below in left.items() if not below & set(left)}
        assert bottom, f"these import each other: {', '.join(left)}"
        left = {room: below for room, below in left.items() if room not in bottom}


def test_the_loop_never_imports_an_engine() -> None:
    wrong = [line for path in sources() for line in heavy(path, (CHECKOUT / path).read_text())]
    assert not wrong, "\n".join(wrong)


def test_no_file_is_longer_than_a_few_screens() -> None:
    long = {str(p): n for p in sources() if (n := len((CHECKOUT / p).read_text().splitlines())) > MOST_LINES}
    assert not long, f"over {MOST_LINES} lines, so more than one job: {long}"


@pytest.mark.parametrize(
    ("path", "text", "wrong"),
    [
        ("cards/x.py", "from engine.running import EngineFailure", "cards/x.py:1: cards imports engine"),
        ("judge/x.py", "def f():\n    import agents.night", "judge/x.py:2: judge imports agents"),
        ("judge/x.py", "import ledger.log as log", "judge/x.py:1: judge imports ledger"),
        ("contracts.py", "import cards", "contracts.py:1: contracts imports cards"),
        ("engine/x.py", "import importlib\nimportlib.import_module('tests.x')", "engine/x.py:2: engine imports tests"),
        ("agents/x.py", "import run_night", "agents/x.py:1: agents imports run_night"),
        ("engine/x.py", "from . import running\nimport engine.load\nimport contracts, os", None),
    ],
)
def test_a_wrong_arrow_is_seen(path: str, text: str, wrong: str | None) -> None:
    assert [line.split(";")[0] for line in upward(Path(path), text)] == ([wrong] if wrong else [])


def test_a_heavy_import_is_seen() -> None:
    assert heavy(Path("agents/x.py"), "def f():\n    from torch import cuda") == [
        "agents/x.py:2: imports torch, which the loop never does"
    ]
    assert heavy(Path("tests/planted/x.py"), "import torch") == []
