"""All levers' files of one spec, laid out for a launch."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from agents.arms import ArmFailure, Arms
from agents.tuning.installed_trees import look
from agents.tuning.levers import LEVERS
from agents.tuning.overlay_tree import STAMP
from agents.tuning.placed import Placed, PlacementError, write_whole
from agents.tuning.placing import distributions, place
from agents.tuning.static_check import static_check
from contracts import Change, Container, EngineSpec, FailureKind, Frozen, Lever, Limits
from engine.command import environment
from engine.own_plugins import CODE, FILES
from engine.placement import NOTHING
from tests.agents.examples import KNOBS
from tests.agents.free_card import FREE
from tests.agents.test_source_patch import ADDED, FLOOR, LIMIT
from tests.agents.toy_package import FILES as TOY_FILES
from tests.agents.toy_package import Toy, install
from tests.standin import standin_spec

IMAGE = Container(image="rocm/vllm:1")
TABLE = '{"M_LEQ_64": {"BLOCK_M": 16}}\n'


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return install(tmp_path)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Lever, Placed], None]:
    """Puts a stand-in in a lever's place, which lays out what the test says."""

    def put(lever: Lever, placed: Placed) -> None:
        actions = replace(LEVERS[Lever.SOURCE_PATCH], place=lambda entries, python, folder, env: placed)
        monkeypatch.setitem(LEVERS, lever, actions)

    return put


def spec(toy: Toy, **overlay: dict[str, JsonValue]) -> EngineSpec:
    return EngineSpec(python=toy.python, model="m", overlay={Lever(name): held for name, held in overlay.items()})


def test_nothing_to_lay_over_is_nothing(tmp_path: Path) -> None:
    assert place(EngineSpec(python="/none", model="m"), tmp_path / "overlay") == NOTHING
    assert not (tmp_path / "overlay").exists()


def test_a_launch_finds_the_patched_package_first(toy: Toy, tmp_path: Path) -> None:
    patched = spec(toy, source_patch={"toy/limit": LIMIT, "toy/more": ADDED})
    placement = place(patched, tmp_path / "overlay")
    tree = tmp_path / "overlay/trees/toy/toy"
    assert placement.env == {
        FILES: f"{tree}/limits.py:{tree}/more.py",  # the watcher says which were imported
        CODE: f"{tmp_path}/overlay/code.json",  # and which of their functions ran
    }
    assert toy.says("toy.LIMIT", placement.python_path) == "8"
    env = environment(patched, tmp_path / "cache", {}, (Path("/shim"),), placement)
    assert env["PYTHONPATH"].startswith(f"{tmp_path}/overlay/trees/toy:/shim:")


def test_a_table_and_a_patch_to_one_distribution_meet_in_one_tree(
    toy: Toy, tmp_path: Path, stand_in: Callable[[Lever, Placed], None]
) -> None:
    """The files first, then the patches on top of them."""
    limits = TOY_FILES["limits.py"].replace("LIMIT = 4", "LIMIT = 8")
    stand_in(
        Lever.AITER_JSON,
        Placed(
            files={"toy": {"ops/tables/gfx950.json": TABLE.encode(), "limits.py": limits.encode()}}, env={"ROWS": "1"}
        ),
    )
    both = spec(toy, aiter_json={"row": 1}, source_patch={"toy/floor": FLOOR})
    placement = place(both, tmp_path / "overlay")
    assert len(placement.python_path) == 1 and placement.env["ROWS"] == "1"
    assert (
        toy.says('toy.limits.both(), toy.ops.tiles.TILES["M_LEQ_64"]', placement.python_path)
        == "(8, 2) {'BLOCK_M': 16}"
    )


def test_the_same_spec_is_laid_out_once(toy: Toy, tmp_path: Path) -> None:
    patched = spec(toy, source_patch={"toy/limit": LIMIT})
    first = place(patched, tmp_path / "overlay")
    stamp = tmp_path / "overlay/trees/toy" / STAMP
    os.utime(stamp, (1, 1))
    assert place(patched, tmp_path / "overlay") == first
    assert stamp.stat().st_mtime == 1


