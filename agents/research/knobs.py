"""What a vLLM can be told: its flags, environment variables and compilation keys, with their defaults. Data only;
installed_vllm.py fills it from an interpreter, vllm_source.py from source."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import JsonValue

from agents.command import Problem
from contracts import Frozen, Lever

Kind = Literal["bool", "int", "float", "str", "choice", "list", "json", "any"]


class KnobsError(Problem):
    """The interpreter has no readable vLLM. The message says what to do."""


class Knob(Frozen):
    """One thing that can be set. `default` is meaningful only with `default_known`; else `default_text` is the source's
    own expression, for example a default that the engine computes when it starts."""

    name: str
    kind: Kind = "any"
    optional: bool = False  # None is a value of its own
    choices: tuple[JsonValue, ...] = ()  # for kind "choice": all that the parser takes
    default: JsonValue = None
    default_known: bool = False
    default_text: str = ""
    source: str = ""  # file:line inside the vllm folder


class Deprecated(Frozen):
    """What a knob's own help says of its end."""

    says: str
    source: str  # file:line inside the vllm folder
    gone_in: str = ""  # "0.34.0"; "" where no version is named


UNTOLD = "unknown"  # Knobs.version of a tree that does not tell its own


class PlatformPlugin(Frozen):
    """A platform that comes from outside vLLM's tree (platform_plugins.py)."""

    name: str  # of the entry point: "hcu"
    module: str  # the package that holds it: "vllm_hcu"
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({' '.join(filter(None, (self.module, self.version)))})"


class Knobs(Frozen):
    """All knobs of one installed version."""

    version: str  # or UNTOLD
    path: str  # the vllm folder
    flags: dict[str, Knob] = {}  # without dashes in front: "max-num-seqs"
    aliases: dict[str, str] = {}  # other spellings of a flag: "tp" -> "tensor-parallel-size"
    env: dict[str, Knob] = {}
    compilation: dict[str, Knob] = {}
    flag_keys: dict[str, tuple[str, ...]] = {}  # of flags that take a configuration as JSON: the keys it has
    deprecated: dict[str, Deprecated] = {}  # "device", "kernel-config.ir_op_priority", "compilation-config.x", "VLLM_X"
    platforms: tuple[PlatformPlugin, ...] = ()  # installed beside it: one of them may decide in rocm.py's place

    @property
    def named(self) -> str:
        """In a sentence: "vLLM 0.33.0", or "this vLLM" where the tree does not tell its version."""
        return "this vLLM" if self.version == UNTOLD else f"vLLM {self.version}"

    @property
    def called(self) -> str:
        """By itself, in a heading: "vLLM 0.33.0", "a vLLM that does not tell its version", "no vLLM"."""
        if self.version != UNTOLD:
            return f"vLLM {self.version}"
        return "a vLLM that does not tell its version" if self.path else "no vLLM"

    def of(self, lever: Lever) -> Mapping[str, Knob]:
        """The knobs of a lever; {} for a lever that lies in files."""
        known = {Lever.ENGINE_FLAG: self.flags, Lever.ENVIRONMENT: self.env, Lever.COMPILATION: self.compilation}
        return known.get(lever, {})


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None. Case and - or _ do not count."""
    plain = {k.lower().replace("_", "-"): k for k in known}
    found = difflib.get_close_matches(name.lower().replace("_", "-"), plain, n=1, cutoff=0.75)
    return plain[found[0]] if found else None


def value_problem(knob: Knob, value: JsonValue) -> str | None:
    """Why `value` does not fit the knob's type, or None. Knobs of kind "any" take everything: their type is code.
    Numbers are numbers here: vLLM would also take "8k", which path evidence could not compare."""
    if value is None or knob.kind == "any":
        return None
    fits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "str": isinstance(value, str | bool),  # a bare flag stands for some optional strings
        "choice": any(_same(value, choice) for choice in knob.choices),
        "list": isinstance(value, list | str | int),  # one element may stand alone
        "json": isinstance(value, dict | list | str),
    }[knob.kind]
    if fits:
        return None
    if knob.kind == "choice":
        meant = near(str(value), [str(c) for c in knob.choices])
        hint = f"; did you mean {meant}?" if meant else ""
        return f"{knob.name} takes one of {', '.join(str(c) for c in knob.choices)}, not {json.dumps(value)}{hint}"
    return f"{knob.name} takes a value of type {knob.kind}, not {json.dumps(value)}"


def _same(a: JsonValue, b: JsonValue) -> bool:
    return json.dumps(a) == json.dumps(b)
