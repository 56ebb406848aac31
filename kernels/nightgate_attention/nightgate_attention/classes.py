"""Lets a class of one's own stand for a back end of the registry, by vLLM's own register_backend.

The line "layers take" comes when the platform really hands the class to a layer, not when it is registered: a class
under a name that the platform never takes is accepted and ignored.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from .words import CLASS, member, own_method, refuse, say

METHOD = "get_attn_backend_cls"


def put_in(text: str) -> None:
    """`text`: NAME=package.module:Class, several with commas between. Raises NotAsExpected."""
    from vllm.v1.attention.backends import registry

    registered: dict[str, str] = {}  # class path -> name
    for part in (part.strip() for part in text.split(",")):
        name, _, place = part.partition("=")
        module, _, own = place.partition(":")
        if not (name and module and own):
            refuse(f"{CLASS}={text}: {part!r} is not of the form NAME=package.module:Class")
        if not _there(module):
            refuse(f"{CLASS}={text}: there is no module {module} on this engine's path")
        backend, path = member(name), f"{module}.{own}"
        register = getattr(registry, "register_backend", None)
        if register is None:
            refuse(f"{CLASS} is set, and this vLLM's registry has no register_backend: another version?")
        register(backend, path)
        if backend.get_path() != path:
            refuse(f"{CLASS}={text}: the registry still has {backend.get_path()} for {name}")
        registered[path] = name
    _watch(text, registered)


def _there(module: str) -> bool:
    """Looked for, not imported: a back end may import what is not ready while plugins are loaded."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _watch(text: str, registered: dict[str, str]) -> None:
    from vllm.platforms import current_platform

    kind = type(current_platform)
    found = own_method(kind, METHOD)
    if found is None:
        refuse(f"{CLASS} is set, and {kind.__name__} has no class method {METHOD}: another version?")
    owner, method = found
    if getattr(method, "nightgate_classes", None) == text:
        return  # called again in this process
    told: set[str] = set()

    @functools.wraps(method)
    def chosen(cls: type, *args: Any, **kwargs: Any) -> Any:
        path = method(cls, *args, **kwargs)
        if path in registered and path not in told:
            told.add(path)
            say(f"{CLASS}={text}: layers take {path} for {registered[path]}")
        return path

    chosen.nightgate_classes = text  # type: ignore[attr-defined]
    setattr(owner, METHOD, classmethod(chosen))
    names = ", ".join(f"{name} is {path}" for path, name in registered.items())
    say(f"{CLASS}={text}: {names} from here on")
