"""Which functions of a patched file ran: in real processes, of the tests' own Python, of a 3.12 where there is one, and
with the torch and the Triton of the engine's environment."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agents.tuning.touched import functions_of
from engine.own_plugins import CODE, TOLD_WITHIN_S
from tests.kernels.test_evidence_plugin import REGISTER, lines, run
from tests.real import engine_python

SHAPES = """
import asyncio, contextlib, functools

def twice(function):
    @functools.wraps(function)
    def both(*args): return function(*args), function(*args)
    return both

def plain(n=1): return n
def plain_idle(n=1): return n
@functools.lru_cache(maxsize=4)
def cached(n): return n
@functools.lru_cache(maxsize=4)
def cached_idle(n): return n
@twice
def wrapped(n): return n
@twice
def wrapped_idle(n): return n

class Box:
    def method(self): return 1
    def method_idle(self): return 1
    @staticmethod
    def static(): return 2
    @staticmethod
    def static_idle(): return 2
    @classmethod
    def of_class(cls): return cls
    @property
    def width(self): return 3
    @width.setter
    def width(self, value): pass
    @functools.cached_property
    def height(self): return 4
    def __private(self): return 5
    def opened(self): return self.__private()

async def coroutine(): return 6
async def coroutine_idle(): return 6
def numbers(): yield 7
def numbers_idle(): yield 7
async def stream(): yield 8
@contextlib.contextmanager
def entered(): yield 9

def outer(n):
    def inner(): return n
    def inner_idle(): return n
    return inner, inner_idle

def at_import(): return len("ten")
TABLE = at_import()
"""
USE = """
from held import keep, shapes
assert keep() == 1 and shapes.cached(2) == shapes.cached(2) == 2 and shapes.wrapped(3) == (3, 3)
box = shapes.Box()
assert (box.method(), box.static(), box.of_class(), box.width, box.height, box.opened()) == (1, 2, shapes.Box, 3, 4, 5)
import asyncio
assert asyncio.run(shapes.coroutine()) == 6 and next(shapes.numbers()) == 7
async def first(): return [n async for n in shapes.stream()]
assert asyncio.run(first()) == [8]
with shapes.entered() as nine: assert nine == 9
shapes.numbers_idle()  # made, and never asked for a number
shapes.coroutine_idle().close()
assert shapes.outer(5)[0]() == 5
"""
RAN = {"plain", "cached", "wrapped", "twice", "twice.<locals>.both", "coroutine", "numbers", "stream", "entered",
       "outer", "outer.<locals>.inner", "at_import", "Box.method", "Box.static", "Box.of_class", "Box.width",
       "Box.height", "Box.__private", "Box.opened"}  # fmt: skip
IDLE = {"plain_idle", "cached_idle", "wrapped_idle", "coroutine_idle", "numbers_idle", "outer.<locals>.inner_idle",
        "Box.method_idle", "Box.static_idle", "Box.width#2"}  # fmt: skip


@pytest.fixture(params=["3.11", "3.12"])
def python(request: pytest.FixtureRequest) -> str:
    """3.11 is the tests' own."""
    if request.param == "3.11":
        return sys.executable
    beside = sorted(Path(sys.base_prefix).parent.glob("*3.1[2-9]*/bin/python3.1[2-9]"))  # as pyenv and uv lay them
    for found in (shutil.which("python3.12"), *map(str, beside)):
        if found and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
            return found
    pytest.skip("no Python 3.12 or later on the path or beside this one")


def laid(folder: Path, text: str = SHAPES, name: str = "shapes") -> dict[str, str]:
    """The file, a module that holds one of its functions by name, and the list for the watcher: all functions."""
    (folder / f"{name}.py").write_text(text)
    (folder / "held.py").write_text("import shapes\nfrom shapes import plain as keep\n")
    functions = [function.model_dump() for function in functions_of(text.encode()).values()]
    part = {"patch": "toy/x", "file": str(folder / f"{name}.py"), "module": False, "functions": functions, "more": 0}
    (folder / "code.json").write_text(json.dumps([part]))
    return {CODE: str(folder / "code.json"), "PYTHONDONTWRITEBYTECODE": "1"}


