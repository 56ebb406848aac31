"""Does the installed vLLM know what the night file sets for every engine of the night?

An unknown flag, compilation key or choice ends the first engine as it starts; an unknown VLLM_ variable is ignored, so
that a night tunes another engine than its file says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agents.preflight import Problem
from agents.research.knobs import Knob, Knobs, value_problem
from agents.tuning.levers import LEVERS, compilation, engine_flag, environment
from contracts import EngineSpec, Lever

# What the night may not change is still the night file's to set.
_ALLOWED: dict[Lever, Mapping[str, str]] = {
    Lever.ENGINE_FLAG: engine_flag.NOT_OURS,
    Lever.COMPILATION: compilation.NOT_OURS,
    Lever.ENVIRONMENT: environment.NOT_OURS,
}
_WHERE = {Lever.ENGINE_FLAG: "engine.flags", Lever.COMPILATION: "engine.compilation", Lever.ENVIRONMENT: "engine.env"}


def unknown_settings(spec: EngineSpec, knobs: Knobs) -> Iterator[tuple[Lever, Problem]]:
    """Names that are not there, and values that are no choice of a flag. Other values are the engine's to refuse:
    vLLM reads "4k" and "0.9" as numbers. Warnings all: a plugin may know more than vLLM's own files say."""
    for lever, allowed in _ALLOWED.items():
        if not knobs.of(lever):  # not read, so nothing is known of it
            continue
        for key in LEVERS[lever].keys(spec):
            first = key.partition(".")[0]
            name = knobs.aliases.get(first, first) if lever is Lever.ENGINE_FLAG else first
            if name in allowed:
                continue
            wrong = LEVERS[lever].validate(name + key[len(first) :], None, knobs)
            knob = _knob(lever, key, name, knobs)
            if wrong is None and knob is not None and knob.kind == "choice":
                wrong = value_problem(knob, LEVERS[lever].read(spec, key))
            if wrong:
                fix = f"correct {_WHERE[lever]}.{key} in the night file"
                yield lever, Problem(what=wrong, fix=fix, fatal=False)


def ignored_settings(spec: EngineSpec, knobs: Knobs) -> Iterator[Problem]:
    """Those that an engine starts with, and without a word of its own at the end of a night."""
    return (problem for lever, problem in unknown_settings(spec, knobs) if lever is Lever.ENVIRONMENT)


def _knob(lever: Lever, key: str, name: str, knobs: Knobs) -> Knob | None:
    return None if "." in key or lever is Lever.ENVIRONMENT else knobs.of(lever).get(name)
