"""The installed files before and after a night: the same, or named."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.context import Night
from agents.tuning.installed_trees import ALWAYS, Looking, differences, hash_tree, look, names, seen_after, seen_before
from agents.tuning.overlay import Overlay
from agents.tuning.packages import need_package
from agents.watch_trees import beside, compare
from contracts import Container, EngineSpec, Lever, TryItem
from ledger.log import Ledger
from ledger.report import render_html, render_markdown
from ledger.schema import InstalledTrees
from ledger.summary import summary
from ledger.view import NightView, fold
from tests.agents.examples import CPU
from tests.agents.toy_package import Toy, install
from tests.ledger.nights import whole_night
from tests.real import engine_python


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return install(tmp_path)


def test_what_counts(toy: Toy) -> None:
    first = hash_tree(toy.package)
    assert first.state.files == len(toy.installed()) and first.state.bytes == sum(
        len(c) for _, c in toy.installed().values()
    )
    toy.says("toy.LIMIT")  # compiles
    assert list(toy.package.rglob("*.pyc")) and hash_tree(toy.package) == first
    (toy.package / "link").symlink_to("limits.py")
    second = hash_tree(toy.package)
    assert differences(first.hashes, second.hashes) == ["toy/link (new)"]
    assert second.hashes["toy/link"] == "link to limits.py"
    (toy.package / "limits.py").write_text("LIMIT = 5\n")
    (toy.package / "ops/tables/gfx906.json").unlink()
    (toy.package / "folder").symlink_to("/")
    assert differences(first.hashes, hash_tree(toy.package).hashes) == [
        "toy/folder (new)", "toy/limits.py (changed)", "toy/link (new)", "toy/ops/tables/gfx906.json (gone)",
    ]  # fmt: skip


def test_a_pipe_is_not_waited_for(toy: Toy) -> None:
    first = hash_tree(toy.package)
    os.mkfifo(toy.package / "pipe")
    assert hash_tree(toy.package).hashes == first.hashes | {"toy/pipe": "no regular file"}


def test_the_digest_is_of_paths_and_contents(toy: Toy) -> None:
    first = hash_tree(toy.package).state
    (toy.package / "limits.py").rename(toy.package / "limit.py")
    second = hash_tree(toy.package).state
    assert (first.files, first.bytes) == (second.files, second.bytes) and first.digest != second.digest


def test_which_packages_are_looked_at() -> None:
    base = EngineSpec(python="p", model="m", overlay={Lever.SOURCE_PATCH: {"torch/x": "..."}})
    listed = (
        TryItem(lever=Lever.SOURCE_PATCH, key="triton/y", after="...", why="w"),
        TryItem(lever=Lever.ENGINE_FLAG, key="a/b", why="w"),
    )
    assert names(base, listed) == (*ALWAYS, "torch", "triton")


def test_an_interpreter_has_what_it_has(toy: Toy) -> None:
    assert list(look(toy.python, ("toy", "no_such_package"))) == ["toy"]
    assert Looking("/no/such/python", ("toy",)).result() is None


def test_before_and_after(toy: Toy, tmp_path: Path) -> None:
    before = seen_before(tmp_path, look(toy.python, ("toy",)), 0.1)
    assert json.loads((tmp_path / before.path).read_text())["toy/limits.py"]
    assert seen_after(tmp_path, before, look(toy.python, ("toy",)), 0.1).identical
    for n in range(30):
        (toy.package / f"new{n:02d}.py").write_text("")
    after = seen_after(tmp_path, before, look(toy.python, ("toy",)), 0.1)
    assert after.identical is False and after.changed_count == 30
    assert len(after.changed) == 20 and after.changed[0] == "toy/new00.py (new)"


def test_the_real_vllm_can_be_hashed() -> None:
    package = need_package(engine_python(), "vllm")
    tree = hash_tree(package)
    assert tree.state.files > 1000 and tree.state.bytes > 1 << 20
    assert tree.hashes["vllm/envs.py"] == hashlib.sha256((package / "envs.py").read_bytes()).hexdigest()
    assert not any("__pycache__" in name for name in tree.hashes)


# --- in a night ---


@pytest.fixture
def night(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    """A night on the toy's interpreter, in which toy is what vllm is elsewhere."""
    monkeypatch.setattr("agents.tuning.installed_trees.ALWAYS", ("toy", "aiter"))
    folder = whole_night(tmp_path / "other")
    config = fold_of(folder).config
    assert config is not None
    (tmp_path / "night").mkdir()
    base = EngineSpec(python=toy.python, model="m")
    overlay = Overlay.create(tmp_path / "night" / "overlay", base)
    with Ledger.create(tmp_path / "night") as ledger:
        yield Night(config, CPU, tmp_path / "night", ledger, overlay)


