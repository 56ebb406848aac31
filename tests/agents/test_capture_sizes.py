"""Rules of the graph capture list, against the installed vLLM's own source."""

from __future__ import annotations

from typing import Any

import pytest

from agents.research.readers import graph_coverage
from agents.tuning.levers import LEVERS
from contracts import Change, Lever
from tests.agents.installed import about, checked, cited_line

SIZES, LARGEST = "cudagraph_capture_sizes", "max_cudagraph_capture_size"


def change(known: Any, after: Any, key: str = SIZES, lever: Lever = Lever.COMPILATION, before: Any = ...) -> str | None:
    held = LEVERS[lever].read(known.spec, key) if before is ... else before
    return checked(Change(lever=lever, key=key, before=held, after=after), known)


def decode(**compilation: Any) -> Any:
    """16 requests at a time on an MI355X, graphs for decode steps alone."""
    return about("gfx950", compilation={"cudagraph_mode": "FULL_DECODE_ONLY", **compilation})


@pytest.mark.parametrize("arch", ["gfx906", "gfx950", "sm_90"])
def test_a_list_that_the_workload_uses_passes_on_every_card(arch: str) -> None:
    assert change(about(arch), [1, 2, 4, 8, 16]) is None


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([], "takes a list of sizes"),
        (8, "takes a list of sizes"),
        ([0, 1], "whole numbers from 1 on, not 0"),
        ([1, True], "whole numbers from 1 on, not True"),
        ([8, 2, 2], "write the sizes once each and ascending, or one list would be two changes: [2, 8]"),
    ],
)
def test_a_list_is_whole_numbers_once_each_and_ascending(after: Any, words: str) -> None:
    assert words in str(change(about("gfx950"), after))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"flags": {"enforce-eager": True}}, "graphs are off: enforce-eager = True"),
        ({"compilation": {"cudagraph_mode": "NONE"}}, "graphs are off: cudagraph_mode = 'NONE'"),
        ({"flags": {"optimization-level": 0}}, "graphs are off: optimization-level = 0"),
    ],
)
def test_without_graphs_the_list_does_nothing(fields: dict[str, Any], words: str) -> None:
    reason = str(change(about("gfx950", **fields), [1, 2]))
    assert words in reason
    assert "no cudagraph in use" in cited_line(reason, "config/vllm.py")


def test_a_cpu_build_captures_none() -> None:
    reason = str(change(about("cpu"), [1, 2]))
    assert reason.startswith("a CPU build captures no graphs")
    assert "cudagraph_capture_sizes = []" in cited_line(reason, "platforms/cpu.py")


def test_two_spellings_of_one_list_are_never_both_set() -> None:
    """The flag and the key of the JSON; and the JSON under another name of its flag."""
    by_flag = about("gfx950", flags={"cudagraph_capture_sizes": [1, 2]})
    reason = str(change(by_flag, [1, 2, 4, 8, 16]))
    assert reason.startswith("the flag --cudagraph-capture-sizes is set already, another spelling of the same")
    assert "cudagraph_capture_sizes are mutually exclusive" in cited_line(reason, "engine/arg_utils.py")
    by_key = about("gfx950", compilation={SIZES: [1, 2]})
    flag = change(by_key, [1, 2, 4], "cudagraph-capture-sizes", Lever.ENGINE_FLAG)
    assert "the compilation key cudagraph_capture_sizes is set already" in str(flag)
    by_json = about("gfx950", flags={"cc": {SIZES: [1, 2]}})
    assert "in the JSON of --compilation-config is set already" in str(change(by_json, [1, 2, 4]))
    assert change(by_flag, [1, 2, 4], "cudagraph-capture-sizes", Lever.ENGINE_FLAG, before=[1, 2]) is None


def test_the_largest_size_agrees_with_the_list() -> None:
    known = about("gfx950", compilation={LARGEST: 8})
    reason = str(change(known, [1, 2, 4, 16]))
    assert "vLLM refuses a list that ends at 16 beside max_cudagraph_capture_size = 8" in reason
    assert "should be consistent" in cited_line(reason, "config/vllm.py")
    assert change(known, [1, 2, 4, 8]) is None
    assert "takes a whole number from 1 on, not 0" in str(change(about("gfx950"), 0, LARGEST))


def test_sizes_above_the_token_budget_are_dropped_by_vllm() -> None:
    reason = str(change(about("gfx950", flags={"max-num-batched-tokens": 1024}), [1, 2, 1024, 2048]))
    assert "vLLM drops sizes above max-num-batched-tokens (1024): 2048" in reason
    assert "i <= max_num_tokens" in cited_line(reason, "config/vllm.py")


def test_a_size_that_no_step_needs_is_never_replayed() -> None:
    """16 requests: a decode step of 9 to 16 takes the size 16, and nothing takes 32 but a step with a prompt in it."""
    assert change(decode(), [1, 2, 4, 8, 16]) is None
    assert change(decode(), [1, 2, 4, 8, 24]) is None  # 24 serves 9 to 16
    reason = str(change(decode(), [1, 2, 4, 8, 16, 32, 64]))
    assert reason.startswith("never replayed in mode FULL_DECODE_ONLY: 32, 64; a decode step has at most 16 tokens")
    assert change(about("gfx950"), [1, 2, 4, 8, 16, 32, 64]) is None  # prompts of up to 128 tokens
    wide = str(change(about("gfx950"), [1, 16, 2048, 4096]))
    assert wide.startswith("never replayed: 4096; a step has at most 2048 tokens, prompts included")


def test_draft_tokens_round_the_sizes_up_to_whole_requests() -> None:
    known = about("gfx950", flags={"speculative-config": {"num_speculative_tokens": 2}}, compilation={SIZES: [3, 6]})
    assert "no size holds one request of 3 tokens" in str(change(known, [1, 2]))
    assert "both lists are [3, 6]" in str(change(known, [1, 3, 5, 6]))
    assert change(known, [3, 6, 12, 24, 48]) is None


def test_back_to_the_default_passes() -> None:
    assert change(about("gfx950", compilation={SIZES: [1, 2]}), None) is None


@pytest.mark.parametrize("arch", ["gfx906", "gfx950", "sm_90"])
@pytest.mark.parametrize("width", [0, 2])
def test_what_the_reader_proposes_passes(arch: str, width: int) -> None:
    flags: dict[str, Any] = {"max-num-seqs": 1024, "max-num-batched-tokens": 2048}
    flags |= {"speculative-config": {"num_speculative_tokens": width}} if width else {}
    for sizes in ([1, 2, 4], [1, 2, 4, 4096]):
        known = about(arch, load={"concurrency": 600}, flags=flags, compilation={SIZES: sizes})
        proposed = [f.change for f in graph_coverage.look(known) if f.change]
        assert len(proposed) == 1
        assert checked(proposed[0], known) is None
