"""What pydantic found wrong with a night file, in plain words: what was expected, what was given, what was meant."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from agents.strict_yaml import KeyPath, show_path

# pydantic's error type -> what belongs there
EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of a sensible size",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
}
BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def in_words(error: ErrorDetails, root: type[BaseModel], hidden: int = 0) -> str:
    """One problem, without file and line. The first `hidden` parts of the key's path are left out of the text (they
    are not in the file that a workload came from)."""
    path: KeyPath = tuple(part for part in error["loc"] if part != "[key]")  # pydantic's mark of a key that is wrong
    key = show_path(path[hidden:])
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "extra_forbidden":
        return unknown_key(path, root, hidden)
    if kind == "missing" and isinstance(path[-1], int):
        return f"{show_path(path[hidden:-1])} has too few values; expected two, [lowest, highest]"
    if kind == "missing":
        return f"{key} is missing; docs/configuration.md says what belongs there"
    if kind == "value_error":
        return f"{key}: {context.get('error', error['msg'])}".removeprefix(": ")
    given = show_value(error["input"])
    if kind in BOUNDS:
        name, words = BOUNDS[kind]
        return f"{key} must be {words} {context[name]:g}, got {given}"
    if kind in ("literal_error", "enum"):
        choices = str(context.get("expected", "")).replace("'", "")
        near = nearest(str(error["input"]), choices.replace(" or ", ", ").split(", "))
        return f"{key} must be {choices}, got {given}" + (f"; did you mean {near}?" if near else "")
    if kind in ("too_long", "too_short"):
        return f"{key} must hold {context.get('max_length', context.get('min_length'))} values, got {given}"
    if kind in EXPECTED:
        quotes = kind == "string_type" and isinstance(error["input"], (bool, int, float))
        return f"{key} must be {EXPECTED[kind]}, got {given}" + ("; put it in quotes" if quotes else "")
    return f"{key}: {error['msg']}, got {given}"


def drop_echoes(found: list[ErrorDetails], root: type[BaseModel]) -> list[ErrorDetails]:
    """Without "X is missing" where a misspelt X is reported beside it."""
    meant = set()
    for error in found:
        if error["type"] == "extra_forbidden":
            *parent, wrong = error["loc"]
            meant.add((*parent, nearest(str(wrong), list(fields_at(tuple(parent), root)))))
    return [e for e in found if e["type"] != "missing" or tuple(e["loc"]) not in meant]


def unknown_key(path: KeyPath, root: type[BaseModel], hidden: int = 0) -> str:
    """ "engine.flgs is not a key here; did you mean engine.flags?" """
    *parent, wrong = path
    shown = show_path(path[hidden:])
    here = list(fields_at(tuple(parent), root))
    near = nearest(str(wrong), here)
    if near is not None:
        return f"{shown} is not a key here; did you mean {show_path((*parent, near)[hidden:])}?"
    same = {str(p[-1]): show_path(p) for p in every_key(root)}
    elsewhere = nearest(str(wrong), list(same), cutoff=0.8)
    if elsewhere is not None and not hidden:
        return f"{shown} is not a key here; did you mean {same[elsewhere]}?"
    return f"{shown} is not a key here; the keys here are {', '.join(here)}"


def nearest(word: str, known: list[str], cutoff: float = 0.6) -> str | None:
    """The known word that was meant: spelled much like it, or the only one that it is the beginning of."""
    word = word.lower().replace("-", "_")
    matches = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
    if not matches and len(word) >= 3:
        matches = [k for k in known if k.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def show_value(value: Any) -> str:
    """A value as its writer would know it again, cut to one short line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = " ".join(value.split())
        return f"the text '{text[:40]}{'...' if len(text) > 40 else ''}'"
    if isinstance(value, Mapping):
        return f"keys ({', '.join(str(k) for k in list(value)[:4])})" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return f"{value!s:.40}"


def fields_at(path: KeyPath, root: type[BaseModel]) -> dict[str, Any]:
    """The known keys below `path` ({} where any key goes). A list's index is a step like any other."""
    model: type[BaseModel] | None = root
    for part in path:
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return {}
        model = model_in(model.model_fields[part].annotation)
    return dict(model.model_fields) if model else {}


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `Model`, `Model | None` or `tuple[Model, ...]`, else None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) is dict:
        return None
    return next((m for a in typing.get_args(annotation) if (m := model_in(a)) is not None), None)


def every_key(root: type[BaseModel], above: KeyPath = ()) -> list[KeyPath]:
    """Each key that a file of this model may hold, as a path, outer keys first."""
    keys: list[KeyPath] = []
    for name, field in root.model_fields.items():
        keys.append((*above, name))
        inner = model_in(field.annotation)
        if inner is not None:
            keys.extend(every_key(inner, (*above, name)))
    return keys
