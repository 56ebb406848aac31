"""What the levers for files have in common: their values lie in one section of EngineSpec.overlay, by key.

A lever's module binds its section: `keys = partial(in_overlay.keys, Lever.MOE_TABLE)`, and read and write likewise.
Keys are taken as they are; one spelling for one key is the lever's own `normalise`. A dot or a slash in such a key is
part of a file's name, never a nesting.
"""

from __future__ import annotations

from pydantic import JsonValue

from contracts import Container, EngineSpec, Lever

SECTIONS = (Lever.MOE_TABLE, Lever.AITER_JSON, Lever.AITER_CSV, Lever.KERNEL_TABLE, Lever.SOURCE_PATCH)


def container_fault(lever: Lever, container: Container | None) -> str | None:
    """Why this lever cannot serve an engine in a container, or None. What it lays is made from the installed files,
    and those of an image are not where the loop's own machine has files: its python3, if it has vLLM at all, has
    another one, whose tables would be measured instead. nightgate's own kernels bring all that they need."""
    if container is None or lever not in SECTIONS or lever is Lever.KERNEL_TABLE:
        return None
    return f"{lever} cannot be laid over the files of an image: put it into {container.image}, or use a host's engine"


def keys(lever: Lever, spec: EngineSpec) -> tuple[str, ...]:
    """What the section sets; a key without a value sets nothing."""
    return tuple(key for key, value in spec.overlay.get(lever, {}).items() if value is not None)


def read(lever: Lever, spec: EngineSpec, key: str) -> JsonValue:
    """The value at `key`, or None: not set."""
    return spec.overlay.get(lever, {}).get(key.strip())


def write(lever: Lever, spec: EngineSpec, key: str, value: JsonValue) -> EngineSpec:
    """`spec` with the value at `key`; None takes it out, and an empty section goes with its last key, so that a spec
    is the same again after a change and its opposite."""
    section = {k: v for k, v in spec.overlay.get(lever, {}).items() if k != key.strip()}
    if value is not None:
        section[key.strip()] = value
    rest = {name: held for name, held in spec.overlay.items() if name is not lever}
    return spec.model_copy(update={"overlay": rest | {lever: section} if section else rest})