def called(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    told = lines(done, "called")
    assert len({(row["function"], row["pid"]) for row in told}) == len(told), "told twice"
    return {row["function"]: row["how"] for row in told}


def watched(done: subprocess.CompletedProcess[str]) -> dict[str, bool]:
    return {row["function"]: row["watched"] for row in lines(done, "code") if "function" in row}


@pytest.mark.parametrize("first", ["the watcher", "the module"])
def test_functions_of_every_shape_and_those_that_nobody_calls(tmp_path: Path, python: str, first: str) -> None:
    """Whether the file is imported after the watcher came or before: in vLLM much is imported already."""
    code = REGISTER + USE if first == "the watcher" else "import held\n" + REGISTER + USE
    done = run(code, tmp_path, python=python, **laid(tmp_path))
    assert set(watched(done)) == RAN | IDLE and all(watched(done).values())
    assert set(called(done)) == RAN and set(called(done).values()) == {"called"}
    assert not lines(done, "problem")


def test_a_call_before_the_watcher_came(tmp_path: Path, python: str) -> None:
    text = "LIMIT = 4\ndef early(): return LIMIT\ndef idle(): return LIMIT\n"
    code = "import shapes; shapes.early()\n" + REGISTER
    assert called(run(code, tmp_path, python=python, **laid(tmp_path, text))) == {"early": "called"}


def test_what_is_watched_stays_what_it_was(tmp_path: Path, python: str) -> None:
    """Code, signatures, loaders, the tools that look at every call, before the first call and after it."""
    code = """
import nightgate_evidence; nightgate_evidence.register()
import inspect, shapes, sys
def shown():
    functions = [f for f in (*vars(shapes).values(), *vars(shapes.Box).values()) if inspect.isfunction(f)]
    for f in functions:
        print(f.__qualname__, f.__code__.co_code.hex(), f.__code__.co_consts, inspect.signature(f), sorted(vars(f)))
    print(sys.gettrace(), sys.getprofile(), type(shapes.__loader__).__name__, sorted(vars(shapes.__loader__)))
shown()
"""
    code += USE.replace("from held import keep", "from shapes import plain as keep; import held") + "shown()"
    texts = []
    for switch in ("1", "0"):
        done = run(code, tmp_path, python=python, **laid(tmp_path), NIGHTGATE_EVIDENCE=switch)
        texts.append(re.sub(r"0x[0-9a-f]+", "", done.stdout))
        assert bool(called(done)) == (switch == "1")
    assert texts[0] == texts[1] and texts[0].count("Box.method_idle") == 2


def test_a_function_that_runs_in_another_process_or_thread_only(tmp_path: Path, python: str) -> None:
    """The engine's core may be a fork of the server, and a thread calls in it."""
    code = (
        REGISTER
        + """
import os, shapes, threading, time
if os.fork() == 0:
    thread = threading.Thread(target=shapes.plain); thread.start(); thread.join()
    time.sleep(1)
    os._exit(0)
os.wait()
"""
    )
    done = run(code, tmp_path, python=python, **laid(tmp_path))
    assert called(done)["plain"] == "called" and "plain_idle" not in called(done)


def test_a_namesake_from_another_folder_is_not_watched(tmp_path: Path, python: str) -> None:
    overlay, installed = tmp_path / "overlay", tmp_path / "installed"
    overlay.mkdir()
    installed.mkdir()
    environment = laid(overlay)
    laid(installed)
    done = run(REGISTER + "import shapes; shapes.plain()", installed, overlay, python=python, **environment)
    assert not called(done) and not watched(done)


def test_what_fails_inside_the_watcher_stays_inside(tmp_path: Path, python: str) -> None:
    code = """
import nightgate_evidence, nightgate_evidence.called as c
nightgate_evidence.register()
def broken(kind, *_): raise RuntimeError("the watcher is broken")
c.line = broken
import shapes
assert shapes.plain() == 1 and shapes.plain(2) == 2 and shapes.Box().method() == 1
"""
    done = run(code, tmp_path, python=python, **laid(tmp_path))
    problems = lines(done, "problem")
    assert {told["what"] for told in problems} == {"RuntimeError: the watcher is broken"}
    assert len({told["where"] for told in problems}) == len(problems) and not called(done)


@pytest.mark.parametrize("text", [None, "no list", '[{"patch": "x"}]'])
def test_a_list_that_can_not_be_read_is_said_and_the_rest_goes_on(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "code.json").write_text(text)
    done = run(REGISTER + "print('served')", **{CODE: str(tmp_path / "code.json")})
    assert done.stdout == "served\n" and len(lines(done, "active")) == 1
    (told,) = lines(done, "problem")
    assert told["where"] == "the list of a patch's functions"


def test_where_another_tool_has_the_place_it_is_said_that_nothing_can_be_seen(tmp_path: Path, python: str) -> None:
    code = """
import sys
if sys.version_info >= (3, 12): sys.monitoring.use_tool_id(4, "somebody")
else: import ctypes; ctypes.c_short.from_address = lambda at: ctypes.c_short(3)
"""
    done = run(code + REGISTER + "import shapes; shapes.plain()", tmp_path, python=python, **laid(tmp_path))
    assert not called(done) and not any(watched(done).values()) and len(lines(done, "problem")) == 1


DYNAMO = """
import torch, shapes
from torch._dynamo.testing import CompileCounter
def model(x): return shapes.inlined(x) * 2
for top in (model, shapes.top):
    counter = CompileCounter()
    compiled = torch.compile(top, backend=counter, fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0)) and counter.frame_count == 1
    print(counter.op_count, torch._dynamo.utils.counters["graph_break"])
"""
TRACED = """
def inlined(x): return x + 1
def top(x): return inlined(x) * 2
def idle(x): return x
"""


@pytest.mark.engine_python
@pytest.mark.timeout(300)
def test_what_torch_compiles_is_traced_and_compiled_as_without_the_watcher(tmp_path: Path) -> None:
    """A helper that is inlined, and one that is compiled itself; in one graph, which a foreign call would break."""
    environment = laid(tmp_path, TRACED) | {"HOME": str(tmp_path)}
    on = run(REGISTER + DYNAMO, tmp_path, python=engine_python(), **environment)
    off = run(DYNAMO, tmp_path, python=engine_python(), **environment)
    assert on.stdout == off.stdout and on.stdout.count("Counter()") == 2
    assert called(on) == dict.fromkeys(("inlined", "top"), "traced by torch.compile")
    assert not lines(on, "problem")


TRITON = """
import triton, triton.language as tl
@triton.jit
def helper(x): return x + 1
@triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=[])
@triton.jit
def kernel(out, BLOCK: tl.constexpr): tl.store(out, helper(BLOCK))
@triton.jit
def idle(out): tl.store(out, 1)
def made():
    @triton.jit
    def hidden(out): tl.store(out, 1)
    return hidden
"""


@pytest.mark.engine_python
@pytest.mark.timeout(120)
def test_a_kernel_of_triton_has_its_hash_once_it_is_used(tmp_path: Path) -> None:
    """Its own and as a part of another one. Nothing is launched without a card: a launch asks for the hash first."""
    code = REGISTER + "import shapes; shapes.kernel.fn.cache_key"
    done = run(code, tmp_path, python=engine_python(), HOME=str(tmp_path), **laid(tmp_path, TRITON))
    assert called(done) == dict.fromkeys(("kernel", "helper"), "compiled by Triton")
    assert watched(done) == {"helper": True, "kernel": True, "idle": True, "made": True, "made.<locals>.hidden": False}


def test_a_call_is_told_well_before_the_night_looks() -> None:
    done = run("from nightgate_evidence import running; print(running.EVERY_S)")
    assert float(done.stdout) * 5 <= TOLD_WITHIN_S
