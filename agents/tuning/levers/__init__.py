"""The levers, one file each, found by contracts.Lever. A lever reads, writes and checks one kind of key; nothing else
in the night may alter an EngineSpec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.tuning.levers import compilation, engine_flag, environment
from contracts import EngineSpec, Lever


@dataclass(frozen=True)
class LeverActions:
    normalise: Callable[[str], str]  # one spelling for one key
    keys: Callable[[EngineSpec], tuple[str, ...]]  # what the spec sets, in that spelling
    read: Callable[[EngineSpec, str], JsonValue]  # None: not set
    write: Callable[[EngineSpec, str, JsonValue], EngineSpec]  # None: take it out
    validate: Callable[[str, JsonValue, Knobs], str | None]  # one line on what is wrong, or None


def _of(module: object) -> LeverActions:
    return LeverActions(**{name: getattr(module, name) for name in LeverActions.__dataclass_fields__})


LEVERS: dict[Lever, LeverActions] = {
    Lever.ENGINE_FLAG: _of(engine_flag),
    Lever.ENVIRONMENT: _of(environment),
    Lever.COMPILATION: _of(compilation),
}
