"""Which functions a patch changes, and what the watcher is told to look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.tuning.patching import patched
from agents.tuning.touched import Touched, functions_of, touched
from agents.tuning.watching import MOST_FUNCTIONS, to_watch
from tests.agents.test_source_patch import ADDED
from tests.agents.toy_package import FILES

BEFORE = """
import os
from math import floor

LIMIT = 4


def free(x, n=1):
    # a comment
    def inner(y):
        return y

    return inner(x) + n


@register("name")
class Box(Base):
    size = 1

    @property
    def width(self):
        return 1

    @width.setter
    def width(self, value):
        self.value = value

    async def fetch(self):
        return [x for x in await self.get()]


if os.name == "posix":

    def by_system():
        return 1

else:

    def by_system():
        return 2


@triton.autotune(configs=[], key=[])
@triton.jit
def kernel(out):
    pass
"""
MODULE = Touched(functions=(), module=True)


def changed(*pairs: tuple[str, str]) -> Touched:
    text = BEFORE
    for old, new in pairs:
        assert text.count(old) >= 1
        text = text.replace(old, new, 1)
    return touched(BEFORE.encode(), text.encode())


@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("+ n\n", "- n\n", "free"),
        ("n=1", "n=2", "free"),
        ("return y", "return y + 1", "free.<locals>.inner"),
        ("        return 1\n", "        return 2\n", "Box.width"),
        ("self.value = value", "self.value = 0", "Box.width#2"),
        ("@property", "@cached_property", "Box.width"),
        ("[x for x in", "[2 * x for x in", "Box.fetch"),
        ("return 2", "return 3", "by_system#2"),
        ("key=[]", 'key=["n"]', "kernel"),
        ("    return inner(x) + n\n", "", "free"),
        ("LIMIT = 4", "LIMIT = 4\n\n\ndef added():\n    pass", "added"),
    ],
)
def test_the_function_that_a_line_belongs_to(old: str, new: str, function: str) -> None:
    assert changed((old, new)) == Touched(functions=(function,), module=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 4", "LIMIT = 8"),
        ("LIMIT = 4", "LIMIT = 4\nLIMIT = 8"),
        ("size = 1", "size = 2"),
        ("class Box(Base)", "class Box(Other)"),
        ('@register("name")', '@register("other")'),
        ('os.name == "posix"', 'os.name == "nt"'),
        ("from math import floor", "from math import ceil as floor"),
        ("import os\n", "import os\nos.environ['X'] = '1'\n"),
    ],
)
def test_what_the_import_runs_stands_beside_functions_too(old: str, new: str) -> None:
    assert changed((old, new)) == MODULE
    assert changed((old, new), ("+ n\n", "- n\n")) == Touched(functions=("free",), module=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import os\n", "import os\nimport sys\n"),
        ("LIMIT = 4", "LIMIT = 4\n_CACHE: dict = {}"),
        ("LIMIT = 4", "LIMIT = 4\n\n\nclass New(Base):\n    field = 1"),
        ("from math import floor\n", ""),
        ("    async def fetch(self):\n        return [x for x in await self.get()]\n", ""),
    ],
)
def test_what_only_serves_functions_is_no_use_by_itself(old: str, new: str) -> None:
    """Alone it is a change outside of functions; beside a changed function that function must run."""
    assert changed((old, new)) == MODULE
    assert changed((old, new), ("+ n\n", "- n\n")) == Touched(functions=("free",), module=False)


def test_comments_and_layout_are_no_change() -> None:
    nothing = Touched(functions=(), module=False)
    assert changed(("# a comment", "# another")) == changed(("\n\n\ndef free", "\n\ndef free")) == nothing


def test_a_new_file_is_its_functions_or_where_it_has_none_its_import() -> None:
    assert touched(None, b"A = 1\ndef f(): return A\n") == Touched(functions=("f",), module=False)
    assert touched(None, b"A = 1\n") == MODULE


def test_where_their_code_begins_is_what_python_says() -> None:
    """co_firstlineno: the first decorator's line."""
    text = "import functools\n\n@functools.wraps(print)\n@functools.cache\ndef f():\n    pass\n\n\ndef g(): pass\n"
    code = compile(text, "toy.py", "exec")
    told = {inner.co_name: inner.co_firstlineno for inner in code.co_consts if hasattr(inner, "co_name")}
    assert {name: function.line for name, function in functions_of(text.encode()).items()} == told == {"f": 3, "g": 9}


