"""Lever: one key inside vLLM's --compilation-config. `mode` and `pass_config.fuse_norm_quant` are keys; dashes count as
underscores. A dotted key reads and writes inside the nested configuration."""

from __future__ import annotations

from pydantic import JsonValue

from agents.research.knobs import Knobs, near, value_problem
from contracts import EngineSpec

NOT_OURS = {
    **dict.fromkeys(("cache_dir", "local_cache_dir", "debug_dump_path"), "it is a folder of the launch's own"),
    "static_forward_context": "it is a working variable of the engine",
}


def normalise(key: str) -> str:
    return key.strip().lstrip("-").replace("-", "_")


def keys(spec: EngineSpec) -> tuple[str, ...]:
    """Leaf keys in dotted spelling: {"pass_config": {"a": 1}} is pass_config.a. An empty object sets nothing."""
    return tuple(_leaves(spec.compilation, ""))


def _leaves(config: dict[str, JsonValue], prefix: str) -> list[str]:
    found: list[str] = []
    for key, value in config.items():
        name = prefix + normalise(key)
        if isinstance(value, dict):
            found += _leaves(value, name + ".")
        elif value is not None:
            found.append(name)
    return list(dict.fromkeys(found))


def read(spec: EngineSpec, key: str) -> JsonValue:
    value: JsonValue = dict(spec.compilation)
    for part in normalise(key).split("."):
        if not isinstance(value, dict):
            return None
        value = next((v for k, v in value.items() if normalise(k) == part), None)
    return None if value == {} else value


def write(spec: EngineSpec, key: str, value: JsonValue) -> EngineSpec:
    return spec.model_copy(update={"compilation": _put(spec.compilation, normalise(key).split("."), value)})


def _put(config: dict[str, JsonValue], path: list[str], value: JsonValue) -> dict[str, JsonValue]:
    """`config` with the value at `path`; a nested configuration that becomes empty goes with its last key."""
    first, rest = path[0], path[1:]
    others = {k: v for k, v in config.items() if normalise(k) != first}
    if rest:
        inner = next((v for k, v in config.items() if normalise(k) == first), None)
        put = _put(inner if isinstance(inner, dict) else {}, rest, value)
        return others | {first: put} if put else others
    return others if value is None else others | {first: value}


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    key = normalise(key)
    first, _, inner = key.partition(".")
    if first in NOT_OURS:
        return f"compilation key {first} cannot be tuned: {NOT_OURS[first]}"
    knob = knobs.compilation.get(first)
    if knob is None:
        meant = near(first, knobs.compilation)
        if not meant and normalise(first).replace("_", "-") in knobs.flags:
            return f"{knobs.named} has no compilation key {first}; it is an engine_flag"
        return f"{knobs.named} has no compilation key {first}" + (f"; did you mean {meant}?" if meant else "")
    if inner:
        return None if knob.kind in ("json", "any") else f"compilation key {first} takes no keys after a dot"
    return value_problem(knob, value)
