"""One measurement: one run of a workload on a running engine, and what else was true in its window.

It fills `conditions` with facts and does not judge; judge/void.py says what a fact means. Missing is None.

| condition                         | what it is                                                                     |
| --------------------------------- | ------------------------------------------------------------------------------ |
| started_at                        | window start, seconds since the epoch                                          |
| identity_ok                       | engine.check() passed before and after (a failing one raises EngineFailure)    |
| generator_late                    | the generator did not keep time, by the bounds in engine/load.py               |
| lateness_ms_p95, lateness_ms_max  | open loop: how much later than planned requests were sent                      |
| client_lag_ms_p95, client_lag_ms_max | how late our event loop woke: the error of our time stamps                  |
| client_cpu_share                  | CPU time of the generator's thread / wall time of the run (1 = one core)       |
| load_kept                         | requests stayed in flight until the window ended                               |
| prompt_tokens, output_tokens      | of the measured requests that succeeded, as the engine counted them            |
| tokens_per_chunk_mean, _max       | of measured requests; above 1: speculation, or a front end that sends in bursts |
| errors, first_error               | failed measured requests by class; the first one's detail                      |
| warmup_failed                     | warm-up requests that failed                                                   |
| compiles_in_window, compile_lines | log lines that tell of compiling or graph capture inside the window            |
| running_*, waiting_*, kv_cache_usage_peak | engine gauges sampled four times a second inside the window            |
| scrapes                           | how many such samples there are                                                |
| prefix_caching                    | on or off, as the engine says                                                  |
| prefix_hit_rate                   | hit tokens / queried tokens over the whole run (warm-up to idle)               |
| preemptions, steps, step_tokens_mean, draft_tokens, accepted_tokens | engine counters over the whole run           |
| foreign_cpu_share                 | CPU time in the window of processes neither the engine's nor ours, / all cores |
| engine_cpu_share, loop_cpu_share  | the same for the engine's process tree, and ours without it                    |
| load_average, cpu_mhz             | one-minute load at the window's end; mean core frequency, where readable       |
| card_*                            | what the sentinel saw; the table below. Absent without one                     |
| idle_after_s                      | until the engine had no request left; None: not within 10 s                    |
| seconds                           | the whole call                                                                 |

A sentinel (cards/sentinel.py) looks at the card twice a second. What it adds; None: neither card nor driver told it.

| condition                         | what it is                                                                     |
| --------------------------------- | ------------------------------------------------------------------------------ |
| card_samples, card_gaps           | looks inside the window; times of over 2.5 periods in it without one           |
| card_sclk_mhz_*, card_mclk_mhz_*  | cores' and memory's clock: min, median, max. A CPU: its cores' mean frequency  |
| card_sclk_mhz_loaded, card_loaded_samples | median clock while the card was at least half busy; how many looks     |
| card_power_w_mean, _max, card_power_cap_w | watts                                                                  |
| card_hottest_c, card_hottest_sensor | the highest temperature and whose it was                                     |
| card_busy_percent_mean            | as the driver counts it                                                        |
| card_throttled_share              | share of looks at which the driver said throttled, a power cap included        |
| card_slowed_share                 | the same without power and current limits: heat, or the hardware's protection  |
| card_throttle_reasons             | the driver's own words -> share of looks                                       |
| card_foreign                      | who else computed on the card, in words with pid and memory; []: nobody        |
| card_tenants_told_by              | who said so: KFD, DRM, NVML                                                    |
| card_vram_used_bytes_max          | of the card's memory, by everybody                                             |
| card_vram_others_bytes_max        | of it not held by our engines; the driver's own share is in it                 |
| card_vram_others_growth_bytes     | how far that rose above the window's first look                                |
| card_not_told                     | which of these nobody told                                                     |
| foreign_cpu_named                 | who else used the CPU from before the warm-up to the end: name, pid, cores     |
| sentinel_cpu_share                | what the sentinel itself cost, of one core                                     |
| sentinel_error                    | why a look failed, or that the card stopped answering                          |
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
from pydantic import JsonValue

from cards.sentinel import Sentinel
from contracts import Failure, FailureKind, Limits, Measurement, Workload
from engine.client import async_http_client
from engine.corpus import corpus_tokens
from engine.cpu_use import CpuUse, cpu_mhz, cpu_shares
from engine.load import Hooks, LoadResult, run_load
from engine.metrics import chunk_sizes, run_metrics
from engine.prometheus import counted, gauge_summary, parse, prefix_caching
from engine.prompts import plan
from engine.running import EngineFailure, RunningEngine

SCRAPE_PERIOD_S = 0.25
IDLE_WAIT_S = 10.0
_ASK_S = 10.0  # for one answer of /metrics

# Lines that a compile or a graph capture leaves in the log: vLLM 0.32.0 utils/jit_monitor.py, compilation/monitor.py,
# compilation/backends.py, v1/worker/gpu_model_runner.py; aiter/jit/core.py; torch.utils.cpp_extension; and our own
# watcher's, which hears every variant of a Triton kernel (kernels/nightgate_evidence, jit.py).
COMPILE_LINES = re.compile(
    r"nightgate-evidence compiled "
    r"|(compilation|compile|autotuning) during inference|JIT compil|Starting torch\.compile"
    r"|torch\.compile took|Compiling a graph|Dynamo bytecode transform time|Cache the graph of compile range"
    r"|Directly load the compiled graph"
    r"|Capturing (CUDA|HIP|cuda|prefill|decode|model|\d+ encoder)|Graph capturing finished|\[aiter\] start build"
    r"|Building extension module|Triton autotuning for function"
)


def measure(
    engine: RunningEngine,
    workload: Workload,
    prompt_seed: int,
    arm: Literal["A", "B"],
    launch_pair: int,
    run: int,
    out_dir: Path,
    limits: Limits,
    sentinel: Sentinel | None = None,
) -> Measurement:
    """Warm up, measure, and write the raw samples to `out_dir` (created where missing). A `sentinel` that was not
    started yet watches the card meanwhile.

    Both arms of a pair give the same `prompt_seed` and so send the same requests. Raises EngineFailure when the engine
    is not ours or not alive before or after, or cannot tokenise; failing requests do not raise, they are counted.
    """
    began = time.monotonic()
    engine.check()
    requests = plan(workload, prompt_seed, _corpus(engine))
    watch = _Watch(engine, sentinel)
    before = _page(engine.base_url)
    with watch:
        result = run_load(
            engine.base_url,
            engine.served_name,
            requests,
            concurrency=workload.concurrency,
            request_s=limits.request_s,
            run_s=limits.run_s,
            hooks=Hooks(watch.window_start, watch.window_end, watch.scrape),
        )
    idle_after_s = _wait_idle(engine.base_url)
    after = _page(engine.base_url)
    engine.check()

    measured = [s for s in result.samples if s.phase == "measured"]
    completed = sum(s.ok for s in measured)
    conditions = {
        "identity_ok": True,
        "idle_after_s": idle_after_s,
        **_client_conditions(result),
        **watch.conditions(),
        **_engine_conditions(before, after),
    }
    name = f"{engine.record.launch_id}-{arm}-pair{launch_pair}-run{run}-seed{prompt_seed}.jsonl.gz"
    measurement = Measurement(
        launch_id=engine.record.launch_id,
        arm=arm,
        launch_pair=launch_pair,
        run=run,
        prompt_seed=prompt_seed,
        window_s=result.window[1] - result.window[0] if result.window else 0.0,
        completed=completed,
        failed=len(measured) - completed,
        metrics=run_metrics(result, workload),
        conditions={**conditions, "seconds": round(time.monotonic() - began, 3)},
        samples_path=_within_night(out_dir / name),
    )
    _write_samples(out_dir / name, measurement, workload, result)
    return measurement


def _corpus(engine: RunningEngine) -> tuple[int, ...]:
    try:
        return corpus_tokens(engine.base_url, engine.served_name)
    except (httpx.HTTPError, ValueError, KeyError) as cause:
        engine.check()  # dead or replaced: says so better than the failed request
        reason = f"the engine lives but did not tokenise our text: {type(cause).__name__}: {cause}"
        raise EngineFailure(Failure(kind=FailureKind.HANG, reason=reason)) from cause


@dataclass
class _Watch:
    """Looks at the engine and the machine from the window's start to its end."""

    engine: RunningEngine
    sentinel: Sentinel | None = None
    scrapes: list[dict[str, float]] = field(default_factory=list)
    in_window: bool = False
    seen: dict[str, JsonValue] = field(default_factory=dict)
    log_offset: int = 0
    cpu: CpuUse | None = None

    def __enter__(self) -> None:
        if self.sentinel:
            self.sentinel.start()

    def __exit__(self, *_: object) -> None:
        if self.sentinel:
            self.sentinel.stop()

    def window_start(self) -> None:
        if self.sentinel:
            self.sentinel.window_start()
        self.seen["started_at"] = time.time()
        self.log_offset = self.engine.log_offset()
        self.cpu = CpuUse.now(self.engine.record.pid)
        self.in_window = True

    def window_end(self) -> None:
        self.in_window = False
        if self.sentinel:
            self.sentinel.window_end()
        lines = [line for line in self.engine.log_since(self.log_offset).splitlines() if COMPILE_LINES.search(line)]
        self.seen |= {"compiles_in_window": len(lines), "compile_lines": [line[:300] for line in lines[:20]]}
        self.seen |= cpu_shares(self.cpu, CpuUse.now(self.engine.record.pid))
        self.seen |= {"load_average": os.getloadavg()[0], "cpu_mhz": cpu_mhz()}

    async def scrape(self) -> None:
        """Sample the gauges inside the window until cancelled. A failed scrape is one sample fewer, not an error."""
        async with async_http_client(self.engine.base_url, _ASK_S) as client:
            while True:
                if self.in_window:
                    with suppress(httpx.HTTPError):
                        page = (await client.get("/metrics")).raise_for_status().text
                        if self.in_window and (values := parse(page)):
                            self.scrapes.append(values)
                await asyncio.sleep(SCRAPE_PERIOD_S)

    def conditions(self) -> dict[str, JsonValue]:
        card = self.sentinel.conditions() if self.sentinel else {}
        return {**self.seen, **gauge_summary(self.scrapes), "scrapes": len(self.scrapes), **card}


