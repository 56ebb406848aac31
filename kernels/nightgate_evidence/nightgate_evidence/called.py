"""Whether a patch's own functions ran, and not only its file was imported.

NIGHTGATE_EVIDENCE_CODE names a JSON file that whoever lays the overlay writes (agents/tuning/placing.py): a list of
{"patch", "file", "module", "functions": [{"name", "line", "kernel"}], "more"}. When the file is imported, what can be
seen of each function is told, and one line more at its first run, in each process that is not a fork of one that told:

    nightgate-evidence code {"patch": ..., "file": ..., "module": false, "more": 0}
    nightgate-evidence code {"patch": ..., "file": ..., "function": "C.step", "watched": true}
    nightgate-evidence called {"file": ..., "function": "C.step", "how": "called"}

Watched are code objects, as the module's own code holds them: so it does not matter what a decorator makes of the
function, where it was imported to, whether it is a method, a generator, a coroutine or made anew at each call.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from . import running
from .hooks import after_import, on_code
from .imports import module_names
from .say import line

CODE = "NIGHTGATE_EVIDENCE_CODE"
_DYNAMO = "torch._dynamo.symbolic_convert"


def watch_all() -> None:
    path = os.environ.get(CODE)
    if not path:
        return
    with open(path, encoding="utf-8") as file:
        parts = json.load(file)
    for patched in dict.fromkeys(part["file"] for part in parts):
        held = _File(patched, [part for part in parts if part["file"] == patched])
        for name in module_names(patched):
            on_code(name, held.compiled)
            after_import(name, held.imported)
    after_import(_DYNAMO, running.hear_dynamo)


class _File:
    def __init__(self, path: str, parts: list[dict[str, Any]]) -> None:
        self.path, self.parts = path, parts
        functions = [function for part in parts for function in part["functions"]]
        self.names = {_place(f["name"], f["line"]): f["name"] for f in functions if not f["kernel"]}
        self.kernels = {_place(f["name"], f["line"]): f["name"] for f in functions if f["kernel"]}
        self.known: set[int] = set()  # code objects that were looked at
        self.watched: dict[str, bool] = {}
        self.told: set[str] = set()

    def compiled(self, code: CodeType) -> None:
        """The module's code, before it runs; or a function's, where the module was imported before we came."""
        if os.path.abspath(code.co_filename) != self.path:
            return
        for inner in _walk(code):
            name = self.names.get((inner.co_name, inner.co_firstlineno))
            if name is not None and id(inner) not in self.known:
                self.known.add(id(inner))
                seen = running.watch(inner, self._teller(name))
                self.watched[name] = seen and self.watched.get(name, True)

    def imported(self, module: ModuleType) -> None:
        if os.path.abspath(getattr(module, "__file__", None) or "") != self.path:
            return
        if not self.known:
            for thing in gc.get_objects():
                if type(thing) is FunctionType and thing.__code__.co_filename == self.path:
                    self.compiled(thing.__code__)
        for place, kernel in _kernels(module):
            name = self.kernels.get(place)
            if name is not None:
                self.watched[name] = running.watch_kernel(kernel, self._teller(name))
        for part in self.parts:
            head = {"patch": part["patch"], "file": self.path}
            line("code", {**head, "module": part["module"], "more": part["more"]})
            for function in part["functions"]:
                name = function["name"]
                line("code", {**head, "function": name, "watched": self.watched.get(name, False)})

    def _teller(self, name: str) -> Callable[[str], None]:
        def tell(how: str) -> None:
            if name not in self.told:
                self.told.add(name)
                line("called", {"file": self.path, "function": name, "how": how, "pid": os.getpid()})

        return tell


def _place(name: str, first: int) -> tuple[str, int]:
    """(co_name, co_firstlineno) of the function that is called so in the list."""
    return name.rpartition(".")[2].partition("#")[0], first


def _walk(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _walk(constant)


def _kernels(module: ModuleType) -> Iterator[tuple[tuple[str, int], Any]]:
    """Triton's kernels among the module's names, below autotuners and heuristics; with the place of their function."""
    for value in list(module.__dict__.values()):
        for _ in range(6):
            inner = getattr(value, "fn", None) if type(value).__module__.startswith("triton") else None
            if isinstance(inner, FunctionType):
                yield (inner.__code__.co_name, inner.__code__.co_firstlineno), value
            if inner is None:
                break
            value = inner