@pytest.mark.parametrize(
    ("patches", "says"),
    [
        ({"toy/x": FLOOR}, "patch toy/x, toy/limits.py: hunk 1 of 1"),
        ({"gone/x": LIMIT.replace("toy/", "gone/")}, "has no package gone: install it there, or take the change out"),
        ({"toy/x": LIMIT.replace("+LIMIT = 8", "+LIMIT = = 8")}, "no Python any more: toy/limits.py: invalid syntax"),
        ({"toy/x": "no patch"}, "patch toy/x changes no file"),
        ({"toy/x": ADDED.replace("more.py", "limits.py/more.py")}, "a part of its path is a file"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    toy: Toy, tmp_path: Path, patches: dict[str, JsonValue], says: str
) -> None:
    with pytest.raises(PlacementError) as refused:
        place(spec(toy, source_patch=patches), tmp_path / "overlay")
    assert says in str(refused.value) and len(refused.value.lines) == 1


def test_what_is_no_packages_folder_is_called_by_its_name(toy: Toy, tmp_path: Path) -> None:
    site = toy.package.parent
    (site / "single.py").write_text("A = 1\n")
    (site / "spaces").mkdir()
    with zipfile.ZipFile(site / "zipped.zip", "w") as packed:
        packed.writestr("zipped/__init__.py", "A = 1\n")
    (site / "zipped.pth").write_text(f"{site / 'zipped.zip'}\n")
    for name, what in (("single", "a single module"), ("spaces", "a namespace package"), ("zipped", "in a ZIP file")):
        patch = {f"{name}/x": LIMIT.replace("toy/", f"{name}/")}
        with pytest.raises(PlacementError, match=f"^{name} of .* is {what}.*: only a package's folder"):
            place(spec(toy, source_patch=dict(patch)), tmp_path / "overlay")
        assert look(toy.python, (name,)) == {}  # not "identical, 0 files"


def test_an_images_files_are_not_this_machines(toy: Toy, tmp_path: Path) -> None:
    """Its interpreter is called python3, and so is one of the host, which has another vLLM or none."""
    boxed = spec(toy, source_patch={"toy/x": LIMIT}).model_copy(update={"container": IMAGE})
    with pytest.raises(PlacementError, match="cannot be laid over the files of an image: put it into rocm"):
        place(boxed, tmp_path / "overlay")
    base = boxed.model_copy(update={"overlay": {}})
    told = static_check(Change(lever=Lever.SOURCE_PATCH, key="toy/x", after=LIMIT), base, KNOBS)
    assert told is not None and "cannot be laid over the files of an image" in told
    own = Change(lever=Lever.KERNEL_TABLE, key="add_rms_norm#2048", after={"num_warps": 8})  # brings all that it needs
    assert static_check(own, base, KNOBS) is None
    row: dict[str, JsonValue] = {"add_rms_norm#2048": {"num_warps": 8}}
    boxed = boxed.model_copy(update={"overlay": {Lever.KERNEL_TABLE: row}})
    assert len(place(boxed, tmp_path / "overlay").python_path) == 2


def test_a_folder_that_python_cannot_have_on_its_path(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="takes ':' in a path for a list; choose another folder"):
        place(spec(toy, source_patch={"toy/x": LIMIT}), tmp_path / "a:b" / "overlay")


def test_a_variable_has_one_master(toy: Toy, tmp_path: Path, stand_in: Callable[[Lever, Placed], None]) -> None:
    stand_in(Lever.AITER_JSON, Placed(env={"FOLDER": "/a"}))
    stand_in(Lever.AITER_CSV, Placed(env={"FOLDER": "/b"}))
    with pytest.raises(PlacementError, match="FOLDER is set by lever aiter_csv and by lever aiter_json"):
        place(spec(toy, aiter_json={"x": 1}, aiter_csv={"y": 1}), tmp_path / "overlay")
    own = spec(toy, aiter_json={"x": 1}).model_copy(update={"env": {"FOLDER": "/mine"}})
    with pytest.raises(PlacementError, match="FOLDER is set by the engine's env and by lever aiter_json: take one of"):
        place(own, tmp_path / "overlay")


def test_a_variable_may_be_carried_on(toy: Toy, tmp_path: Path, stand_in: Callable[[Lever, Placed], None]) -> None:
    """A lever that read what the engine's own variable names, and has it in what it writes, says so."""
    stand_in(Lever.AITER_CSV, Placed(env={"FOLDER": "/b"}, replaces=("FOLDER",)))
    own = spec(toy, aiter_csv={"x": 1}).model_copy(update={"env": {"FOLDER": "/mine"}})
    placement = place(own, tmp_path / "overlay")
    assert placement.env == {"FOLDER": "/b"}
    assert environment(own, tmp_path, {}, (), placement)["FOLDER"] == "/b"
    stand_in(Lever.AITER_JSON, Placed(env={"FOLDER": "/c"}, replaces=("FOLDER",)))
    with pytest.raises(PlacementError, match="FOLDER is set by lever aiter_csv and by lever aiter_json"):
        place(own.model_copy(update={"overlay": {**own.overlay, Lever.AITER_JSON: {"y": 1}}}), tmp_path / "overlay")


def test_a_file_has_one_master(toy: Toy, tmp_path: Path, stand_in: Callable[[Lever, Placed], None]) -> None:
    stand_in(Lever.AITER_JSON, Placed(files={"toy": {"limits.py": b"LIMIT = 1\n"}}))
    stand_in(Lever.AITER_CSV, Placed(files={"toy": {"limits.py": b"LIMIT = 2\n"}}))
    with pytest.raises(PlacementError, match="toy/limits.py is replaced by lever aiter_csv and by lever aiter_json"):
        place(spec(toy, aiter_json={"x": 1}, aiter_csv={"y": 1}), tmp_path / "overlay")
    stand_in(Lever.AITER_CSV, Placed(files={"toy": {"../other/x.py": b""}}))
    with pytest.raises(PlacementError, match=r"\.\./other/x.py lies outside toy"):
        place(spec(toy, aiter_csv={"y": 1}), tmp_path / "overlay")


def test_a_finder_that_goes_before_the_path_is_noticed(toy: Toy, tmp_path: Path) -> None:
    """As some editable installations bring one: PYTHONPATH would be no use, and A would be compared with A."""
    finder = (
        "import sys, importlib.util as u\nclass F:\n  @staticmethod\n  def find_spec(name, path=None, target=None):\n"
        f'    if name == "toy": return u.spec_from_file_location("toy", "{toy.package}/__init__.py", '
        f'submodule_search_locations=["{toy.package}"])\nsys.meta_path.insert(0, F)\n'
    )
    (toy.package.parent / "finder_of_toy.py").write_text(finder)
    (toy.package.parent / "toy.pth").write_text("import finder_of_toy\n")
    with pytest.raises(PlacementError, match="in spite of PYTHONPATH: install it as a wheel there, not editable"):
        place(spec(toy, source_patch={"toy/limit": LIMIT}), tmp_path / "overlay")


def test_which_distributions_a_spec_lies_over(toy: Toy) -> None:
    assert distributions(EngineSpec(python="p", model="m")) == frozenset()
    overlay = spec(toy, source_patch={"toy/x": LIMIT}, aiter_json={"a": 1})
    assert distributions(overlay) == {"toy", "aiter"}


def test_a_file_is_written_once(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "deep" / "x.json", b"{}")
    os.utime(path, (1, 1))
    write_whole(path, b"{}")
    assert path.stat().st_mtime == 1
    write_whole(path, b"[]")
    assert path.read_bytes() == b"[]" and [p.name for p in path.parent.iterdir()] == ["x.json"]


# --- in a night ---


def test_a_patch_that_does_not_fit_is_a_failed_launch_of_its_arm(tmp_path: Path) -> None:
    """With the stand-in engine: the change gets its verdict, and the other arm's engine stays up."""
    events: list[tuple[str, Frozen]] = []
    arms = Arms(
        tmp_path, Limits(engine_start_s=20, engine_stop_s=5), None, lambda kind, data: events.append((kind, data)), FREE
    )
    good = standin_spec()
    bad = good.model_copy(update={"overlay": {Lever.SOURCE_PATCH: {"vllm/x": LIMIT.replace("toy/", "vllm/")}}})
    try:
        with pytest.raises(ArmFailure) as broken:
            arms.up({"A": good, "B": bad}, "e01", 0)
        assert broken.value.arm == "B" and broken.value.failure.kind is FailureKind.REFUSED_CONFIGURATION
        assert broken.value.failure.reason == (
            "patch vllm/x changes vllm/limits.py, which is not installed: write it for the installed version"
        )
        assert arms.is_up("A", good)
        failed = [json.loads(data.model_dump_json()) for kind, data in events if kind == "launch_failed"]
        assert [f["experiment_id"] for f in failed] == ["e01"]
    finally:
        arms.down()


def test_a_patch_that_fits_is_on_the_engines_path(tmp_path: Path) -> None:
    """The stand-in engine has a folder called vllm; it is started with the patched one before it."""
    arms = Arms(tmp_path, Limits(engine_start_s=20, engine_stop_s=5), None, lambda kind, data: None, FREE)
    new = "--- /dev/null\n+++ b/vllm/more.py\n@@ -0,0 +1 @@\n+A = 1\n"
    patched = standin_spec().model_copy(update={"overlay": {Lever.SOURCE_PATCH: {"vllm/more": new}}})
    try:
        engine = arms.up({"B": patched}, "e01", 0)["B"]
        path = Path(f"/proc/{engine.record.pid}/environ").read_bytes().split(b"\0")
        tree = tmp_path / "artifacts" / "overlays" / patched.id / "trees" / "vllm"
        assert any(p.startswith(f"PYTHONPATH={tree}".encode()) for p in path)
        assert (tree / "vllm" / "more.py").read_text() == "A = 1\n"
    finally:
        arms.down()
