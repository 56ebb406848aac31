"""A tree that looks like an installed package: seen by the interpreter, and nothing installed is written."""

from __future__ import annotations

import difflib
import os
import subprocess
from pathlib import Path

import pytest

from agents.tuning.installed_trees import hash_tree
from agents.tuning.overlay_tree import STAMP, overlay_tree
from agents.tuning.packages import need_package
from agents.tuning.placed import PlacementError
from agents.tuning.placing import place
from contracts import EngineSpec, Lever
from tests.agents.toy_package import FILES, Toy, install, run
from tests.real import engine_python

EIGHT = {"limits.py": FILES["limits.py"].replace("LIMIT = 4", "LIMIT = 8").encode()}


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return install(tmp_path)


def test_the_interpreter_sees_the_replaced_file_and_only_with_the_tree(toy: Toy, tmp_path: Path) -> None:
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    assert tree == tmp_path / "tree" and (tree / "toy").is_dir()
    assert toy.says("toy.LIMIT, toy.__file__", (str(tree),)) == f"8 {tree}/toy/__init__.py"
    assert toy.says("toy.LIMIT, toy.__file__") == f"4 {toy.package}/__init__.py"


def test_nothing_is_compiled_into_the_installed_tree(toy: Toy, tmp_path: Path) -> None:
    before = toy.installed()
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    toy.says("toy.LIMIT", (str(tree),))
    assert toy.installed() == before
    assert list((tree / "toy" / "__pycache__").glob("limits.*.pyc")) and list((tree / "toy/ops/__pycache__").iterdir())
    toy.says("toy.LIMIT")  # without the tree Python compiles where it always does: what is shown above can fail
    assert toy.installed() != before


