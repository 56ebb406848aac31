"""Lever: a flag of `vllm serve`. Keys are long names without dashes in front; true is the bare flag, false --no-flag.

`max_num_seqs`, `--max-num-seqs` and `max-num-seqs` are one key. In a dotted key (`kernel-config.ir_op_priority`) only
the part before the first dot is a flag's name, as in vLLM's own parser; what follows is a key inside its JSON.
"""

from __future__ import annotations

from pydantic import JsonValue

from agents.research.knobs import Knobs, near, value_problem
from contracts import EngineSpec

# A night compares two arms that serve the same thing under the same name; these are set by the launch or say what is
# served, so they are never the one change.
_ADDRESS = "it belongs to the launch, which chooses it afresh for each engine"
_SERVED = "it decides what is served, not how fast"
NOT_OURS = {
    **dict.fromkeys(
        ("host", "port", "uds", "root-path", "api-key", "served-model-name", "config", "headless", "ssl-keyfile",
         "ssl-certfile", "ssl-ca-certs", "grpc-port", "download-dir"), _ADDRESS),
    **dict.fromkeys(
        ("model", "model-tag", "model-weights", "tokenizer", "revision", "code-revision", "tokenizer-revision",
         "hf-config-path", "hf-overrides", "load-format", "generation-config", "override-generation-config",
         "skip-tokenizer-init", "trust-remote-code", "hf-token"), _SERVED),
    **dict.fromkeys(
        ("disable-log-stats", "log-config-file", "logging-config", "uvicorn-log-level"),
        "the engine's log is the night's evidence"),
    "profiler-config": "a profiled engine is slower; the profile stage sets it for itself",
    "compilation-config": "use lever compilation_config with the key inside it, so that one change is one key",
}  # fmt: skip


def normalise(key: str) -> str:
    name, dot, rest = key.strip().lstrip("-").partition(".")
    return name.lower().replace("_", "-") + dot + rest


def keys(spec: EngineSpec) -> tuple[str, ...]:
    return tuple(dict.fromkeys(normalise(k) for k, v in spec.flags.items() if v is not None))


def read(spec: EngineSpec, key: str) -> JsonValue:
    """The flag's value, whichever spelling the spec has; None where it is not set."""
    found: JsonValue = None
    for spelling, value in spec.flags.items():  # the last one wins, as on a command line
        if normalise(spelling) == normalise(key):
            found = value
    return found


def write(spec: EngineSpec, key: str, value: JsonValue) -> EngineSpec:
    rest = {k: v for k, v in spec.flags.items() if normalise(k) != normalise(key)}
    return spec.model_copy(update={"flags": rest if value is None else rest | {normalise(key): value}})


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    key = normalise(key)
    name, _, inner = key.partition(".")
    name = knobs.aliases.get(name, name)
    if name in NOT_OURS:
        return f"flag {name} cannot be tuned: {NOT_OURS[name]}"
    knob = knobs.flags.get(name)
    if knob is None:
        return _unknown(name, knobs)
    if name != key.partition(".")[0]:
        return f"flag {key} is another name of {name}; write {name}"
    if not inner:
        return value_problem(knob, value)
    first = inner.partition(".")[0]
    inside = knobs.flag_keys.get(name)
    if inside is None:
        return f"flag {name} takes no keys after a dot" if knob.kind not in ("json", "any") else None
    if first in inside:
        return None
    meant = near(first, inside)
    return f"{name} has no key {first} in {knobs.named}" + (f"; did you mean {meant}?" if meant else "")


def _unknown(name: str, knobs: Knobs) -> str:
    positive = name.removeprefix("no-")
    if positive != name and positive in knobs.flags:
        return f"flag {name}: write {positive} with the value false"
    if name.replace("-", "_") in knobs.compilation:
        return f"{knobs.named} has no flag {name}; it is a key of lever compilation_config"
    meant = near(name, [*knobs.flags, *knobs.aliases])
    return f"{knobs.named} has no flag {name}" + (f"; did you mean {meant}?" if meant else "")
