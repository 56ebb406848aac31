"""What can be known about a change without the card. Pure: microseconds for the change itself, and with a subject up
to a few seconds the first time, in which the installed source is parsed (kept as long as its files do not change)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from agents.research.dossier import Dossier
from agents.research.knobs import Knobs
from agents.research.limited import TooLong
from agents.tuning.apply import same, shown
from agents.tuning.levers import LEVERS, attention_backend, capture_sizes, kv_dtype
from agents.tuning.levers.in_overlay import container_fault
from contracts import Change, EngineSpec, Lever

# Keys with rules of their own, by (lever, key): they stay keys of the lever that writes them.
_RULES: dict[tuple[Lever, str], Callable[[Change, EngineSpec, Dossier], str | None]] = {
    key: module.problem for module in (attention_backend, capture_sizes, kv_dtype) for key in module.KEYS
}


def static_check(
    change: Change,
    spec: EngineSpec,
    knobs: Knobs,
    refused: Collection[str] = (),
    allowed: Collection[Lever] | None = None,
    subject: Dossier | None = None,
) -> str | None:
    """Why this change is not worth an engine start, in one line, or None. `refused` holds the ids of changes that were
    refused on the same stack, `allowed` the levers of this night (None: all). `subject` is what is known besides: the
    card, its sheet, the installed source, model and workload; without it rules that need them are not asked."""
    lever = LEVERS[change.lever]
    if allowed is not None and change.lever not in allowed:
        return f"lever {change.lever} is not allowed tonight"
    if lever.normalise(change.key) != change.key:
        return f"write the key as {lever.normalise(change.key)!r}"
    fault = container_fault(change.lever, spec.container) or lever.validate(change.key, change.after, knobs)
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
        return f"{change.key} = {change.after!r} is what {knobs.named} does by itself"
    if change.id in refused:
        return "it was refused before on this stack"
    rule = _RULES.get((change.lever, change.key)) if subject is not None and subject.knobs.path else None
    try:
        return rule(change, spec, subject) if rule is not None and subject is not None else None
    except TooLong:
        raise
    except Exception:  # source that a rule stumbles over speaks against nothing, and must not end a night
        return None