def test_what_is_compiled_already_is_used_and_left_alone(toy: Toy, tmp_path: Path) -> None:
    toy.says("toy.LIMIT")
    before = toy.installed()
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    links = {p.name.split(".")[0] for p in (tree / "toy").rglob("*.pyc") if p.is_symlink()}
    assert links == {"__init__", "tiles"}  # not limits, which is another one here
    verbose = subprocess.run(
        [toy.python, "-v", "-c", "import toy.ops.tiles"],
        env={"PYTHONPATH": str(tree)}, cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"{tree}/toy/ops/__pycache__/tiles" in verbose.stderr and "matches " in verbose.stderr
    assert "wrote" not in "".join(line for line in verbose.stderr.splitlines() if "tiles" in line)
    assert {p.name.split(".")[0] for p in (tree / "toy").rglob("*.pyc") if p.is_symlink()} == links
    assert toy.installed() == before


def test_a_source_that_changes_later_is_compiled_beside_its_link(toy: Toy, tmp_path: Path) -> None:
    """Python replaces a compiled file by a rename: the link goes, what it pointed to stays."""
    toy.says("toy.LIMIT")
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    source = toy.package / "__init__.py"
    os.utime(source, (1, 1))
    before = toy.installed()
    toy.says("toy.LIMIT", (str(tree),))
    assert toy.installed() == before
    assert not any(p.is_symlink() for p in (tree / "toy" / "__pycache__").glob("__init__*"))


def test_a_module_that_follows_links_to_its_tables_finds_the_replaced_one(toy: Toy, tmp_path: Path) -> None:
    table = {"ops/tables/gfx950.json": b'{"M_LEQ_64": {"BLOCK_M": 16}}'}
    tree = overlay_tree(toy.package, table, tmp_path / "tree")
    assert toy.says('toy.ops.tiles.TILES["M_LEQ_64"]["BLOCK_M"]', (str(tree),)) == "16"
    assert toy.says('toy.ops.tiles.TILES["M_LEQ_64"]["BLOCK_M"]') == "64"


def test_files_are_links_and_folders_are_not(toy: Toy, tmp_path: Path) -> None:
    (toy.package.parent / "toy.libs").mkdir()
    tree = overlay_tree(toy.package, EIGHT | {"ops/tables/new/deep.json": b"{}"}, tmp_path / "tree")
    links = {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_symlink()}
    assert links == {
        "toy/__init__.py", "toy/ops/__init__.py", "toy/fast.abi3.so", "toy/ops/tables/gfx950.json",
        "toy/ops/tables/gfx906.json", "toy.libs",
    }  # fmt: skip
    assert (tree / "toy/ops/tables/new/deep.json").read_bytes() == b"{}"
    assert not (toy.package / "ops/tables/new").exists()


def test_the_same_again_is_left_alone_and_anything_else_is_made_again(toy: Toy, tmp_path: Path) -> None:
    def made_again() -> bool:
        stamp = overlay_tree(toy.package, replaced, tmp_path / "tree") / STAMP
        again = stamp.stat().st_mtime != 1
        os.utime(stamp, (1, 1))
        return again

    replaced = dict(EIGHT)
    assert made_again() and not made_again()
    replaced["ops/tables/gfx906.json"] = b'{"x": 1}'
    assert made_again() and not made_again()
    (toy.package / "limits.py").write_text("LIMIT = 44\n")
    assert made_again() and not made_again()
    (toy.package / "new.json").write_text("{}")
    assert made_again() and (tmp_path / "tree/toy/new.json").is_symlink()


@pytest.mark.parametrize("left", ["a half-made tree beside it", "a tree without its stamp"])
def test_what_a_kill_left_is_made_again(toy: Toy, tmp_path: Path, left: str) -> None:
    half = tmp_path / (".tree.new" if left.startswith("a half") else "tree") / "toy"
    half.mkdir(parents=True)
    (half / "limits.py").write_text("LIMIT = ")
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    assert toy.says("toy.LIMIT", (str(tree),)) == "8"
    assert not (tmp_path / ".tree.new").exists()


def test_links_between_installed_folders(toy: Toy, tmp_path: Path) -> None:
    """A linked folder of sources is followed, so that nothing is compiled into what it points to; a circle ends."""
    (toy.package / "again").symlink_to("ops")
    (toy.package / "ops" / "up").symlink_to("..")
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    before = toy.installed()
    assert (
        run(toy.python, "import toy.again.tiles as t; print(t.__file__)", (str(tree),)) == f"{tree}/toy/again/tiles.py"
    )
    assert toy.installed() == before
    assert not (tree / "toy" / "ops" / "up").exists()


def test_a_new_file_below_a_file_is_refused(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="toy/limits.py/x.py cannot be added: a part of its path is a file"):
        overlay_tree(toy.package, {"limits.py/x.py": b""}, tmp_path / "tree")
    with pytest.raises(PlacementError, match="toy/ops cannot be replaced: it is a folder"):
        overlay_tree(toy.package, {"ops": b""}, tmp_path / "tree")
    for long in ("y" * 300, f"{'y' * 300}/x.py"):  # no fault of the disk's
        with pytest.raises(PlacementError, match=r"toy/y+\.\.\. cannot be added: the name is too long"):
            overlay_tree(toy.package, {long: b""}, tmp_path / "tree")


def test_an_editors_lock_is_no_fault(toy: Toy, tmp_path: Path) -> None:
    (toy.package / ".#limits.py").symlink_to("someone@host.123")
    tree = overlay_tree(toy.package, EIGHT, tmp_path / "tree")
    assert toy.says("toy.LIMIT", (str(tree),)) == "8"


# Finds vllm where an engine would and imports its envs.py for real, without vllm's own __init__, which loads torch.
LOOK = """
import importlib.util, sys, types
whole = types.ModuleType("vllm")
whole.__path__ = importlib.util.find_spec("vllm").submodule_search_locations
sys.modules["vllm"] = whole
import vllm.envs
print(vllm.envs.VLLM_RINGBUFFER_WARNING_INTERVAL, vllm.envs.__file__)
"""


@pytest.mark.engine_python
def test_a_patch_to_the_real_vllm(tmp_path: Path) -> None:
    python = engine_python()
    package = need_package(python, "vllm")
    source = (package / "envs.py").read_text()
    old = '"VLLM_RINGBUFFER_WARNING_INTERVAL", "60"'
    assert old in source, "this vLLM has another envs.py: choose another constant for the test"
    diff = difflib.unified_diff(
        source.splitlines(keepends=True), source.replace(old, old.replace("60", "61")).splitlines(keepends=True),
        "a/vllm/envs.py", "b/vllm/envs.py",
    )  # fmt: skip
    spec = EngineSpec(python=python, model="m", overlay={Lever.SOURCE_PATCH: {"vllm/interval": "".join(diff)}})
    before, compiled = hash_tree(package), _compiled(package)
    placement = place(spec, tmp_path / "overlay")
    (tree,) = placement.python_path
    assert run(python, LOOK, placement.python_path) == f"61 {tree}/vllm/envs.py"
    assert run(python, LOOK) == f"60 {package}/envs.py"
    assert hash_tree(package).state == before.state
    assert _compiled(package) == compiled
    assert place(spec, tmp_path / "overlay") == placement
    sources = sum(name.endswith(".py") for name in before.hashes)
    assert sum(p.suffix == ".py" for p in Path(tree, "vllm").rglob("*.py")) == sources > 1000


def _compiled(package: Path) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in package.rglob("__pycache__/*")}
