"""What is known from elsewhere: configs/priors/*.yaml, each entry with where it was seen and under what conditions.

An entry is knowledge, not an order: it becomes a hypothesis only where its conditions hold tonight, its lever exists
and it helped there; everything else is listed as dropped with the reason, negative results included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, JsonValue, ValidationError, field_validator

from agents.research.dossier import Dossier
from agents.strict_yaml import YamlProblem, read_yaml
from agents.tuning.apply import same
from agents.tuning.levers import LEVERS
from contracts import Frozen, Lever


class PriorError(ValueError):
    """A priors file that cannot be used. One line, naming file and entry."""


class Provenance(Frozen):
    where: str  # card or machine
    who: str
    version: str  # of vLLM (and AITER), as far as it is known
    date: str
    numbers: str  # what was measured, in words and figures


class When(Frozen):
    """Conditions; all that are given must hold. Models are described by facts, never by name."""

    kind: Literal["cpu", "amd", "nvidia"] | None = None
    arch: tuple[str, ...] = ()
    vllm: str | None = None  # PEP 440 range of the installed version: ">=0.30,<0.34"
    flags: dict[str, JsonValue] = {}  # the engine holds exactly these; null: not set
    compilation_sets: tuple[str, ...] = ()  # keys that the engine's compilation configuration sets, to whatever
    concurrency_at_least: int | None = None  # of a closed loop
    concurrency_at_most: int | None = None
    shared_prefix_at_least: int | None = None  # tokens
    model_has: tuple[str, ...] = ()  # keys that config.json holds with a value: "num_experts"
    quantization: tuple[str, ...] = ()  # quant_method of config.json

    @field_validator("vllm")
    @classmethod
    def is_a_range(cls, value: str | None) -> str | None:
        try:
            SpecifierSet(value or "")
        except InvalidSpecifier:
            raise ValueError(f"{value!r} is not a version range; write for example '>=0.30,<0.34'") from None
        return value


class Prior(Frozen):
    """`outcome` is what it did there; no_effect includes accepted and ignored, hurts includes refused and wrong.
    `basis` says what the gain rests on; only "measured" is a measurement of this change alone."""

    id: str
    lever: Lever | Literal["none"]  # none: knowledge for which there is no lever yet
    key: str = ""
    value: JsonValue = None
    outcome: Literal["helps", "no_effect", "hurts", "unclear"]
    improves: tuple[Literal["throughput", "ttft", "tpot", "e2e"], ...] = ()
    gain: float | None = Field(None, gt=0)
    basis: Literal["measured", "inferred", "guess"] = "measured"
    probability: float = Field(0.5, ge=0, le=1)
    compiles: bool = False  # the changed engine compiles at start
    risk: Literal["low", "medium", "high"] = "low"
    when: When = When()
    why: str
    provenance: Provenance
    source: str = ""  # file#id, filled in when it is read


def load_priors(path: str) -> tuple[Prior, ...]:
    """Raises PriorError."""
    name = "/".join(Path(path).parts[-2:])
    try:
        raw = read_yaml(Path(path)).data
    except YamlProblem as problem:
        raise PriorError(problem.lines[0]) from None
    entries = raw.get("priors") if isinstance(raw, dict) else None
    if not isinstance(entries, list):
        raise PriorError(f"{path} must hold a list called priors")
    return tuple(_prior(entry, name, place) for place, entry in enumerate(entries, 1))


def _prior(entry: Any, file: str, place: int) -> Prior:
    if not isinstance(entry, dict):
        raise PriorError(f"{file}: entry {place} is not a mapping")
    label = entry.get("id") or f"entry {place}"
    try:
        prior = Prior.model_validate({**entry, "source": f"{file}#{label}"})
    except ValidationError as error:
        first = error.errors()[0]
        raise PriorError(f"{file}#{label}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    usable = prior.gain is not None and prior.improves and prior.key
    if prior.outcome == "helps" and prior.lever != "none" and not usable:
        raise PriorError(f"{prior.source}: a prior that helps needs key, gain and improves")
    return prior


def unmet(prior: Prior, dossier: Dossier) -> str | None:
    """The first condition that does not hold tonight, in words, or None."""
    when, card, work = prior.when, dossier.card, dossier.workload
    if when.kind and card.kind != when.kind:
        return f"it is for {when.kind}, this card is {card.kind}"
    if when.arch and card.arch not in when.arch:
        return f"it is for {', '.join(when.arch)}, this card is {card.arch}"
    if when.vllm:
        try:
            inside = SpecifierSet(when.vllm).contains(Version(dossier.knobs.version), prereleases=True)
        except InvalidVersion:
            return f"it is for vLLM {when.vllm}, and the installed version is not known"
        if not inside:
            return f"it is for vLLM {when.vllm}, installed is {dossier.knobs.version}"
    for key, value in when.flags.items():
        held = LEVERS[Lever.ENGINE_FLAG].read(dossier.spec, key)
        if not same(held, value):
            return f"it needs {key} = {value!r}, the engine has {held!r}"
    for key in when.compilation_sets:
        if LEVERS[Lever.COMPILATION].read(dossier.spec, key) is None:
            return f"it needs a compilation configuration that sets {key}"
    if when.concurrency_at_least and (work.concurrency or 0) < when.concurrency_at_least:
        return f"it needs a closed loop of at least {when.concurrency_at_least} requests"
    if when.concurrency_at_most and not 0 < (work.concurrency or 0) <= when.concurrency_at_most:
        return f"it needs a closed loop of at most {when.concurrency_at_most} requests"
    if when.shared_prefix_at_least and work.shared_prefix_tokens < when.shared_prefix_at_least:
        return f"it needs prompts that share {when.shared_prefix_at_least} tokens, not {work.shared_prefix_tokens}"
    for key in when.model_has:
        if not dossier.model_config_json.get(key):
            return f"it needs a model with {key}"
    if when.quantization:
        config = dossier.model_config_json.get("quantization_config")
        method = config.get("quant_method") if isinstance(config, dict) else None
        if method not in when.quantization:
            return f"it needs weights in {', '.join(when.quantization)}, these are {method or 'not quantised'}"
    return None
