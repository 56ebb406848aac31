"""A small installed package with an interpreter of its own: what the levers for files are tried on.

`toy` is made up; the interpreter is a real virtual environment's, and what it imports it really imports.
"""

from __future__ import annotations

import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

FILES = {
    "__init__.py": "from toy.limits import LIMIT\n",
    "limits.py": "# What may run at a time.\n\nLIMIT = 4\nFLOOR = 1\n\n\ndef both():\n    return LIMIT, FLOOR\n",
    "ops/__init__.py": "",
    "ops/tiles.py": (
        "import json\nimport os\n\n"
        'HERE = os.path.dirname(os.path.realpath(__file__))\nTILES = json.load(open(HERE + "/tables/gfx950.json"))\n'
    ),
    "ops/tables/gfx950.json": '{"M_LEQ_64": {"BLOCK_M": 64}}\n',
    "ops/tables/gfx906.json": "{}\n",
    "fast.abi3.so": "no text",
}


@dataclass(frozen=True)
class Toy:
    python: str
    package: Path  # .../site-packages/toy

    def says(self, expression: str, python_path: tuple[str, ...] = (), **env: str) -> str:
        """What the interpreter prints for an expression about toy.limits, toy.ops.tiles and toy itself."""
        code = f"import toy, toy.limits, toy.ops.tiles; print({expression})"
        return run(self.python, code, python_path, **env)

    def installed(self) -> dict[str, tuple[int, bytes]]:
        """Everything under the package: time and content, compiled files included."""
        return {
            str(path.relative_to(self.package)): (path.lstat().st_mtime_ns, path.read_bytes())
            for path in sorted(self.package.rglob("*"))
            if path.is_file()
        }


def run(python: str, code: str, python_path: tuple[str, ...] = (), **env: str) -> str:
    """As the engine is run: in an empty folder, our own variables left out."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    path = {"PYTHONPATH": ":".join(python_path)} if python_path else {}
    done = subprocess.run([python, "-c", code], env=kept | path | env, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def install(folder: Path) -> Toy:
    """The interpreter and the package, nothing compiled yet."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder / "env")
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    for name, text in FILES.items():
        (site / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "toy" / name).write_text(text)
    return Toy(python=str(folder / "env" / "bin" / "python"), package=site / "toy")
