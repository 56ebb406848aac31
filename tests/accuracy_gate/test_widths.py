"""Widths at which an engine starts to run something else."""

import pytest
from pydantic import JsonValue

from accuracy_gate.widths import Edge, edges, plan, rows_per_request, wanted

# As engine/realised.py reads it back from a GPU engine.
GPU: dict[str, JsonValue] = {
    "max_num_seqs": 16,
    "enforce_eager": False,
    "compilation.cudagraph_mode": "FULL_AND_PIECEWISE",
    "compilation.cudagraph_capture_sizes": [1, 2, 4, 8, 16],
}
CPU: dict[str, JsonValue] = {"max_num_seqs": 16, "enforce_eager": False, "compilation.cudagraph_mode": "NONE"}


def test_with_budget_enough_every_edge_is_asked_one_below_and_one_above() -> None:
    found = plan(GPU, most_widths=99)
    assert found.widths == (2, 3, 4, 5, 7, 8, 9, 15, 16) and not found.left_out
    assert found.sentence == "every width at a known edge was exercised"


def test_a_small_budget_goes_to_the_widest_and_then_to_graphs_that_nothing_has_run_yet() -> None:
    """Alone runs the graph of 1, eight at a time that of 8. Left are those of 16, of 4 (by 3, padded) and of 2."""
    assert plan(GPU, 1, asked_anyway=(1, 8)).widths == (16,)
    assert plan(GPU, 2, asked_anyway=(1, 8)).widths == (3, 16)
    third = plan(GPU, 3, asked_anyway=(1, 8))
    assert third.widths == (2, 3, 16) and third.left_out == (4, 5, 7, 9, 15)
    assert third.sentence == "widths not exercised: 4, 5, 7, 9, 15"


def test_a_few_widths_span_a_long_list_of_graphs() -> None:
    sizes: list[JsonValue] = [1, 2, 4, *range(8, 257, 8)]
    big = GPU | {"max_num_seqs": 256, "compilation.cudagraph_capture_sizes": sizes}
    assert plan(big, 4, asked_anyway=(1, 8)).widths == (3, 47, 111, 256)


def test_without_graphs_the_scheduler_s_limit_is_the_only_edge() -> None:
    assert plan(CPU, 9, asked_anyway=(1, 8)).widths == (15, 16)
    assert plan(CPU | {"max_num_seqs": 4}, 9, asked_anyway=(1, 8)).widths == (3,)  # 8 at a time run as 4


def test_eager_engines_have_no_graphs_whatever_sizes_they_list() -> None:
    assert plan(GPU | {"enforce_eager": True}, 9).widths == (15, 16)


def test_tile_buckets_are_edges_too() -> None:
    found, _ = edges(CPU, tile_edges=[4, 8])
    assert found == (Edge(rows=4, kind="tile"), Edge(rows=8, kind="tile"), Edge(rows=16, kind="max-num-seqs"))
    assert plan(CPU, 2, asked_anyway=(1, 8), tile_edges=[4, 8]).widths == (3, 16)


def test_drafted_tokens_make_more_rows_of_a_request() -> None:
    speculation: JsonValue = "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"
    assert rows_per_request({"speculative_config": speculation}) == 4
    assert rows_per_request({"speculative_config": None}) == rows_per_request({}) == 1
    assert wanted([Edge(rows=16, kind="graph")], rows_each=4, most=8) == (1, 3, 4, 5)


def test_what_is_not_read_back_is_said_and_not_guessed() -> None:
    silent: dict[str, JsonValue] = {"compilation.cudagraph_mode": "PIECEWISE"}
    found = plan(silent, 3)
    assert found.widths == ()
    assert found.sentence.endswith("not known: the sizes of the captured graphs; not known: max-num-seqs")
    assert "whether decode batches run from captured graphs" in plan({"max_num_seqs": 4}, 3).sentence


def test_widths_above_what_the_gate_can_pay_are_left_out_and_named() -> None:
    sizes: list[JsonValue] = [1, 2, 4, *range(8, 257, 8)]
    big = GPU | {"max_num_seqs": 256, "compilation.cudagraph_capture_sizes": sizes}
    found = plan(big, 2, asked_anyway=(1, 8), widest=64)
    assert found.widths[-1] == 64 and len(found.widths) == 2
    assert 256 in found.left_out and "and" in found.sentence and "more" in found.sentence


@pytest.mark.parametrize("budget", range(8))
def test_every_wanted_width_is_asked_or_named(budget: int) -> None:
    found = plan(GPU, budget, asked_anyway=(1,))
    assert {1, *found.widths, *found.left_out} == {1, 2, 3, 4, 5, 7, 8, 9, 15, 16}
    assert len(found.widths) <= budget


def test_as_many_as_the_workload_sends_comes_first_and_bounds_the_rest() -> None:
    queues = CPU | {"max_num_seqs": 4}
    assert plan(queues, 2, asked_anyway=(1, 8), at_once=24).widths == (3, 24)  # a candidate may run 24 together
    roomy = plan(CPU | {"max_num_seqs": 256}, 2, asked_anyway=(1, 8), at_once=4)
    assert roomy.widths == (4,)  # 8 at a time ran as 8, so 4 has not been asked
