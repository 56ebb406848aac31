"""Calls back once a module has been imported, whenever that is. Nothing is imported for its sake.

A finder at the head of sys.meta_path lets the other finders find the module, and puts its callback behind the one
exec_module that follows; the loader itself stays what it was. on_code hears the code before it runs, alike.

Others have such finders too: Hygon's vllm_hcu asks all finders but itself, as this one does, and the two would ask each
other for ever. So one that is asked again for a name, in the thread that is finding it, knows nothing of it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from .say import problem

Callback = Callable[[ModuleType], None]


class _Finder:
    def __init__(self) -> None:
        self.wanted: dict[str, list[Callback]] = {}
        self.below: dict[str, list[Callback]] = {}  # by the beginning of the name
        self.code: dict[str, list[Callable[[CodeType], None]]] = {}
        self.finding = threading.local()  # .names: what this thread is asking the others for

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        names: set[str] = self.finding.__dict__.setdefault("names", set())
        if name in names or not self.callbacks(name):
            return None
        names.add(name)
        try:
            for finder in list(sys.meta_path):
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        self._behind(name, spec)
                        return spec
        finally:
            names.discard(name)
        return None

    def callbacks(self, name: str) -> list[Callback]:
        found = list(self.wanted.get(name, ()))
        for start, callbacks in self.below.items():
            if name.startswith(start):
                found += callbacks
        return found

    def _behind(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module  # the loader is its own again
            _hear_code(name, loader, self.code.get(name, ()))
            run(module)
            _call(name, module, self.callbacks(name))

        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]
        except AttributeError as error:  # a loader that takes no attributes: no evidence of this module
            problem(f"import of {name}", error)


_finder = _Finder()


def _hear_code(name: str, loader: Any, callbacks: Sequence[Callable[[CodeType], None]]) -> None:
    if not callbacks or not hasattr(loader, "get_code"):
        return
    read = loader.get_code

    def get_code(asked: str) -> Any:
        with contextlib.suppress(AttributeError):
            del loader.get_code
        code = read(asked)
        _call(name, code, callbacks)
        return code

    with contextlib.suppress(AttributeError):  # a loader that takes no attributes
        loader.get_code = get_code


def _call(name: str, held: Any, callbacks: Sequence[Callable[[Any], None]]) -> None:
    for callback in callbacks:
        try:
            callback(held)
        except Exception as error:
            problem(name, error)


def after_import(name: str, callback: Callback) -> None:
    """Calls back with the module: now if it is imported already, else when it is, again after a reload."""
    _install()
    _finder.wanted.setdefault(name, []).append(callback)
    _call_if_there(name, callback)


def on_code(name: str, callback: Callable[[CodeType], None]) -> None:
    """Calls back with the module's code, of whose functions none has run yet. Only together with after_import, and not
    for what is imported already."""
    _finder.code.setdefault(name, []).append(callback)


def after_import_below(start: str, callback: Callback) -> None:
    """The same for every module whose name begins so."""
    _install()
    _finder.below.setdefault(start, []).append(callback)
    for name in [name for name in list(sys.modules) if name.startswith(start)]:
        _call_if_there(name, callback)


def _install() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _call_if_there(name: str, callback: Callback) -> None:
    module = sys.modules.get(name)
    state = getattr(module, "__spec__", None)
    if module is not None and not getattr(state, "_initializing", False):
        _call(name, module, (callback,))


def rebind(name: str, old: object, new: object) -> None:
    """Every module that holds `old` under `name` gets `new`: those that took it by `from ... import` before."""
    for module in list(sys.modules.values()):
        try:
            names = object.__getattribute__(module, "__dict__")  # does not wake a lazy module
            if names.get(name) is old:
                names[name] = new
        except Exception:
            continue
