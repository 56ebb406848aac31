"""What the numbers of a run mean. Pure functions of samples.

Of each measured request that succeeded. Times are those at which the client received a chunk, n is the number of output
tokens as the engine counted them, and k tokens can come in one chunk (speculation, or events that came together):

| name | unit | definition                                                                                     |
| ---- | ---- | ---------------------------------------------------------------------------------------------- |
| ttft | ms   | first chunk - request start. Prompts are token IDs, so no tokenisation is in it                |
| e2e  | ms   | last chunk - request start                                                                     |
| tpot | ms   | (e2e - ttft) / (n - 1); none for n = 1                                                         |
| itl  | ms   | a value for each token after the first: gap before its chunk / k, k times; 0 for further tokens |
|      |      | of the first chunk. A request's values add up to e2e - ttft and their mean is its tpot         |

Each has `_mean`, `_p50`, `_p95`, `_p99` over the requests (itl: over all their tokens together), by linear
interpolation between order statistics. Open loop: a request starts when it was sent, not when it was planned; how late
the generator was is a condition of its own, and past a bound the run is void.

Over the window, first measured start to last measured token, and over all requests that ran in it, warm-up and fill
included (the engine works for them too):

| name                       | unit | definition                                                                     |
| -------------------------- | ---- | ------------------------------------------------------------------------------ |
| output_tokens_per_s        | 1/s  | output tokens received in the window / its length                              |
| total_tokens_per_s         | 1/s  | the same, with the prompts of requests whose first token came in the window    |
| requests_per_s             | 1/s  | requests whose last token came in the window / its length                      |
| goodput_requests_per_s     | 1/s  | requests_per_s * share of measured requests that succeeded and kept every      |
|                            |      | per-request limit (tpot_ms_p95 at most 60: each has tpot <= 60 ms)             |
| output_tokens_per_s_little | 1/s  | closed loop, a check by Little's law: concurrency * mean n / mean e2e          |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from contracts import Workload
from engine.load import LoadResult, Sample

PERCENTILES = (50, 95, 99)
LATENCIES = tuple(
    f"{name}_ms_{what}" for name in ("ttft", "tpot", "itl", "e2e") for what in ("mean", *(f"p{p}" for p in PERCENTILES))
)
RATES = ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s", "goodput_requests_per_s")
CLOSED_LOOP = ("output_tokens_per_s_little",)
_PER_REQUEST = re.compile(r"^(ttft|tpot|itl|e2e)_ms_(?:mean|p\d+)$")


def run_metrics(result: LoadResult, workload: Workload) -> dict[str, float | None]:
    """Every metric of the tables above by name; None where nothing was there to compute it from."""
    measured = [s for s in result.samples if s.phase == "measured"]
    done = [s for s in measured if s.ok]
    metrics: dict[str, float | None] = {}
    for name, values in (
        ("ttft_ms", [ttft_ms(s) for s in done]),
        ("tpot_ms", [t for s in done if (t := tpot_ms(s)) is not None]),
        ("itl_ms", [gap for s in done for gap in itl_ms(s)]),
        ("e2e_ms", [e2e_ms(s) for s in done]),
    ):
        metrics |= spread(name, values)
    rates = window_rates(result)
    good = sum(meets_limits(s, workload) for s in done) / len(measured) if measured else None
    per_s = rates["requests_per_s"]
    metrics |= rates
    metrics["goodput_requests_per_s"] = None if good is None or per_s is None else per_s * good
    if workload.concurrency is not None:
        mean_e2e = metrics["e2e_ms_mean"]
        tokens = sum(s.chunks[-1][1] for s in done) / len(done) if done else 0.0
        metrics["output_tokens_per_s_little"] = workload.concurrency * tokens / mean_e2e * 1000 if mean_e2e else None
    return metrics


def metric_names(workload: Workload) -> tuple[str, ...]:
    """Every name that run_metrics gives under this workload."""
    return LATENCIES + RATES + (CLOSED_LOOP if workload.concurrency is not None else ())


def ttft_ms(sample: Sample) -> float:
    return (sample.chunks[0][0] - _start(sample)) * 1000


def e2e_ms(sample: Sample) -> float:
    return (sample.chunks[-1][0] - _start(sample)) * 1000


def tpot_ms(sample: Sample) -> float | None:
    tokens = sample.chunks[-1][1]
    return (e2e_ms(sample) - ttft_ms(sample)) / (tokens - 1) if tokens > 1 else None


def itl_ms(sample: Sample) -> list[float]:
    """Inter-token times of every token after the first, ms."""
    gaps = [0.0] * (sample.chunks[0][1] - 1)
    for (before, had), (at, has) in zip(sample.chunks, sample.chunks[1:], strict=False):
        gaps += [(at - before) / (has - had) * 1000] * (has - had)
    return gaps


def spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """`name`_mean, _p50, _p95, _p99; all None without values."""
    if not values:
        return {f"{name}_{what}": None for what in ("mean", *(f"p{p}" for p in PERCENTILES))}
    points: dict[str, float | None] = {f"{name}_mean": float(np.mean(values))}
    for percentile, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True):
        points[f"{name}_p{percentile}"] = float(value)
    return points


def window_rates(result: LoadResult) -> dict[str, float | None]:
    if result.window is None or result.window[1] <= result.window[0]:
        return dict.fromkeys(("output_tokens_per_s", "total_tokens_per_s", "requests_per_s"))
    start, end = result.window
    output = prompt = finished = 0
    for sample in result.samples:
        had = 0
        for at, has in sample.chunks:
            if start < at <= end:
                output += has - had
            had = has
        if sample.chunks and start < sample.chunks[0][0] <= end:
            prompt += sample.planned_prompt_tokens
        if sample.ok and sample.chunks and start < sample.chunks[-1][0] <= end:
            finished += 1
    length = end - start
    return {
        "output_tokens_per_s": output / length,
        "total_tokens_per_s": (output + prompt) / length,
        "requests_per_s": finished / length,
    }


def meets_limits(sample: Sample, workload: Workload) -> bool:
    """Whether this request alone keeps every per-request limit of the objective; limits on rates do not concern it."""
    mean_itl = tpot_ms(sample)
    seen = {"ttft": ttft_ms(sample), "e2e": e2e_ms(sample), "tpot": mean_itl, "itl": mean_itl}
    limited = ((_PER_REQUEST.match(limit.metric), limit.at_most) for limit in workload.objective.limits)
    values = ((seen[match[1]], at_most) for match, at_most in limited if match)
    return all(value is None or at_most is None or value <= at_most for value, at_most in values)


def chunk_sizes(samples: Iterable[Sample]) -> list[int]:
    """Tokens in each chunk: all 1 unless the engine speculates or its front end fell behind."""
    return [
        has - had
        for s in samples
        for (_, had), (_, has) in zip(((0.0, 0), *s.chunks), s.chunks, strict=False)
    ]  # fmt: skip


def _start(sample: Sample) -> float:
    if sample.start_s is None:
        raise ValueError(f"request {sample.index} was never sent, so it has no latency")
    return sample.start_s
