"""One change, one scope: from one EngineSpec to another, and the check that they differ in exactly that. Pure."""

from __future__ import annotations

import json

from pydantic import JsonValue

from agents.tuning.levers import LEVERS
from agents.tuning.levers.in_overlay import SECTIONS
from contracts import Change, EngineSpec, patch_words, rows_words

_NO_LEVER = ("python", "model", "plugin_paths", "container")  # fields of EngineSpec that no lever may touch


class ScopeError(Exception):
    """Two engines differ in something other than the one change. The message says in what."""


def same(a: JsonValue, b: JsonValue) -> bool:
    """Equal as JSON: 1, 1.0, true and "1" are four values, and the order of an object's keys does not count."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def apply(spec: EngineSpec, change: Change) -> EngineSpec:
    """`spec` with the change in it. Raises ScopeError when the spec does not hold `change.before`, when the change
    changes nothing, or when its key has another spelling of its own."""
    lever = LEVERS[change.lever]
    if lever.normalise(change.key) != change.key:
        raise ScopeError(f"write the key {change.key!r} as {lever.normalise(change.key)!r}")
    held = lever.read(spec, change.key)
    if not same(held, change.before):
        raise ScopeError(f"{change}: the engine has {shown(held)}, not {shown(change.before)}; propose it afresh")
    if same(change.before, change.after):
        raise ScopeError(f"{change}: it changes nothing")
    try:
        changed = lever.write(spec, change.key, change.after)
    except TypeError as error:
        raise ScopeError(f"{change}: {error}") from None
    exactly(spec, changed, change)
    return changed


def difference(a: EngineSpec, b: EngineSpec) -> tuple[Change, ...]:
    """All changes that lead from `a` to `b`, sorted by lever and key. Raises ScopeError where they differ in something
    that no lever may touch: interpreter, model, plugins."""
    for name in _NO_LEVER:
        if getattr(a, name) != getattr(b, name):
            raise ScopeError(
                f"the two engines differ in {name} ({getattr(a, name)} and {getattr(b, name)}), which no "
                "lever may touch"
            )
    found = []
    for lever, actions in LEVERS.items():
        keys = {*actions.keys(a), *actions.keys(b)}
        for key in sorted(keys) if lever in SECTIONS else _outermost(keys):
            before, after = actions.read(a, key), actions.read(b, key)
            if not same(before, after):
                found.append(Change(lever=lever, key=key, before=before, after=after))
    return tuple(found)


def _outermost(keys: set[str]) -> list[str]:
    """Sorted, without keys inside another one: where one engine has a value and the other an object, the key of the
    value stands for both. Not for keys that name files: a dot in them is a part of the name."""
    return sorted(k for k in keys if not any(k.startswith(other + ".") for other in keys))


def exactly(a: EngineSpec, b: EngineSpec, change: Change) -> None:
    """Raises ScopeError unless `b` is `a` with this change and nothing else."""
    found = difference(a, b)
    expected = _parts(change)
    if {c.id for c in found} == {c.id for c in expected} and expected:
        return
    if not found:
        raise ScopeError(f"{change}: the two engines are configured the same, so there is nothing to compare")
    more = [str(c) for c in found if c.id not in {e.id for e in expected}]
    missing = [str(c) for c in expected if c.id not in {f.id for f in found}]
    parts = ([f"they also differ in {'; '.join(more)}"] if more else []) + (
        [f"they do not differ in {'; '.join(missing)}"] if missing else []
    )
    raise ScopeError(f"the two engines must differ in exactly {change}, but {' and '.join(parts)}")


def _parts(change: Change) -> tuple[Change, ...]:
    """A change as difference() would list it: one whose value is an object of keys is several leaves."""
    empty = EngineSpec(python="", model="")
    lever = LEVERS[change.lever]
    try:
        return difference(
            empty if change.before is None else lever.write(empty, change.key, change.before),
            empty if change.after is None else lever.write(empty, change.key, change.after),
        )
    except TypeError as error:
        raise ScopeError(f"{change}: {error}") from None


def shown(value: JsonValue) -> str:
    """A value in a message of one line; text in quotes, for "8" is not 8."""
    if isinstance(value, str) and "\n" in value:
        return patch_words(value)
    return "nothing set" if value is None else rows_words(value)
