"""Every `python -m MODULE` that the documentation prints can at least be imported here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

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


IMPORT = """
import importlib, json, sys
failed = {}
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except Exception as error:
        failed[module] = [getattr(error, "name", None), repr(error)]
print(json.dumps(failed))
"""


def test_they_import() -> None:
    command = [sys.executable, "-c", IMPORT, *MODULES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    failed = json.loads(done.stdout.splitlines()[-1])
    assert {module: said for module, (name, said) in failed.items() if name not in NOT_OURS} == {}
