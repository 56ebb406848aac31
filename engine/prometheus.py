"""vLLM's /metrics page: the counters and gauges that say what the engine did. Names as of vLLM 0.32.0.

Counters are summed over label sets (several engines behind one server, prompt tokens by source are another name).
A name that the page does not have is absent from the result: not zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

GAUGES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_cache_usage",  # 0..1, in spite of its name
}
COUNTERS = {
    "vllm:prefix_cache_queries_total": "prefix_cache_queries",  # tokens
    "vllm:prefix_cache_hits_total": "prefix_cache_hits",  # tokens
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:iteration_tokens_total_count": "steps",  # a histogram: its count is the number of engine steps
    "vllm:iteration_tokens_total_sum": "step_tokens",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
}
_WANTED = GAUGES | COUNTERS
_LINE = re.compile(r"^(vllm:[a-z_]+)(?:\{[^\n]*\})? ([^\s]+)(?: \d+)?$", re.MULTILINE)
_CACHE_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


def parse(page: str) -> dict[str, float]:
    """The values of GAUGES and COUNTERS on the page, by our short names; kv_cache_usage is the fullest engine's."""
    seen: dict[str, float] = {}
    for name, text in _LINE.findall(page):
        short = _WANTED.get(name)
        if short is None:
            continue
        try:
            value = float(text)
        except ValueError:
            continue
        if short == "kv_cache_usage":
            seen[short] = max(seen.get(short, 0.0), value)
        else:
            seen[short] = seen.get(short, 0.0) + value
    return seen


def cache_config(page: str) -> dict[str, str]:
    """The labels of vllm:cache_config_info: block_size, num_gpu_blocks, enable_prefix_caching and more, as text."""
    match = _CACHE_CONFIG.search(page)
    return dict(_LABEL.findall(match[1])) if match else {}


def prefix_caching(page: str) -> bool | None:
    return {"True": True, "False": False}.get(cache_config(page).get("enable_prefix_caching", ""))


def counted(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float | None]:
    """What each counter grew by; None where a page did not have it or it fell (another process answered)."""
    grown: dict[str, float | None] = {}
    for name in COUNTERS.values():
        a, b = before.get(name), after.get(name)
        grown[name] = None if a is None or b is None or b < a else b - a
    return grown


def gauge_summary(scrapes: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """running_peak, running_mean, waiting_peak, waiting_mean, kv_cache_usage_peak over scrapes; None without any."""

    def values(name: str) -> list[float]:
        return [s[name] for s in scrapes if name in s]

    def mean(name: str) -> float | None:
        return sum(found) / len(found) if (found := values(name)) else None

    return {
        "running_peak": max(values("running"), default=None),
        "running_mean": mean("running"),
        "waiting_peak": max(values("waiting"), default=None),
        "waiting_mean": mean("waiting"),
        "kv_cache_usage_peak": max(values("kv_cache_usage"), default=None),
    }
