"""What is left of a refused change's overlay tree. The trees are real, over a small package with its own Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.tuning import refused_trees
from agents.tuning.overlay_tree import STAMP
from agents.tuning.packages import need_package
from agents.tuning.placing import place
from agents.tuning.refused_trees import THINNED, thin_refused
from contracts import EngineSpec, Lever
from engine.placement import Placement
from tests.agents.test_source_patch import ADDED, LIMIT
from tests.agents.toy_package import Toy, install
from tests.real import engine_python


class Night:
    """A night's folder with what `place` lays into it for a launch, as agents/arms.py does."""

    def __init__(self, folder: Path, toy: Toy) -> None:
        self.folder, self.toy = folder, toy
        self.overlays = folder / "artifacts" / "overlays"
        self.overlays.mkdir(parents=True)

    def launch(self, **patches: str) -> tuple[EngineSpec, Placement]:
        overlay = {Lever.SOURCE_PATCH: {f"toy/{name}": text for name, text in patches.items()}}
        spec = EngineSpec(python=self.toy.python, model="m", overlay=overlay)
        placement = place(spec, self.overlays / spec.id)
        self.toy.says("toy.LIMIT", placement.python_path)  # an engine runs: Python compiles into the tree
        return spec, placement

    def tree(self, spec: EngineSpec) -> Path:
        return self.overlays / spec.id / "trees" / "toy"


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path / "night", install(tmp_path))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_of_a_refused_change_only_what_it_laid_is_left(night: Night) -> None:
    incumbent, _ = night.launch(more=ADDED)
    refused, _ = night.launch(more=ADDED, limit=LIMIT)
    installed, kept = night.toy.installed(), everything(night.tree(incumbent))
    laid = (night.tree(refused) / "toy/limits.py").read_text()
    assert len(everything(night.tree(refused))) > 10
    assert thin_refused(night.folder, {incumbent.id}) == (refused.id,)
    assert everything(night.tree(refused)) == [THINNED, "toy", "toy/limits.py", "toy/more.py"]
    assert (night.tree(refused) / "toy/limits.py").read_text() == laid and "LIMIT = 8" in laid
    assert everything(night.tree(incumbent)) == kept
    assert night.toy.installed() == installed  # links went, what they point to did not


def test_the_same_configuration_is_laid_out_again_when_it_is_launched_again(night: Night) -> None:
    spec, before = night.launch(limit=LIMIT)
    whole = everything(night.tree(spec))
    thin_refused(night.folder, ())
    assert thin_refused(night.folder, ()) == ()  # nothing left to do
    again, after = night.launch(limit=LIMIT)
    assert (again, after) == (spec, before) and everything(night.tree(spec)) == whole
    assert night.toy.says("toy.LIMIT", after.python_path) == "8"


def test_tables_and_whatever_else_lies_beside_the_trees_stays(night: Night) -> None:
    spec, _ = night.launch(limit=LIMIT)
    table = night.overlays / spec.id / "vllm_moe_table/moe_tables-0/E=8.json"
    table.parent.mkdir(parents=True)
    table.write_text("{}")
    (night.overlays / "notes").mkdir()
    (night.overlays / "notes" / "by hand.txt").write_text("mine")
    thin_refused(night.folder, ())
    assert table.read_text() == "{}" and (night.overlays / "notes" / "by hand.txt").exists()


def test_a_night_without_overlays_has_nothing_to_thin(tmp_path: Path) -> None:
    assert thin_refused(tmp_path, ()) == ()


class Killed(BaseException):
    """In place of a SIGKILL."""


