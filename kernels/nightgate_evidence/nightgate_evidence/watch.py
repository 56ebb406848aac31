"""Wraps one lookup so that the first answer to each distinct question is noted.

The answers are the original's own. What the original has around it stays: a function under lru_cache is wrapped inside
a cache of the same size, so that a hit costs what it did before, and cache_clear, cache_info and attributes that the
function keeps on itself (AITER's `get_GEMM_config.gemm_dict`) work as before. Another function costs one look into a
set more: under 1 us a call, under 3 us with a list among its arguments (timed on a busy 2-core x86 machine,
2026-11-30). Such lookups read files, so torch.compile never traces them; vLLM and AITER call them inside opaque
operators.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .hooks import rebind
from .say import problem

# What is told of one answered question: (the module, arguments by name, the answer).
Tell = Callable[[ModuleType, dict[str, Any], Any], None]
MOST_QUESTIONS = 20_000  # distinct ones that are remembered; beyond them nothing more is told of this function


def wrap(module: ModuleType, name: str, tell: Tell, around: Callable[[], Any] | None = None) -> bool:
    """Puts a watched function in the place of module.name, there and wherever it was imported to. `around` gives a
    context manager for each call that is not a cache's hit. False where there is no such function of this module."""

    def made(original: Any) -> Any:
        cached = hasattr(original, "cache_parameters") and hasattr(original, "__wrapped__")
        inner = original.__wrapped__ if cached else original
        watched: Any = _watched(module, name, inner, tell, around)
        if cached:
            sizes = original.cache_parameters()
            watched = functools.lru_cache(maxsize=sizes["maxsize"], typed=sizes["typed"])(watched)
            watched.__dict__.update(
                {k: v for k, v in vars(original).items() if k not in ("__wrapped__", "cache_parameters")}
            )
        return watched

    return replace(module, name, made)


def outside(module: ModuleType, name: str, heard: Callable[[tuple[Any, ...], Any], None]) -> bool:
    """Hears every call of module.name, cached or not: for functions that are called by watched ones only."""

    def made(original: Any) -> Any:
        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            try:
                heard(args or tuple(kwargs.values()), answer)
            except Exception as error:
                problem(f"{module.__name__}.{name}", error)
            return answer

        for extra in ("cache_clear", "cache_info", "cache_parameters", "__wrapped__"):
            if hasattr(original, extra):
                setattr(watched, extra, getattr(original, extra))
        return watched

    return replace(module, name, made)


def replace(module: ModuleType, name: str, made: Callable[[Any], Any]) -> bool:
    """Puts made(module.name) in its place, there and wherever it was imported to. False where there is no such
    function, or a watched one already."""
    original = getattr(module, name, None)
    if not callable(original) or getattr(original, "_nightgate_watched", False):
        return False
    watched = made(original)
    watched._nightgate_watched = True
    setattr(module, name, watched)
    rebind(name, original, watched)
    return True


def _watched(
    module: ModuleType, name: str, inner: Callable[..., Any], tell: Tell, around: Callable[[], Any] | None
) -> Callable[..., Any]:
    where = f"{module.__name__}.{name}"
    seen: set[Any] = set()
    signature = inspect.signature(inner)

    def note(key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        try:
            if len(seen) >= MOST_QUESTIONS:
                problem(where, f"more than {MOST_QUESTIONS} distinct questions; further ones are not told")
                return
            seen.add(key)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            tell(module, dict(bound.arguments), answer)
        except Exception as error:
            problem(where, error)

    @functools.wraps(inner)
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:  # an argument may have a hash or a comparison of its own that fails
            key = _key(args, kwargs)
            told = key in seen
        except Exception as error:
            problem(where, error)
            key, told = None, True
        if told:
            return inner(*args, **kwargs)
        if around is None:
            answer = inner(*args, **kwargs)
            note(key, args, kwargs, answer)
            return answer
        with around():
            answer = inner(*args, **kwargs)
            note(key, args, kwargs, answer)
        return answer

    return watched


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Something hashable that tells questions apart; never raises, and never looks into a tensor."""
    key = (*args, *kwargs.items()) if kwargs else args
    try:
        hash(key)
        return key
    except TypeError:
        pass
    key = tuple([tuple(value) if type(value) is list else value for value in key])  # block_shape=[128, 128]
    try:
        hash(key)
        return key
    except TypeError:
        return tuple(_hashable(value) for value in key)


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(inner) for inner in value)
    try:
        hash(value)
        return value
    except TypeError:
        return type(value).__name__
