"""The definitions in engine/metrics.py against samples computed by hand."""

from __future__ import annotations

import pytest

from contracts import Limit, Objective, Workload
from engine.load import LoadResult, Sample
from engine.metrics import chunk_sizes, e2e_ms, itl_ms, metric_names, run_metrics, tpot_ms, ttft_ms
from engine.prompts import Phase

CLOSED = Workload(
    name="t", concurrency=2, requests=2, warmup_requests=1, input_tokens=(10, 10), output_tokens=(4, 4),
    objective=Objective(limits=(Limit(metric="tpot_ms_p95", at_most=100), Limit(metric="requests_per_s", at_most=9))),
)  # fmt: skip


def sample(
    start: float, chunks: list[tuple[float, int]], phase: Phase = "measured", error: str | None = None
) -> Sample:
    tokens = chunks[-1][1] if chunks else 0
    end = chunks[-1][0] if chunks else start
    return Sample(0, phase, None, start, tuple(chunks), end, 10, 4, 10, tokens, error)


def result(*samples: Sample, window: tuple[float, float] | None = None) -> LoadResult:
    return LoadResult(samples, window, 0.0, 1.0, (), True)


def test_one_token_a_chunk() -> None:
    s = sample(1.0, [(1.5, 1), (1.6, 2), (1.8, 3), (1.9, 4)])
    assert ttft_ms(s) == pytest.approx(500)
    assert e2e_ms(s) == pytest.approx(900)
    assert tpot_ms(s) == pytest.approx(400 / 3)
    assert itl_ms(s) == pytest.approx([100, 200, 100])


@pytest.mark.parametrize("workload", [CLOSED, CLOSED.model_copy(update={"concurrency": None, "rate_per_s": 2.0})])
def test_the_names_are_those_of_what_is_measured(workload: Workload) -> None:
    run = result(sample(1.0, [(1.5, 1), (1.6, 2)]), window=(1.0, 2.0))
    assert set(metric_names(workload)) == set(run_metrics(run, workload))
    assert set(metric_names(workload)) == set(run_metrics(result(), workload))  # and where there was nothing to measure


def test_several_tokens_a_chunk_share_their_gap() -> None:
    """Two tokens came first, then three together after 0.3 s: itl still adds up to e2e - ttft, its mean is tpot."""
    s = sample(0.0, [(0.2, 2), (0.5, 5)])
    assert itl_ms(s) == pytest.approx([0, 100, 100, 100])
    assert sum(itl_ms(s)) == pytest.approx(e2e_ms(s) - ttft_ms(s))
    assert tpot_ms(s) == pytest.approx(75)
    assert chunk_sizes([s]) == [2, 3]


def test_one_output_token_has_no_tpot() -> None:
    s = sample(0.0, [(0.2, 1)])
    assert tpot_ms(s) is None and itl_ms(s) == []


def test_rates_count_what_came_inside_the_window_whoever_it_was_for() -> None:
    """Window (1, 3]: of the warm-up request 2 tokens, of the measured one all 4, of the fill request 1."""
    warm = sample(0.0, [(0.5, 1), (1.0, 2), (1.5, 3), (2.0, 4)], "warmup")
    measured = sample(1.0, [(1.5, 1), (2.0, 2), (2.5, 3), (3.0, 4)])
    fill = sample(2.0, [(2.9, 1), (3.4, 2)], "fill", "stopped")
    got = run_metrics(result(warm, measured, fill, window=(1.0, 3.0)), CLOSED)
    assert got["output_tokens_per_s"] == pytest.approx(7 / 2)
    assert got["total_tokens_per_s"] == pytest.approx((7 + 20) / 2)  # the prompts of measured and fill
    assert got["requests_per_s"] == pytest.approx(2 / 2)
    assert got["ttft_ms_p50"] == pytest.approx(500)  # of the measured request alone
    assert got["output_tokens_per_s_little"] == pytest.approx(2 * 4 / 2.0)


def test_goodput_counts_requests_that_keep_every_per_request_limit() -> None:
    fast = sample(0.0, [(0.1, 1), (0.4, 4)])  # tpot 100, the limit itself
    slow = sample(0.0, [(0.1, 1), (1.0, 4)])  # tpot 300
    got = run_metrics(result(fast, slow, window=(0.0, 1.0)), CLOSED)
    assert got["requests_per_s"] == pytest.approx(2)
    assert got["goodput_requests_per_s"] == pytest.approx(1)


def test_a_failed_request_lowers_goodput_and_gives_no_latency() -> None:
    fine = sample(0.0, [(0.1, 1), (0.4, 4)])
    broken = sample(0.0, [(0.9, 1)], error="stream_broken")
    got = run_metrics(result(fine, broken, window=(0.0, 1.0)), CLOSED)
    assert got["ttft_ms_p99"] == pytest.approx(100)
    assert got["requests_per_s"] == pytest.approx(1)
    assert got["goodput_requests_per_s"] == pytest.approx(0.5)


def test_percentiles_interpolate() -> None:
    samples = [sample(0.0, [(float(t), 1)]) for t in (1, 2, 3, 4)]
    got = run_metrics(result(*samples, window=(0.0, 4.0)), CLOSED)
    assert got["ttft_ms_p50"] == pytest.approx(2500)
    assert got["ttft_ms_p95"] == pytest.approx(3850)
    assert got["ttft_ms_mean"] == pytest.approx(2500)
    assert got["tpot_ms_p50"] is None


def test_nothing_measured_is_none_and_not_zero() -> None:
    got = run_metrics(result(window=None), CLOSED)
    assert set(got.values()) == {None}
