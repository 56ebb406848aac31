"""What a spec asks for, in the names of engine/realised.py, and where the engine realised something else. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from contracts import EngineSpec

# Flags that hold a group of settings: each setting is asked for under its own name.
GROUPS = ("kernel-config", "attention-config")
ALIASES = {"backend": "attention_backend", "chunked_prefill_enabled": "enable_chunked_prefill"}
DTYPES = {"half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
# vllm/utils/argparse_utils.py: lower case is decimal, upper case binary.
SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")  # by number


def asked(spec: EngineSpec) -> tuple[tuple[str, JsonValue], ...]:
    """(name in realised, value) of everything that the spec sets. Variables that are not vLLM's are a plugin's own."""
    found: list[tuple[str, JsonValue]] = []
    for flag, value in spec.flags.items():
        if value is None:
            continue
        if flag in GROUPS and isinstance(value, dict):
            found += [(ALIASES.get(key, key), inner) for key, inner in value.items()]
        else:
            name = flag.replace("-", "_")
            found.append((ALIASES.get(name, name), value))
    found += [(f"compilation.{key}", value) for key, value in spec.compilation.items() if value is not None]
    found += [(f"env.{name}", value) for name, value in spec.env.items() if name.startswith("VLLM_")]
    return tuple(found)


def plain(name: str, value: Any) -> Any:
    """A value in the one form in which two of them can be compared."""
    if name == "compilation.mode" and isinstance(value, int) and 0 <= value < len(COMPILATION_MODES):
        return COMPILATION_MODES[value].lower()
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        text = value.strip().removeprefix("torch.")
        if text.lower() in ("true", "false"):
            return float(text.lower() == "true")
        with contextlib.suppress(ValueError):
            return float(text)
        if text[-1:] in SUFFIXES:
            with contextlib.suppress(ValueError):
                return float(text[:-1]) * SUFFIXES[text[-1]]
        return DTYPES.get(text.lower(), text.lower())
    return float(value) if isinstance(value, int | float) else value


def same(name: str, wanted: JsonValue, got: Any) -> bool:
    if plain(name, wanted) in ("auto", plain(name, got)):
        return True
    if name == "moe_backend" and isinstance(wanted, str) and isinstance(got, str):  # "triton" runs as TritonExperts
        return got.lower().startswith(wanted.replace("_", "").lower())
    # Shown as a class: SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)
    if isinstance(wanted, dict) and isinstance(got, str):
        method = wanted.get("method")
        return method is None or f"'{method}'" in got
    return False


def mismatches(spec: EngineSpec, realised: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence for each setting that was asked for and is not what runs."""
    found: list[str] = []
    for name, wanted in asked(spec):
        if name in realised and not same(name, wanted, realised[name]):
            found.append(f"asked {name.removeprefix('env.')} = {wanted}, realised {realised[name]}")
    return tuple(found)