def _client_conditions(result: LoadResult) -> dict[str, JsonValue]:
    measured = [s for s in result.samples if s.phase == "measured"]
    done = [s for s in measured if s.ok]
    bad = [s for s in measured if not s.ok]
    sizes = chunk_sizes(done)
    return {
        "generator_late": result.generator_late,
        **_p95_and_max("lateness_ms", result.lateness_s),
        **_p95_and_max("client_lag_ms", result.lag_s),
        "client_cpu_share": result.cpu_s / result.wall_s if result.wall_s else None,
        "load_kept": result.load_kept,
        "prompt_tokens": sum(s.prompt_tokens or 0 for s in done),
        "output_tokens": sum(s.output_tokens or 0 for s in done),
        "tokens_per_chunk_mean": sum(sizes) / len(sizes) if sizes else None,
        "tokens_per_chunk_max": max(sizes, default=None),
        "errors": dict(Counter(s.error for s in bad if s.error)),
        "first_error": f"{bad[0].error}: {bad[0].detail}" if bad else None,
        "warmup_failed": sum(not s.ok for s in result.samples if s.phase == "warmup"),
    }


def _p95_and_max(name: str, seconds: tuple[float, ...]) -> dict[str, JsonValue]:
    if not seconds:
        return {f"{name}_p95": None, f"{name}_max": None}
    return {f"{name}_p95": float(np.percentile(seconds, 95)) * 1000, f"{name}_max": max(seconds) * 1000}


