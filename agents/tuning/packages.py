"""Where an interpreter has the folder of a package: asked of the interpreter itself, importing nothing."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from agents.tuning.placed import PlacementError
from cards.ask import NoAnswer, ask

# find_spec of a name without a dot imports nothing. What can be laid over is a folder with an __init__.py.
QUESTION = """
import importlib.util as u, os, sys
try: spec = u.find_spec(sys.argv[1])
except (ImportError, ValueError): spec = None
origin = spec and spec.origin or ""
folder, file = os.path.split(origin)
if spec is None: answer({})
elif file == "__init__.py": answer({"folder": folder} if os.path.isdir(folder) else {"is": "in a ZIP file"})
elif spec.submodule_search_locations is None: answer({"is": "a single module"})
else: answer({"is": "a namespace package, without __init__.py"})
"""


def package_folder(python: str, name: str, before: tuple[str, ...] = ()) -> Path | None:
    """The folder that `import name` reads in an interpreter with nothing but `before` on its PYTHONPATH, or None where
    there is none. The answer is kept for the life of this process. Raises PlacementError where it does not answer."""
    folder = _find(python, name, before).get("folder")
    return Path(folder) if folder else None


def need_package(python: str, name: str) -> Path:
    """The same. Raises PlacementError where there is none."""
    found = _find(python, name)
    if "folder" in found:
        return Path(found["folder"])
    if "is" in found:
        what = f"{name} of {python} is {found['is']}"
        raise PlacementError(f"{what}: only a package's folder can be laid over; take it out")
    raise PlacementError(f"{python} has no package {name}: install it there, or take the change out")


@lru_cache(maxsize=64)
def _find(python: str, name: str, before: tuple[str, ...] = ()) -> dict[str, str]:
    """QUESTION's answer."""
    try:
        found: dict[str, str] = ask(python, QUESTION, (name,), env={"PYTHONPATH": ":".join(before)} if before else {})
    except NoAnswer as no:
        raise PlacementError(str(no)) from None
    return found
