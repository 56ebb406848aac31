"""What spec.overlay becomes for a launch: one tree for each distribution, and variables that name files.

Levers say what they lay where (placed.Placed); here it is put together. Two levers that touch one distribution meet in
one tree: first the files that are replaced whole, then the patches, in the order of the levers and of their keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import JsonValue

from agents.tuning.levers import LEVERS
from agents.tuning.levers.in_overlay import container_fault
from agents.tuning.overlay_tree import overlay_tree
from agents.tuning.packages import need_package, package_folder
from agents.tuning.patching import patched, syntax_problem
from agents.tuning.placed import Placed, PlacementError, write_whole
from agents.tuning.watching import to_watch
from contracts import EngineSpec, Lever
from engine.own_plugins import CODE, FILES
from engine.placement import NOTHING, Placement

Parts = Iterable[tuple[Lever, Placed]]


def place(spec: EngineSpec, folder: Path) -> Placement:
    """Lays spec.overlay out under `folder`, which is this spec's own, and says how a launch finds it. Done before every
    launch: the same spec and the same installed files give the same folder, and what is there already is left alone
    (overlay_tree.py says how long it takes). Raises PlacementError, and OSError where the disk is at fault."""
    folder = Path(os.path.abspath(folder))  # without "..", as Python has the folders of its path
    parts = [(lever, _place(lever, spec, folder)) for lever in sorted(spec.overlay) if spec.overlay[lever]]
    if not parts:
        return NOTHING
    if os.pathsep in str(folder):
        raise PlacementError(f"{folder}: Python takes {os.pathsep!r} in a path for a list; choose another folder")
    env = _environment(spec, parts)
    trees: list[str] = []
    laid: list[str] = []  # Python files of theirs, which the watcher in the engine says that it imported
    code: list[JsonValue] = []  # and which functions the patches change in them: it says which of those ran
    for name in sorted(_distributions(parts)):
        tree, paths, changed = _tree(name, spec.python, parts, folder / "trees" / name)
        trees.append(str(tree))
        laid += [str(tree / name / path) for path in paths if path.endswith(".py")]
        code += [{**part, "file": str(tree / name / str(part["file"]))} for part in changed]
    own = [path for _, part in parts for path in part.python_path]
    if laid:
        env[FILES] = os.pathsep.join(laid)
    if code:
        env[CODE] = str(write_whole(folder / "code.json", json.dumps(code, indent=1).encode()))
    return Placement(env=env, python_path=(*trees, *own))


def distributions(spec: EngineSpec) -> frozenset[str]:
    """Of the packages whose installed files spec.overlay may lie over, as far as the keys say: a patch names its own,
    a table is AITER's or vLLM's by its lever."""
    named = {key.partition("/")[0] for key in spec.overlay.get(Lever.SOURCE_PATCH, {})}
    tables = {Lever.AITER_JSON: "aiter", Lever.AITER_CSV: "aiter", Lever.MOE_TABLE: "vllm"}
    return frozenset(named | {name for lever, name in tables.items() if spec.overlay.get(lever)})


def _place(lever: Lever, spec: EngineSpec, folder: Path) -> Placed:
    actions = LEVERS.get(lever)
    if actions is None or actions.place is None:
        raise PlacementError(f"lever {lever} lays nothing over installed files: take it out of the overlay")
    if wrong := container_fault(lever, spec.container):
        raise PlacementError(wrong)
    entries = {key: value for key, value in spec.overlay[lever].items() if value is not None}
    return actions.place(entries, spec.python, folder / lever.value, spec.env)


def _environment(spec: EngineSpec, parts: Parts) -> dict[str, str]:
    """Raises PlacementError where one variable has two masters: which of them wins would be an accident."""
    owner: dict[str, str] = dict.fromkeys(spec.env, "the engine's env")
    found: dict[str, str] = {}
    for lever, part in parts:
        for name, value in part.env.items():
            if name in owner and not (name in part.replaces and name not in found):
                raise PlacementError(f"{name} is set by {owner[name]} and by lever {lever}: take one of them out")
            owner[name], found[name] = f"lever {lever}", value
    return found


def _distributions(parts: Parts) -> set[str]:
    return {name for _, part in parts for name in (*part.files, *part.patches)}


def _tree(name: str, python: str, parts: Parts, folder: Path) -> tuple[Path, list[str], list[dict[str, JsonValue]]]:
    """The folder for PYTHONPATH, which files of the distribution differ in it, and what of them is to be watched."""
    package = need_package(python, name)
    files = _files(name, parts)
    steps = []
    for patch, text in [patch for _, part in parts for patch in part.patches.get(name, ())]:
        before, files = files, patched(package, files, [(patch, text)])
        steps.append((f"{name}/{patch}", before, files))
    wrong = syntax_problem(python, {f"{name}/{path}": content for path, content in files.items()})
    if wrong:
        raise PlacementError(f"a patched file is no Python any more: {wrong}; correct the patch")
    tree = overlay_tree(package, files, folder)
    found = package_folder(python, name, (str(tree),))
    if found != tree / name:  # an editable installation may bring a finder of its own that goes first
        raise PlacementError(
            f"{python} finds {name} at {found} in spite of PYTHONPATH: install it as a wheel there, not editable"
        )
    return tree, sorted(files), to_watch(package, steps, files)


def _files(name: str, parts: Parts) -> Mapping[str, bytes]:
    """Raises PlacementError where two levers replace one file differently."""
    owner: dict[str, Lever] = {}
    found: dict[str, bytes] = {}
    for lever, part in parts:
        for path, content in part.files.get(name, {}).items():
            if path.startswith("/") or ".." in path.split("/"):
                raise PlacementError(f"lever {lever}: {path} lies outside {name}")
            if found.get(path, content) != content:
                raise PlacementError(f"{name}/{path} is replaced by lever {owner[path]} and by lever {lever}: "
                                     "take one of them out")  # fmt: skip
            owner[path], found[path] = lever, content
    return found