def _engine_conditions(before: str | None, after: str | None) -> dict[str, JsonValue]:
    grown = counted(parse(before or ""), parse(after or ""))
    queries, hits = grown.pop("prefix_cache_queries"), grown.pop("prefix_cache_hits")
    steps, step_tokens = grown["steps"], grown.pop("step_tokens")
    return {
        "prefix_caching": prefix_caching(after or ""),
        "prefix_hit_rate": hits / queries if hits is not None and queries else None,
        "preemptions": grown["preemptions"],
        "steps": steps,
        "step_tokens_mean": step_tokens / steps if steps and step_tokens is not None else None,
        "draft_tokens": grown["draft_tokens"],
        "accepted_tokens": grown["accepted_tokens"],
    }


def _page(base_url: str) -> str | None:
    """The /metrics page, or None: an engine that logs no statistics has none, and that is no failure of the run."""
    try:
        return httpx.get(f"{base_url}/metrics", timeout=_ASK_S, trust_env=False, verify=False).raise_for_status().text
    except httpx.HTTPError:
        return None


def _wait_idle(base_url: str) -> float | None:
    """Until the engine has dropped the fill requests that we cancelled: the next run starts on an idle engine."""
    began = time.monotonic()
    while time.monotonic() - began < IDLE_WAIT_S:
        gauges = parse(_page(base_url) or "")
        if "running" not in gauges:
            return None
        if gauges["running"] + gauges.get("waiting", 0.0) == 0:
            return round(time.monotonic() - began, 3)
        time.sleep(0.1)
    return None


def _within_night(path: Path) -> str:
    """Relative to the night's folder, which is the one that holds `artifacts`; else the path as it is."""
    for parent in path.parents:
        if parent.name == "artifacts":
            return str(path.relative_to(parent.parent))
    return str(path)


def _write_samples(path: Path, measurement: Measurement, workload: Workload, result: LoadResult) -> None:
    """Gzipped JSON lines: a head with the measurement, then one line a request. Whole or not at all."""
    head: dict[str, Any] = {
        "measurement": measurement.model_dump(mode="json"),
        "workload": workload.model_dump(mode="json"),
        "window_s": result.window,
    }
    rows: list[Mapping[str, Any]] = [head]
    for sample in result.samples:
        row = asdict(sample)
        row["chunks"] = [(round(at, 6), tokens) for at, tokens in sample.chunks]
        rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with gzip.open(part, "wt", encoding="utf-8", compresslevel=5) as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    part.replace(path)
