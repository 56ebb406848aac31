"""Would vLLM start with these settings at all? What is told of an engine that cannot start helps nobody, and a number
that is none would be calculated with. Types are those of the tree; without one, of the few flags that are used here."""

from __future__ import annotations

from pydantic import JsonValue

from agents.research.knobs import Knob, Knobs, value_problem
from agents.research.model_shape import ModelShape
from contracts import EngineSpec

MOST = 2**31 - 1  # no engine counts further
TENSOR_PARALLEL = "tensor-parallel-size"
# vLLM's own bounds are at least 1 for each (0.30.0 to 0.33.0: config/parallel.py, scheduler.py, cache.py).
COUNTS = (
    TENSOR_PARALLEL, "pipeline-parallel-size", "data-parallel-size", "max-num-seqs", "max-num-batched-tokens",
    "block-size",
)  # fmt: skip
LENGTH = "max-model-len"
MEMORY = "gpu-memory-utilization"
SIZES, WIDEST = "cudagraph_capture_sizes", "max_cudagraph_capture_size"
MOST_GRAPH = 1_000_000  # tokens of one graph; every size up to the widest is listed
# Not "str": `--flag revision=12` is a text to vLLM and was read as a number here.
_CHECKED = ("int", "float", "bool", "choice")


def refused(spec: EngineSpec, knobs: Knobs, model: ModelShape | None) -> str | None:
    """The first setting that vLLM refuses, in one line with the fix; None where it starts as far as is known."""
    for name, value in spec.flags.items():
        said = _flag(name, value, knobs.flags.get(name))
        if said:
            return said
    for name, value in spec.compilation.items():
        said = _key(name, value, knobs.compilation.get(name))
        if said:
            return said
    return _split(spec, model)


def _flag(name: str, value: JsonValue, knob: Knob | None) -> str | None:
    if value is None:
        return None
    said = f"flag {name} = {_shown(value)}"
    key = name.replace("-", "_")
    if key == WIDEST or (key == SIZES and isinstance(value, list)):  # one size may stand alone on a command line
        return _key(key, value, None)
    if name in COUNTS and not _within(value, 1):
        return f"{said}: vLLM takes a whole number from 1 on, written out"
    if name == LENGTH:
        fits = value in ("auto", -1) or _within(value, 1)
        return None if fits else f"{said}: vLLM takes a number of tokens, written out (8192, not 8k)"
    if name == MEMORY and not (isinstance(value, int | float) and value is not True and 0 < value <= 1):
        return f"{said}: vLLM takes a share of the card's memory, above 0 and at most 1"
    if name == "speculative-config" and isinstance(value, dict):
        drafts = value.get("num_speculative_tokens")
        if drafts is not None and not _within(drafts, 1):
            return f"{said}: num_speculative_tokens is a whole number from 1 on"
    if knob is not None and knob.kind in _CHECKED:
        same = knob.kind == "choice" and str(value) in map(str, knob.choices)
        problem = None if same else value_problem(knob, value)
        if problem:
            return f"{said}: {problem}"
    structured = knob.kind in ("json", "list") if knob is not None else name.endswith("-config")
    return _broken(said, value) if structured else None


def _key(name: str, value: JsonValue, knob: Knob | None) -> str | None:
    if value is None:
        return None
    said = f"compilation key {name} = {_shown(value)}"
    if name == WIDEST and not _within(value, 0, MOST_GRAPH):
        return f"{said}: a graph has at most {MOST_GRAPH:,} tokens"
    if name == SIZES and not (isinstance(value, list) and all(_within(size, 1, MOST_GRAPH) for size in value)):
        return f"{said}: vLLM takes a list of sizes there, for example {SIZES}=[1,2,4,8]"
    problem = value_problem(knob, value) if knob is not None and knob.kind in _CHECKED else None
    return f"{said}: {problem}" if problem else _broken(said, value)


def _broken(said: str, value: JsonValue) -> str | None:
    """Text where JSON was begun: what could be read as JSON is a list or an object by now."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        return f"{said} is not valid JSON: close its brackets, and put its texts in double quotes"
    return None


def _split(spec: EngineSpec, model: ModelShape | None) -> str | None:
    """vLLM's verify_with_parallel_config (config/model.py, 0.30.0 to 0.33.0)."""
    ranks = spec.flags.get(TENSOR_PARALLEL)
    if model is None or not isinstance(ranks, int):
        return None
    heads = max((kind.heads for kind in model.attention), default=0)
    if heads % ranks == 0:
        return None
    return f"flag {TENSOR_PARALLEL} = {_shown(ranks)}: vLLM takes one that divides the model's {heads} attention heads"


def _within(value: JsonValue, least: int, most: int = MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _shown(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