def test_each_patch_has_its_own_functions_at_their_last_place(tmp_path: Path) -> None:
    """The second patch moves the first one's function down; another lever's file is no patch's."""
    package = tmp_path / "toy"
    package.mkdir()
    (package / "limits.py").write_text(FILES["limits.py"])
    both = "--- a/toy/limits.py\n+++ b/toy/limits.py\n@@ -8 +8 @@\n-    return LIMIT, FLOOR\n+    return FLOOR, LIMIT\n"
    head = "--- a/toy/limits.py\n+++ b/toy/limits.py\n@@ -1,0 +2,2 @@\n+import os\n+\n"
    replaced = {"ops/tiles.py": b"def new(): pass\n"}
    one = patched(package, replaced, [("a", both)])
    two = patched(package, one, [("b", head)])
    three = patched(package, two, [("c", ADDED)])
    assert to_watch(package, [("toy/a", replaced, one), ("toy/b", one, two), ("toy/c", two, three)], three) == [
        {"patch": "toy/a", "file": "limits.py", "module": False, "more": 0,
         "functions": [{"name": "both", "line": 9, "kernel": False}]},
        {"patch": "toy/b", "file": "limits.py", "module": True, "functions": [], "more": 0},
        {"patch": "toy/c", "file": "more.py", "module": True, "functions": [], "more": 0},
    ]  # fmt: skip


def test_a_text_that_this_python_can_not_read_and_one_with_hundreds_of_functions(tmp_path: Path) -> None:
    odd, many = (
        b"def f[T](x: T): pass\nx = = 1\n",
        b"".join(b"def f%d(): pass\n" % n for n in range(MOST_FUNCTIONS + 5)),
    )
    files = {"odd.py": odd, "many.py": many, "kernel.cu": b"int x;"}
    full, unread = to_watch(tmp_path, [("toy/a", {}, files)], files)
    assert (unread["file"], unread["functions"], unread["more"]) == ("odd.py", [], 1)
    assert isinstance(full["functions"], list) and len(full["functions"]) == MOST_FUNCTIONS and full["more"] == 5


BRANCHES = """
try:
    import fast
except ImportError:
    fast = None

match system():
    case "rocm" if fast:
        WAVES = 64
    case _:
        WAVES = 32

if fast:
    LIMIT = 8
    LIMIT = 4

    def run():
        return fast

else:

    def other():
        return 1
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("except ImportError", "except Exception"),
        ("ImportError:", "ImportError as WAVES:"),
        ('case "rocm" if fast', 'case "rocm"'),
        ('case "rocm" if', 'case "cuda" if'),
        ("    LIMIT = 8\n    LIMIT = 4\n", "    LIMIT = 4\n    LIMIT = 8\n"),
        ("    fast = None\n", "    pass\nelse:\n    fast = None\n"),
        ("    LIMIT = 4\n\n    def run():\n        return fast\n\nelse:\n",
         "    LIMIT = 4\n\nelse:\n\n    def run():\n        return fast\n"),
    ],
)  # fmt: skip
def test_an_other_branch_or_order_is_a_change_of_what_the_import_runs(old: str, new: str) -> None:
    """No function's text changes, and no statement's: where they stand does."""
    assert BRANCHES.count(old) == 1
    after = BRANCHES.replace(old, new)
    assert touched(BRANCHES.encode(), after.encode()) == MODULE
    with_function = after.replace("return 1", "return 2").encode()
    assert touched(BRANCHES.encode(), with_function) == Touched(functions=("other",), module=True)


def test_a_function_that_only_moved_within_its_branch_is_no_change() -> None:
    moved = BRANCHES.replace("    LIMIT = 8\n    LIMIT = 4\n\n    def run():\n        return fast\n",
                             "    def run():\n        return fast\n\n    LIMIT = 8\n    LIMIT = 4\n")  # fmt: skip
    assert moved != BRANCHES
    assert touched(BRANCHES.encode(), moved.encode()) == Touched(functions=(), module=False)


def test_what_is_nested_beyond_the_parser_is_text_that_cannot_be_read() -> None:
    """Python's parser calls some of it a MemoryError."""
    for deep in (f"A = {'-' * 20000}1\n", f"A = 1{' + 1' * 20000}\n"):
        with pytest.raises(ValueError, match="nested too deeply"):
            touched(b"A = 1\n", deep.encode())
