"""Puts named back ends first in the platform's order of priorities.

The platforms for AMD and NVIDIA have a function `_get_backend_priorities` in their module; their class method
`get_valid_backends` asks it, and each layer takes the first that its own class calls valid. The function is replaced in
that module by one that moves the names to the front, and the method by one that asks twice, so that the log says what
vLLM's own order would have chosen: path evidence is a choice that differs, not a list that was accepted.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from .words import PRIORITY, member, own_method, refuse, say

FUNCTION, METHOD = "_get_backend_priorities", "get_valid_backends"


def put_first(text: str) -> None:
    """`text`: names with commas between. Raises NotAsExpected."""
    from vllm.platforms import current_platform

    names = [name.strip() for name in text.split(",") if name.strip()]
    first = [member(name) for name in names]
    kind = type(current_platform)
    found = own_method(kind, METHOD)
    if found is None:
        refuse(f"{PRIORITY} is set, and {kind.__name__} has no {METHOD}: this platform has no order of priorities")
    owner, method = found
    if getattr(method, "nightgate_order", None) == text:
        return  # called again in this process
    module = method.__globals__
    own = module.get(FUNCTION)
    if not callable(own) or FUNCTION not in method.__code__.co_names:
        refuse(f"{PRIORITY} is set, and {METHOD} of {module.get('__name__')} does not ask {FUNCTION}: another version?")
    asked = threading.local()  # as vLLM would choose by itself

    @functools.wraps(own)
    def ordered(*args: Any, **kwargs: Any) -> list[Any]:
        listed = list(own(*args, **kwargs))
        if getattr(asked, "own", False):
            return listed
        return [*first, *(one for one in listed if one not in first)]

    @functools.wraps(method)
    def valid(cls: type, *args: Any, **kwargs: Any) -> Any:
        asked.own = True
        try:
            before = method(cls, *args, **kwargs)
        finally:
            asked.own = False
        after = method(cls, *args, **kwargs)
        _tell(text, _first(before), _first(after))
        return after

    valid.nightgate_order = text  # type: ignore[attr-defined]
    module[FUNCTION] = ordered
    setattr(owner, METHOD, classmethod(valid))
    say(f"{PRIORITY}={text}: {', '.join(names)} come first in {module.get('__name__')}")


_told: set[str] = set()


def _tell(text: str, before: str, after: str) -> None:
    """Once for each outcome. The probe of configs/probes/vllm.yaml looks for "layers take"."""
    said = (
        f"{PRIORITY}={text}: changes nothing here, {after} is the first valid one either way"
        if before == after
        else f"{PRIORITY}={text}: layers take {after}, by vLLM's own order they take {before}"
    )
    if said not in _told:
        _told.add(said)
        say(said)


def _first(answer: Any) -> str:
    """The name of the one with the highest priority in what get_valid_backends returns: pairs of back end and place
    (rocm.py), or objects that have both (cuda.py)."""
    valid = answer[0]
    if not valid:
        return "none"
    return str(min((_pair(one) for one in valid), key=lambda pair: pair[0])[1].name)


def _pair(one: Any) -> tuple[int, Any]:
    """(place in the order, back end)."""
    return (one.priority, one.backend) if hasattr(one, "backend") else (one[1], one[0])