def fold_of(folder: Path) -> NightView:
    with Ledger.resume(folder) as ledger:
        return fold(ledger.events)


def seen(night: Night) -> list[InstalledTrees]:
    return [InstalledTrees.model_validate(e.data) for e in night.ledger.events if e.kind == "installed_trees"]


def test_a_quiet_night_is_identical(night: Night, toy: Toy) -> None:
    base = EngineSpec(python=toy.python, model="m")
    with beside(night, base):
        pass
    with beside(night, base):  # after a resume: the first start's counts
        pass
    compare(night, base)
    before, after = seen(night)
    assert (before.when, after.when) == ("before", "after")
    assert before.identical is None and after.identical is True and list(after.trees) == ["toy"]
    assert not [e for e in night.ledger.events if e.kind == "warned"]


def test_an_image_is_not_looked_for_on_this_machine(night: Night, toy: Toy) -> None:
    boxed = EngineSpec(python=toy.python, model="m", container=Container(image="rocm/vllm:1"))
    with beside(night, boxed):
        pass
    compare(night, boxed)
    assert "installed_trees" not in {event.kind for event in night.ledger.events}


def test_a_changed_file_is_named_aloud(night: Night, toy: Toy) -> None:
    base = EngineSpec(python=toy.python, model="m")
    with beside(night, base):
        pass
    (toy.package / "limits.py").write_text("LIMIT = 5\n")
    compare(night, base)
    assert seen(night)[-1].changed == ("toy/limits.py (changed)",)
    (warned,) = [e.data["message"] for e in night.ledger.events if e.kind == "warned"]
    assert warned == "1 installed files changed during the night: toy/limits.py (changed)"


def test_a_start_that_breaks_off_is_not_waited_for(night: Night, toy: Toy) -> None:
    base = EngineSpec(python=toy.python, model="m")
    with pytest.raises(KeyboardInterrupt), beside(night, base):
        raise KeyboardInterrupt
    compare(night, base)
    assert seen(night) == []


# --- in the report ---


def test_the_report_says_identical(toy: Toy, tmp_path: Path) -> None:
    before = seen_before(tmp_path, look(toy.python, ("toy",)), 0.1)
    view = NightView(trees_before=before, trees_after=seen_after(tmp_path, before, look(toy.python, ("toy",)), 0.1))
    words = "toy (7 files): identical before and after the night (__pycache__ and *.pyc left out)"
    assert words in render_html(view, "n")
    assert words.replace("_", "\\_").replace("*", "\\*") in render_markdown(view, "n")
    told = summary(view)["installed_trees"]
    assert (
        told["identical"] is True
        and told["before"]["trees"]["toy"]["digest"] == told["after"]["trees"]["toy"]["digest"]
    )
    assert "Installed files changed" not in render_html(view, "n")


def test_the_report_says_changed_on_top(toy: Toy, tmp_path: Path) -> None:
    before = seen_before(tmp_path, look(toy.python, ("toy",)), 0.1)
    (toy.package / "limits.py").write_text("LIMIT = 5\n")
    view = NightView(trees_before=before, trees_after=seen_after(tmp_path, before, look(toy.python, ("toy",)), 0.1))
    for page in (render_html(view, "n"), render_markdown(view, "n")):
        assert page.index("Installed files changed.") < page.index("Measured on")
        assert "CHANGED during the night: toy/limits.py (changed)" in page
    assert summary(view)["installed_trees"]["changed"] == ["toy/limits.py (changed)"]
    assert summary(NightView())["installed_trees"] is None