def test_killed_anywhere_in_it_the_next_one_ends_it(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before each of its removals in turn; a tree cut short is never taken for a whole one."""
    spec, _ = night.launch(limit=LIMIT, more=ADDED)
    real = {name: getattr(os, name) for name in ("unlink", "rmdir")}
    left = [0]

    def counted(name: str) -> Any:
        def remove(*args: Any, **more: Any) -> None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            real[name](*args, **more)

        return remove

    for stop in range(1000):
        night.launch(limit=LIMIT, more=ADDED)
        left[0] = stop
        with monkeypatch.context() as patched:
            for name in real:
                patched.setattr(refused_trees.os, name, counted(name))
            try:
                thin_refused(night.folder, ())
                break
            except Killed:
                pass
        assert not (night.tree(spec) / STAMP).exists()
        thin_refused(night.folder, ())
        assert everything(night.tree(spec)) == [THINNED, "toy", "toy/limits.py", "toy/more.py"]
    assert stop > 10


def test_what_a_kill_left_while_a_tree_was_built_or_replaced_goes_altogether(night: Night) -> None:
    spec, _ = night.launch(limit=LIMIT)
    half, replaced = night.tree(spec).with_name(".toy.new"), night.tree(spec).with_name("other")
    shutil.copytree(night.tree(spec), half, symlinks=True)  # stamped, and not yet renamed
    shutil.copytree(night.tree(spec) / "toy", replaced / "other", symlinks=True)  # its stamp is gone already
    thin_refused(night.folder, ())
    assert [path.name for path in night.tree(spec).parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("link", ["artifacts", "artifacts/overlays", "SPEC", "SPEC/trees", "SPEC/trees/toy"])
def test_what_is_behind_a_link_stays(night: Night, tmp_path: Path, link: str) -> None:
    spec, _ = night.launch(limit=LIMIT)
    path = night.folder / link.replace("SPEC", f"artifacts/overlays/{spec.id}")
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = everything(elsewhere)
    assert thin_refused(night.folder, ()) == ()
    assert everything(elsewhere) == before and path.is_symlink()


def test_a_linked_folder_inside_a_tree_goes_without_its_contents(night: Night, tmp_path: Path) -> None:
    """Such as AITER's assembled kernels, which a tree links as a whole beside the package."""
    spec, _ = night.launch(limit=LIMIT)
    (tmp_path / "hsa").mkdir()
    (tmp_path / "hsa" / "kernel.co").write_text("assembled")
    (night.tree(spec) / "hsa").symlink_to(tmp_path / "hsa")
    thin_refused(night.folder, ())
    assert not (night.tree(spec) / "hsa").is_symlink() and (tmp_path / "hsa" / "kernel.co").exists()


def test_a_stamp_that_a_power_cut_tore_keeps_nothing_of_the_tree(night: Night) -> None:
    spec, _ = night.launch(limit=LIMIT)
    (night.tree(spec) / STAMP).write_text('{"format": 1, "pack')
    thin_refused(night.folder, ())
    assert not night.tree(spec).exists() and night.tree(spec).parent.is_dir()


@pytest.mark.engine_python
def test_the_real_vllm(tmp_path: Path) -> None:
    """Thousands of links become the one file that a patch changed."""
    python = engine_python()
    vllm = need_package(python, "vllm")
    first = (vllm / "version.py").read_text().splitlines()[0]
    patch = f"--- a/vllm/version.py\n+++ b/vllm/version.py\n@@ -1 +1,2 @@\n {first}\n+# patched\n"
    spec = EngineSpec(python=python, model="m", overlay={Lever.SOURCE_PATCH: {"vllm/comment": patch}})
    place(spec, tmp_path / "artifacts/overlays" / spec.id)
    tree = tmp_path / "artifacts/overlays" / spec.id / "trees/vllm"
    assert len(everything(tree)) > 3000
    assert thin_refused(tmp_path, ()) == (spec.id,)
    assert everything(tree) == [THINNED, "vllm", "vllm/version.py"]
    assert "# patched" in (tree / "vllm/version.py").read_text() and (vllm / "version.py").exists()


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "deep"])
def test_a_stamp_that_is_none_is_no_whole_tree_and_nothing_is_waited_for(night: Night, kind: str) -> None:
    """A pipe would be read for ever; a file of brackets alone is more than Python's parser goes down."""
    spec, _ = night.launch(limit=LIMIT)
    whole, other = night.tree(spec) / STAMP, night.folder / "other"
    other.write_text("mine")
    whole.unlink()
    {"pipe": lambda: os.mkfifo(whole), "folder": whole.mkdir, "link": lambda: whole.symlink_to(other),
     "deep": lambda: whole.write_text("[" * 100_000)}[kind]()  # fmt: skip
    assert thin_refused(night.folder, ()) == (spec.id,)
    assert not night.tree(spec).exists() and other.read_text() == "mine"


def test_one_tree_that_cannot_be_thinned_does_not_keep_the_others(night: Night) -> None:
    """A folder lies where its stamp should go."""
    specs = sorted((night.launch(limit=LIMIT, **more)[0] for more in ({}, {"a": ADDED})), key=lambda spec: spec.id)
    broken, good = specs  # in the order in which they are thinned
    (night.tree(broken) / THINNED).mkdir()
    with pytest.raises(IsADirectoryError):
        thin_refused(night.folder, ())
    left = [path for path in everything(night.tree(good)) if path.endswith((".py", ".json"))]
    assert THINNED in left and "toy/limits.py" in left and not (night.tree(good) / STAMP).exists()
    assert (night.tree(broken) / STAMP).exists()


def test_folders_too_deep_in_each_other_are_a_fault_of_the_disk(night: Night) -> None:
    """A RecursionError would end the night. Taken down with `rm`: shutil goes no deeper."""
    spec, _ = night.launch(limit=LIMIT)
    at = os.open(night.tree(spec), os.O_RDONLY)
    try:
        for _ in range(1200):
            os.mkdir("d", dir_fd=at)
            below = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        with pytest.raises(OSError, match="too deep|Too many open"):
            thin_refused(night.folder, ())
    finally:
        os.close(at)
        subprocess.run(["rm", "-rf", str(night.tree(spec) / "d")], check=True)
