"""Every `python -m MODULE` that the documentation prints can at least be imported here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    {
        module
        for page in PAGES
        for module in re.findall(r"-m ((?:benchmarks|accuracy_gate|agents)\.[\w.]+)", page.read_text(encoding="utf-8"))
    }
)
NOT_OURS = (
    "torch",
    "tokenizers",
    "safetensors",
    "transformers",
    "triton",
)  # of the engine's interpreter, or a GPU host


def test_the_pages_name_some() -> None:
    assert {"benchmarks.gate", "benchmarks.judge_false_keeps"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_it_imports(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    gone = re.search(r"No module named '(\w+)", done.stderr)
    if gone and gone[1] in NOT_OURS:
        pytest.skip(f"{module} needs {gone[1]}")
    assert done.returncode == 0, done.stderr[-500:]
