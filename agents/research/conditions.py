"""When does knowledge from elsewhere apply tonight? Conditions of a prior, by facts of card, engine, load and model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import JsonValue, field_validator

from agents.research.dossier import Dossier
from agents.research.model_shape import ModelShape, ModelShapeError, model_shape
from agents.research.source_line import line_of
from agents.research.tables.prompt_tiles import nothing_new
from agents.tuning.apply import same
from agents.tuning.levers import LEVERS
from contracts import Frozen, Lever

NOT_QUANTISED = "none"  # in When.quantization
_DTYPES = {"half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16"}  # vLLM's other spellings


class When(Frozen):
    """Conditions; all that are given must hold. Models are described by facts, never by name."""

    kind: Literal["cpu", "amd", "nvidia"] | None = None
    arch: tuple[str, ...] = ()
    vllm: str | None = None  # PEP 440 range of the installed version: ">=0.30,<0.34"
    flags: dict[str, JsonValue] = {}  # the engine holds exactly these; null: not set
    env: dict[str, JsonValue] = {}  # the engine's environment holds exactly these; null: not set
    compilation_sets: tuple[str, ...] = ()  # keys that the engine's compilation configuration sets, to whatever
    draft_tokens_at_least: int | None = None  # of speculative decoding, for each step
    tensor_parallel_at_least: int | None = None
    concurrency_at_least: int | None = None  # of a closed loop
    concurrency_at_most: int | None = None
    shared_prefix_at_least: int | None = None  # tokens
    prompt_tokens_at_least: int | None = None  # the longest prompts of the load have as many
    model_has: tuple[str, ...] = ()  # keys that config.json holds with a value: "num_experts", "a.b", "either|or"
    quantization: tuple[str, ...] = ()  # quant_method of config.json; "none": not quantised
    dtype: tuple[str, ...] = ()  # of the activations: "float16", "bfloat16"
    head_size_at_least: int | None = None  # of any attention layer
    experts: bool | None = None  # the model has layers with experts
    # Rows of the tile that prompts get in unified attention of the AITER that is audited. A tree that is not there, or
    # cannot be followed, does not speak against it.
    prompt_tile_rows_below: int | None = None
    # "platforms/rocm.py: gfx9006": this file of the installed vLLM holds that text, or does not. For what forks mend or
    # add. A file that is not there holds nothing; a tree that is not there does not speak against it.
    source_has: tuple[str, ...] = ()
    source_lacks: tuple[str, ...] = ()
    linear_attention: bool | None = None  # or gated delta nets, Mamba: layers with a state instead of a KV cache

    @field_validator("source_has", "source_lacks")
    @classmethod
    def are_a_file_and_a_text(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            file, colon, text = one.partition(": ")
            if not colon or not text or not re.fullmatch(r"\w[\w/]*\.(py|cu|cuh|h)", file):
                raise ValueError(f"{one!r} is no file and text; write for example 'platforms/rocm.py: gfx9006'")
        return value

    @field_validator("vllm")
    @classmethod
    def is_a_range(cls, value: str | None) -> str | None:
        try:
            SpecifierSet(value or "")
        except InvalidSpecifier:
            raise ValueError(f"{value!r} is not a version range; write for example '>=0.30,<0.34'") from None
        return value


def unmet(when: When, dossier: Dossier) -> str | None:
    """The first condition that does not hold tonight, in words, or None. What is not known does not hold, but for what
    only a tree can say."""
    checks = (_card, _version, _engine, _load, _model, _trees)
    return next((reason for check in checks for reason in check(when, dossier)), None)


def _card(when: When, dossier: Dossier) -> Iterator[str]:
    card = dossier.card
    if when.kind and card.kind != when.kind:
        yield f"it is for {when.kind}, this card is {card.kind}"
    if when.arch and card.arch not in when.arch:
        yield f"it is for {', '.join(when.arch)}, this card is {card.arch}"


def _version(when: When, dossier: Dossier) -> Iterator[str]:
    if when.vllm:
        try:
            inside = SpecifierSet(when.vllm).contains(Version(dossier.knobs.version), prereleases=True)
        except InvalidVersion:
            yield f"it is for vLLM {when.vllm}, and the installed version is not known"
            return
        if not inside:
            yield f"it is for vLLM {when.vllm}, installed is {dossier.knobs.version}"


def _engine(when: When, dossier: Dossier) -> Iterator[str]:
    for lever, wanted in ((Lever.ENGINE_FLAG, when.flags), (Lever.ENVIRONMENT, when.env)):
        for key, value in wanted.items():
            held = LEVERS[lever].read(dossier.spec, key)
            if not same(held, value):
                yield f"it needs {key} = {value!r}, the engine has {held!r}"
    for key in when.compilation_sets:
        if LEVERS[Lever.COMPILATION].read(dossier.spec, key) is None:
            yield f"it needs a compilation configuration that sets {key}"
    if when.draft_tokens_at_least and dossier.draft_tokens < when.draft_tokens_at_least:
        yield f"it needs at least {when.draft_tokens_at_least} drafted tokens a step, not {dossier.draft_tokens}"
    if when.tensor_parallel_at_least and dossier.tensor_parallel < when.tensor_parallel_at_least:
        yield f"it needs at least {when.tensor_parallel_at_least} cards for one engine, not {dossier.tensor_parallel}"


def _load(when: When, dossier: Dossier) -> Iterator[str]:
    work = dossier.workload
    if when.concurrency_at_least and (work.concurrency or 0) < when.concurrency_at_least:
        yield f"it needs a closed loop of at least {when.concurrency_at_least} requests"
    if when.concurrency_at_most and not 0 < (work.concurrency or 0) <= when.concurrency_at_most:
        yield f"it needs a closed loop of at most {when.concurrency_at_most} requests"
    if when.prompt_tokens_at_least and max(work.input_tokens) < when.prompt_tokens_at_least:
        yield f"it needs prompts of {when.prompt_tokens_at_least} tokens, the longest have {max(work.input_tokens)}"
    if when.shared_prefix_at_least and work.shared_prefix_tokens < when.shared_prefix_at_least:
        yield f"it needs prompts that share {when.shared_prefix_at_least} tokens, not {work.shared_prefix_tokens}"


def _model(when: When, dossier: Dossier) -> Iterator[str]:
    config = dossier.model_config_json
    for key in when.model_has:
        if not any(_held(config, path.split(".")) for path in key.split("|")):
            yield f"it needs a model with {key.replace('|', ' or ')}"
    if when.quantization:
        method = _quantization(dossier)
        if (method or NOT_QUANTISED) not in when.quantization:
            yield f"it needs weights in {', '.join(when.quantization)}, these are {method or 'not quantised'}"
    if not (when.dtype or when.head_size_at_least or when.experts is not None or when.linear_attention is not None):
        return
    shape = shape_of(dossier)
    if shape is None:
        yield "it depends on the model's shapes, and they are not known"
        return
    set_dtype = LEVERS[Lever.ENGINE_FLAG].read(dossier.spec, "dtype")
    dtype = shape.dtype if set_dtype in (None, "auto") else str(set_dtype)
    if when.dtype and _DTYPES.get(dtype, dtype) not in when.dtype:
        yield f"it is for activations in {', '.join(when.dtype)}, these are {_DTYPES.get(dtype, dtype)}"
    widest = max((kind.head_size for kind in shape.attention), default=0)
    if when.head_size_at_least and widest < when.head_size_at_least:
        yield f"it needs attention heads of at least {when.head_size_at_least}, the widest is {widest}"
    if when.experts is not None and when.experts != (shape.experts is not None):
        yield "it needs a model with experts" if when.experts else "it needs a model without experts"
    if when.linear_attention is not None and when.linear_attention != (shape.linear_attention_layers > 0):
        yield "it needs linear-attention layers" if when.linear_attention else "it needs attention in every layer"


def _trees(when: When, dossier: Dossier) -> Iterator[str]:
    for wanted, told in ((when.source_has, True), (when.source_lacks, False)):
        for one in wanted if dossier.knobs.path else ():
            file, _, text = one.partition(": ")
            if (":" in line_of(dossier.knobs.path, file, text)) is not told:
                is_ = "is not in" if told else "is in"
                yield f"it is for another vLLM: {text!r} {is_} vllm/{file} of {dossier.knobs.named}"
    if when.prompt_tile_rows_below:
        reason = nothing_new(dossier, when.prompt_tile_rows_below)
        if reason:
            yield reason


def shape_of(dossier: Dossier) -> ModelShape | None:
    """The dossier's, else that of its config.json; None where neither describes a decoder."""
    if dossier.model is not None:
        return dossier.model
    try:
        return model_shape(dossier.model_config_json)
    except (ModelShapeError, TypeError, ValueError):
        return None


def _quantization(dossier: Dossier) -> str | None:
    held = dossier.model_config_json.get("quantization_config")
    method = held.get("quant_method") if isinstance(held, dict) else None
    return str(method) if method else dossier.model.quantization if dossier.model else None


def _held(config: Any, path: list[str]) -> bool:
    """A value is there that is neither null, false, zero nor empty; in `text_config` too."""
    for top in (config, config.get("text_config")):
        found: Any = top
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found:
            return True
    return False
