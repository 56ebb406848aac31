"""What the engine really runs, read back from its log and its endpoints (engine/asked.py says where that differs).

That a flag was accepted proves nothing: on a CPU, vLLM 0.32 takes `--attention-backend FLASH_ATTN` and says in one
line of its log that it cannot use it. Three sources, the surest first:
    the log            what happened: attention and MoE backend, KV cache size, compile and graph lines
    /server_info       the resolved VllmConfig (vLLM >= 0.10 with VLLM_SERVER_DEV_MODE=1): the scheduler's limits
    /v1/models, /version, /metrics (vllm:cache_config_info)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import JsonValue

from contracts import EngineSpec
from engine.asked import asked

CONFIG_LINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)")
CPU_REFUSES_BACKEND = re.compile(r"Cannot use (?:AttentionBackendEnum\.)?(\w+) backend on CPU")
UNKNOWN_VARIABLE = re.compile(r"Unknown vLLM environment variable detected: (\w+)")
# What the log says of what is in use, by the name that it gets in `realised`. The last line of a kind counts.
LINES: dict[str, re.Pattern[str]] = {
    "attention_backend": re.compile(r"Using (\w+)(?: attention)? backend(?: out of potential backends|\.)"),
    "moe_backend": re.compile(r"Using '?([\w ]+?)'? (?:Unquantized |\w+ )?MoE backend"),
    "architecture": re.compile(r"Resolved architecture: (\w+)"),
    "kv_cache_tokens": re.compile(r"KV cache size: ([\d,]+) tokens"),
    "compile_s": re.compile(r"torch\.compile took ([\d.]+) s in total"),
    "graph_capture_s": re.compile(r"Graph capturing finished in ([\d.]+) secs"),
    "weights_s": re.compile(r"Loading weights took ([\d.]+) seconds"),
    "max_num_batched_tokens": re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)"),
    "omp_cores": re.compile(r"local_rank=0, core ids=\[([\d, ]*)\]"),
    "omp_reserved": re.compile(r"reserved_cpus=\[([\d, ]*)\]"),
    "stand_in": re.compile(r"stand-in API server version (\S+):"),
}  # fmt: skip
# Inside the long config line: name=value, the value up to the next comma outside brackets.
CONFIG_KEYS = ("dtype", "quantization", "enforce_eager", "kv_cache_dtype", "device_config", "seed", "load_format",
               "enable_prefix_caching", "enable_chunked_prefill", "speculative_config",
               "tensor_parallel_size")  # fmt: skip
# What /server_info's VllmConfig says truly: sizes and limits, which the scheduler and the cache take from there.
# kernel_config and attention_config are left out on purpose: they repeat what was asked, used or not.
SECTIONS = ("scheduler_config", "cache_config", "model_config", "parallel_config", "load_config")
ALWAYS = ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "async_scheduling", "block_size",
          "enable_prefix_caching", "gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks", "dtype",
          "enforce_eager", "is_moe_model", "tensor_parallel_size", "compilation.cudagraph_capture_sizes",
          "compilation.max_cudagraph_capture_size")  # fmt: skip


def value_of(text: str) -> JsonValue:
    """A Python value as printed in a log: True, None, 8, 'auto', torch.bfloat16."""
    text = text.strip().strip("'\"").removeprefix("torch.")
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    with contextlib.suppress(ValueError):
        return int(text.replace(",", ""))
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def config_value(config: str, key: str) -> str | None:
    """The text of `key=...` at any depth of the config line, up to the comma that ends it."""
    match = re.search(rf"(?:^|[\s,({{])'?{key}'?[=:]\s?", config)
    if not match:
        return None
    depth, end = 0, match.end()
    while end < len(config) and not (depth == 0 and config[end] in ",)}"):
        depth += {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}.get(config[end], 0)
        end += 1
    return config[match.end() : end]


def parse_log(log: str) -> dict[str, JsonValue]:
    """What the engine's log says that it runs."""
    found: dict[str, JsonValue] = {}
    for name, pattern in LINES.items():
        if matches := pattern.findall(log):
            found[name] = matches[-1] if name.startswith("omp_") else value_of(matches[-1])
    if config := CONFIG_LINE.search(log):
        found["version"] = config["version"]
        for key in CONFIG_KEYS:
            if (text := config_value(config["config"], key)) is not None:
                found[key] = value_of(text)
        for key in ("mode", "cudagraph_mode"):
            if text := config_value(config["config"], key):
                found[f"compilation.{key}"] = re.sub(r"^<\w+\.(\w+):.*>$", r"\1", text)
    if found.get("device_config") == "cpu":
        # vllm/platforms/cpu.py get_attn_backend_cls: outside of MLA, which has a log line of its own, nothing else.
        found.setdefault("attention_backend", "CPU_ATTN")
    for variable in UNKNOWN_VARIABLE.findall(log):
        found[f"env.{variable}"] = "unknown to this vLLM"
    if refused := CPU_REFUSES_BACKEND.findall(log):
        found["attention_backend_refused"] = refused[-1]
    return found


