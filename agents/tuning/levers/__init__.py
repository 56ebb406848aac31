"""The levers, one file each, found by contracts.Lever. A lever reads, writes and checks one kind of key; nothing else
in the night may alter an EngineSpec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agents.research.knobs import Knobs
from agents.tuning.levers import (
    aiter_csv,
    aiter_json,
    compilation,
    engine_flag,
    environment,
    kernel_table,
    moe_table,
    source_patch,
)
from agents.tuning.placed import Placed
from contracts import EngineSpec, Lever


@dataclass(frozen=True)
class LeverActions:
    normalise: Callable[[str], str]  # one spelling for one key
    keys: Callable[[EngineSpec], tuple[str, ...]]  # what the spec sets, in that spelling
    read: Callable[[EngineSpec, str], JsonValue]  # None: not set
    write: Callable[[EngineSpec, str, JsonValue], EngineSpec]  # None: take it out
    validate: Callable[[str, JsonValue, Knobs], str | None]  # one line on what is wrong, or None
    # Of a lever whose values lie in files: (its section of spec.overlay, the engine's interpreter, a folder of its own
    # that the launch keeps, the engine's own variables) -> what it lays over the installed files. Raises
    # PlacementError.
    place: Callable[[Mapping[str, JsonValue], str, Path, Mapping[str, str]], Placed] | None = None


def _of(module: object) -> LeverActions:
    """A lever's module has a function for each action; only one whose values lie in files has `place`."""
    found: dict[str, Any] = {f.name: getattr(module, f.name, f.default) for f in fields(LeverActions)}
    if missing := [name for name, action in found.items() if action is MISSING]:
        raise AttributeError(f"{module} has no {', '.join(missing)}")
    return LeverActions(**found)


LEVERS: dict[Lever, LeverActions] = {
    Lever.ENGINE_FLAG: _of(engine_flag),
    Lever.ENVIRONMENT: _of(environment),
    Lever.COMPILATION: _of(compilation),
    Lever.MOE_TABLE: _of(moe_table),
    Lever.AITER_JSON: _of(aiter_json),
    Lever.AITER_CSV: _of(aiter_csv),
    Lever.KERNEL_TABLE: _of(kernel_table),
    Lever.SOURCE_PATCH: _of(source_patch),
}
