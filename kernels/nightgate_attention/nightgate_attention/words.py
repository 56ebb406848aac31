"""The two variables, and the plugin's one line in the engine's log."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

PRIORITY, CLASS = "NIGHTGATE_ATTENTION_PRIORITY", "NIGHTGATE_ATTENTION_CLASS"


class NotAsExpected(RuntimeError):
    """The variable's value or the installed vLLM is not what this plugin can work with."""


def say(what: str) -> None:
    print(f"nightgate_attention: {what} (pid {os.getpid()})", file=sys.stderr, flush=True)


def refuse(why: str) -> NoReturn:
    """One line, and the engine does not start."""
    say(f"refused: {why}")
    raise NotAsExpected(why)


def members() -> dict[str, Any]:
    """The back ends of the installed registry by name."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    return dict(AttentionBackendEnum.__members__)


def member(name: str) -> Any:
    known = members()
    if name not in known:
        refuse(f"this vLLM has no attention back end {name}; it has {', '.join(known)}")
    return known[name]


def own_method(kind: type, name: str) -> tuple[type, Any] | None:
    """(class that has the class method, its function): the nearest in the platform's line of classes."""
    for held in kind.__mro__:
        method = vars(held).get(name)
        if method is not None:
            return (held, method.__func__) if isinstance(method, classmethod) else None
    return None