def cache_config(metrics: str) -> dict[str, str]:
    """The labels of vllm:cache_config_info."""
    line = re.search(r"^vllm:cache_config_info\{(.*)\}", metrics, re.MULTILINE)
    return dict(re.findall(r'(\w+)="([^"]*)"', line[1])) if line else {}


def read_endpoints(http: httpx.Client) -> dict[str, Any]:
    """Whatever of these endpoints answers; a missing one is left out, never guessed."""
    found: dict[str, Any] = {}
    for name, path in (("version", "/version"), ("models", "/v1/models"), ("info", "/server_info?config_format=json")):
        with contextlib.suppress(httpx.HTTPError, ValueError):
            # /server_info starts other programs to learn about the machine the first time it is asked.
            answer = http.get(path, timeout=60)
            if answer.status_code == 200:
                found[name] = answer.json()
    if isinstance(info := found.get("info"), dict):  # kept in the night's folder: no secrets, none of the machine's own
        info.pop("system_env", None)
        ((info.get("vllm_config") or {}).get("model_config") or {}).pop("hf_token", None)
    with contextlib.suppress(httpx.HTTPError):
        found["cache"] = cache_config(http.get("/metrics").text)
    return found


def realise(spec: EngineSpec, log: str, endpoints: Mapping[str, Any]) -> dict[str, JsonValue]:
    """What runs, one flat dict, named as flags are with "_" for "-"; compilation keys as "compilation.mode", variables
    as "env.VLLM_X". Beside what is always told, whatever the spec asks for and the engine tells. "unconfirmed" lists
    what was asked for and nothing tells about."""
    info = endpoints.get("info") or {}
    config, variables = info.get("vllm_config") or {}, info.get("vllm_env") or {}
    wanted = {*ALWAYS, *(key for key, _ in asked(spec))}
    found: dict[str, JsonValue] = {}
    for section in SECTIONS:
        for name, value in (config.get(section) or {}).items():
            if name in wanted and isinstance(value, str | int | float | bool):
                found.setdefault(name, value_of(value) if isinstance(value, str) else value)
    for name, value in (config.get("compilation_config") or {}).items():
        if f"compilation.{name}" in wanted and isinstance(value, str | int | float | bool | list):
            found[f"compilation.{name}"] = value
    found |= {f"env.{name}": variables[name] for name in spec.env if name in variables}
    cache = endpoints.get("cache") or {}
    found |= {name: value_of(text) for name, text in cache.items() if name in wanted and text != "None"}
    found |= parse_log(log)
    if found.get("is_moe_model") is False:
        found["moe_backend"] = "none, the model has no experts"
    if (version := (endpoints.get("version") or {}).get("version")) is not None:
        found["version"] = version
    for card in (endpoints.get("models") or {}).get("data", [])[:1]:
        found["max_model_len"], found["served_name"] = card.get("max_model_len"), card.get("id")
    found = {name: found[name] for name in sorted(found) if found[name] is not None}
    unconfirmed: list[JsonValue] = [key for key, _ in asked(spec) if key not in found]
    return found | ({"unconfirmed": unconfirmed} if unconfirmed else {})
