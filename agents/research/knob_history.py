"""How vLLM's knobs changed between versions: what a name of one version means on another.

Two sources. configs/knob_history.yaml holds what cannot be seen in one version's source: why a knob went, and what took
its place. `changed_defaults` and `differences` compare two versions that are both at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version
from pydantic import JsonValue, ValidationError, model_validator

from agents.research.knobs import Knob, Knobs, near
from agents.strict_yaml import YamlProblem, read_yaml
from agents.tuning.levers import LEVERS
from contracts import Frozen, Lever

FILE = Path(__file__).resolve().parents[2] / "configs" / "knob_history.yaml"


class HistoryError(ValueError):
    """The file cannot be used. One line with the place."""


class Successor(Frozen):
    """`values`: the old value as text -> the new one; None: values are carried over as they are."""

    lever: Lever
    knob: str
    values: dict[str, JsonValue] | None = None


class KnobHistory(Frozen):
    knob: str
    lever: Lever
    there: tuple[str, ...]  # of the versions that were looked at: those that have it
    defaults: dict[str, JsonValue] = {}  # by version
    arch: tuple[str, ...] = ()  # where it does something; empty: everywhere
    why: str
    instead: str
    becomes: Successor | None = None
    source: str

    @model_validator(mode="after")
    def defaults_are_of_versions_that_have_it(self) -> KnobHistory:
        strange = sorted(set(self.defaults) - set(self.there))
        if strange:
            raise ValueError(f"defaults of {', '.join(strange)}, which `there` does not list")
        return self


class History(Frozen):
    looked_at: tuple[str, ...]
    knobs: tuple[KnobHistory, ...]

    @model_validator(mode="after")
    def versions_were_looked_at_and_names_are_single(self) -> History:
        names = [(k.lever, k.knob) for k in self.knobs]
        twice = sorted({knob for lever, knob in names if names.count((lever, knob)) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands there twice")
        for entry in self.knobs:
            strange = sorted(set(entry.there) - set(self.looked_at))
            if strange:
                raise ValueError(f"{entry.knob}: {', '.join(strange)} is not in looked_at")
        try:
            ordered = sorted(self.looked_at, key=Version)
        except InvalidVersion as error:
            raise ValueError(f"looked_at: {error}") from None
        if list(self.looked_at) != ordered:
            raise ValueError("looked_at must rise")
        return self

    def of(self, lever: Lever, knob: str) -> KnobHistory | None:
        return next((k for k in self.knobs if (k.lever, k.knob) == (lever, knob)), None)


def load_history(path: Path = FILE) -> History:
    """Raises HistoryError."""
    try:
        return History.model_validate(read_yaml(path).data)
    except YamlProblem as problem:
        raise HistoryError(problem.lines[0]) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise HistoryError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


# --- one knob on one version ---


class Told(Frozen):
    """What became of a knob. there: as it was. renamed: `lever`, `key` and `value` are the new ones. gone: `why` and
    `instead` say more. unknown: no version that was looked at tells of it; `nearest` may be what was meant."""

    outcome: Literal["there", "renamed", "gone", "unknown"]
    lever: Lever
    key: str
    value: JsonValue = None
    why: str = ""
    instead: str = ""
    nearest: str | None = None


def translate(lever: Lever, key: str, value: JsonValue, knobs: Knobs, history: History) -> Told:
    """`key` as a prior, a night file or a configuration names it; only its part before the first dot is a knob."""
    key = LEVERS[lever].normalise(key)
    name, dot, rest = key.partition(".")
    known = knobs.of(lever)
    if known_name(lever, name, knobs):
        inner = knobs.flag_keys.get(knobs.aliases.get(name, name), ()) if lever is Lever.ENGINE_FLAG else ()
        first = rest.split(".")[0]
        if not rest or not inner or first in inner:
            return Told(outcome="there", lever=lever, key=key, value=value)
        meant = near(first, inner)
        return Told(outcome="unknown", lever=lever, key=key, value=value, nearest=f"{name}.{meant}" if meant else None)
    entry = history.of(lever, name)
    if entry is None:
        return Told(outcome="unknown", lever=lever, key=key, value=value, nearest=near(name, known))
    told = {"why": entry.why, "instead": entry.instead}
    new = entry.becomes
    if new is not None and not known_name(new.lever, new.knob, knobs):
        told["instead"] = f"nothing on this version; elsewhere {entry.instead}"
    elif new is not None:
        as_text = str(int(value)) if isinstance(value, bool) else str(value)
        if new.values is None or as_text in new.values:
            held = value if new.values is None else new.values[as_text]
            return Told(outcome="renamed", lever=new.lever, key=new.knob + dot + rest, value=held, **told)
    return Told(outcome="gone", lever=lever, key=key, value=value, **told)


def known_name(lever: Lever, name: str, knobs: Knobs) -> bool:
    if name in knobs.of(lever):
        return True
    negated = name.removeprefix("no-")
    return lever is Lever.ENGINE_FLAG and (name in knobs.aliases or (negated != name and negated in knobs.flags))


def default_before(entry: KnobHistory, version: str) -> tuple[str, JsonValue, JsonValue] | None:
    """(older version, its default, the default at `version`) where the default changed; None where it did not, or where
    it is not known."""
    try:
        past = sorted((v for v in entry.defaults if Version(v) <= Version(version)), key=Version)
    except InvalidVersion:
        return None
    if not past:
        return None
    now = entry.defaults[past[-1]]
    older = [v for v in past if entry.defaults[v] != now]
    return (older[-1], entry.defaults[older[-1]], now) if older else None


# --- two versions at hand ---


class DefaultChange(Frozen):
    lever: Lever
    knob: str
    before: str  # as Python writes it, or the source's own expression
    after: str


class Differences(Frozen):
    """From one version to another; names sorted."""

    added: dict[Lever, tuple[str, ...]]
    removed: dict[Lever, tuple[str, ...]]
    defaults: tuple[DefaultChange, ...]


def changed_defaults(old: Knobs, new: Knobs) -> tuple[DefaultChange, ...]:
    """Knobs that both versions have, with another default. A default that only the source's expression tells is
    compared as text, and only where both versions tell it so."""
    found = []
    for lever in Lever:
        before, after = old.of(lever), new.of(lever)
        for name in sorted(before.keys() & after.keys()):
            a, b = before[name], after[name]
            if a.default_known == b.default_known and _default(a) != _default(b):
                found.append(DefaultChange(lever=lever, knob=name, before=_default(a), after=_default(b)))
    return tuple(found)


def _default(knob: Knob) -> str:
    return repr(knob.default) if knob.default_known else knob.default_text


def differences(old: Knobs, new: Knobs) -> Differences:
    return Differences(
        added={lever: tuple(sorted(new.of(lever).keys() - old.of(lever).keys())) for lever in Lever},
        removed={lever: tuple(sorted(old.of(lever).keys() - new.of(lever).keys())) for lever in Lever},
        defaults=changed_defaults(old, new),
    )
