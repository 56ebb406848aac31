"""What can be known about a change without the card. Pure, microseconds."""

from __future__ import annotations

from collections.abc import Collection

from agents.research.knobs import Knobs
from agents.tuning.apply import same, shown
from agents.tuning.levers import LEVERS
from contracts import Change, EngineSpec, Lever


def static_check(
    change: Change,
    spec: EngineSpec,
    knobs: Knobs,
    refused: Collection[str] = (),
    allowed: Collection[Lever] | None = None,
) -> str | None:
    """Why this change is not worth an engine start, in one line, or None. `refused` holds the ids of changes that were
    refused on the same stack, `allowed` the levers of this night (None: all)."""
    lever = LEVERS[change.lever]
    if allowed is not None and change.lever not in allowed:
        return f"lever {change.lever} is not allowed tonight"
    if lever.normalise(change.key) != change.key:
        return f"write the key as {lever.normalise(change.key)!r}"
    fault = lever.validate(change.key, change.after, knobs)
    if fault:
        return fault
    held = lever.read(spec, change.key)
    if same(held, change.after):
        return f"the engine already has {change.key} {'at its default' if held is None else f'= {shown(held)}'}"
    if not same(held, change.before):
        return f"the engine has {change.key} = {shown(held)} now, not {shown(change.before)}"
    knob = knobs.of(change.lever).get(change.key)
    plain = knob is not None and knob.default_known and not knob.optional
    if held is None and knob is not None and plain and same(change.after, knob.default):
        return f"{change.key} = {change.after!r} is what vLLM {knobs.version} does by itself"
    if change.id in refused:
        return "it was refused before on this stack"
    return None
