"""measure() on the stand-in: numbers, conditions and raw samples of a run. On a real vLLM: a few requests."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from cards.detect import detect
from cards.sentinel import Sentinel
from cards.window import summary
from contracts import Failure, FailureKind, LaunchRecord, Limits, Measurement, Workload
from engine.measure import COMPILE_LINES, measure
from engine.running import EngineFailure

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "tests" / "standin" / "engine.py"
WORKLOAD = Workload(
    name="t", concurrency=6, requests=12, warmup_requests=6, input_tokens=(16, 48), output_tokens=(8, 16)
)


class Started:
    """The least that measure() asks of an engine: a child process, its log, its name."""

    served_name = "the-model"

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.log, self.base_url = process, log, f"http://127.0.0.1:{port}"
        self.checks = 0
        self.record = LaunchRecord(
            launch_id="launch-1", spec_id="s", pid=process.pid, pid_started=psutil.Process(process.pid).create_time(),
            port=port, nonce="n", log_path="engine.log",
        )  # fmt: skip

    def check(self) -> None:
        self.checks += 1
        if self.process.poll() is not None:
            raise EngineFailure(Failure(kind=FailureKind.CRASH, reason="ended"))

    def log_offset(self) -> int:
        return self.log.stat().st_size

    def log_since(self, offset: int) -> str:
        return self.log.read_bytes()[offset:].decode(errors="replace")


@contextmanager
def started(tmp_path: Path, *flags: str, **knobs: str) -> Iterator[Started]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / f"engine-{port}.log"
    command = [
        sys.executable,
        str(STANDIN),
        "serve",
        "m",
        "--port",
        str(port),
        "--served-model-name",
        "the-model",
        *flags,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"STANDIN_STEP_MS": "1", **knobs})
    engine = Started(process, port, log)
    try:
        for _ in range(600):  # 30 s: a loaded machine takes seconds to start a Python
            with suppress(httpx.TransportError):
                httpx.get(f"{engine.base_url}/health", trust_env=False, verify=False)
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield engine
    finally:
        process.kill()
        process.wait()


def run(engine: Started, tmp_path: Path, workload: Workload = WORKLOAD, seed: int = 1, **limits: float) -> Measurement:
    return measure(engine, workload, seed, "A", 0, 0, tmp_path / "night" / "artifacts" / "runs", Limits(**limits))


def test_a_run_and_its_conditions(tmp_path: Path) -> None:
    with started(tmp_path) as engine:
        m = run(engine, tmp_path)
    assert (m.completed, m.failed) == (12, 0)
    assert engine.checks == 2
    seen = m.conditions
    assert seen["identity_ok"] is True and seen["generator_late"] is False and seen["load_kept"] is True
    assert seen["compiles_in_window"] == 0 and seen["errors"] == {}
    assert seen["prefix_caching"] is True and seen["prefix_hit_rate"] == 0
    assert isinstance(seen["started_at"], float) and abs(seen["started_at"] - time.time()) < 60
    assert isinstance(seen["foreign_cpu_share"], float) and 0 <= seen["foreign_cpu_share"] <= 1
    assert m.window_s > 0 and m.metrics["output_tokens_per_s"]


def test_both_arms_of_a_pair_do_the_same_work(tmp_path: Path) -> None:
    with started(tmp_path) as one, started(tmp_path, "--max-num-seqs", "2") as other:
        a, b = run(one, tmp_path, seed=5), run(other, tmp_path, seed=5)
    for what in ("prompt_tokens", "output_tokens"):
        assert a.conditions[what] == b.conditions[what] != 0


def test_the_raw_samples_are_kept(tmp_path: Path) -> None:
    with started(tmp_path) as engine:
        m = run(engine, tmp_path)
    assert m.samples_path is not None and m.samples_path.startswith("artifacts/runs/")
    text = gzip.decompress((tmp_path / "night" / m.samples_path).read_bytes()).decode()
    head, *rows = map(json.loads, text.splitlines())
    assert Measurement.model_validate(head["measurement"]) == m
    measured = [row for row in rows if row["phase"] == "measured"]
    assert len(measured) == 12
    assert all(row["chunks"][-1][1] == row["planned_output_tokens"] for row in measured)
    assert not list((tmp_path / "night").rglob("*.part"))


def test_the_engines_gauges_are_sampled_in_the_window(tmp_path: Path) -> None:
    slow = WORKLOAD.model_copy(update={"requests": 30})
    with started(tmp_path, "--max-num-seqs", "2", STANDIN_STEP_MS="4") as engine:
        seen = run(engine, tmp_path, slow).conditions
    assert seen["running_peak"] == 2
    assert seen["waiting_peak"] == 4  # six at a time, two of them running


def test_the_same_prompts_again_hit_the_cache_and_it_shows(tmp_path: Path) -> None:
    w = WORKLOAD.model_copy(update={"input_tokens": (48, 48)})
    with started(tmp_path) as engine:
        fresh, again, other = (run(engine, tmp_path, w, seed).conditions["prefix_hit_rate"] for seed in (1, 1, 2))
    assert fresh == other == 0
    assert isinstance(again, float) and again > 0.5


def test_failing_requests_are_counted(tmp_path: Path) -> None:
    one_by_one = WORKLOAD.model_copy(update={"concurrency": 1})  # else a measured one may overtake a warm-up
    with started(tmp_path, STANDIN_FAIL_EVERY="3") as engine:
        m = run(engine, tmp_path, one_by_one)
    assert (m.completed, m.failed) == (8, 4)
    assert m.conditions["errors"] == {"http_status": 4}
    assert "500" in str(m.conditions["first_error"])
    assert m.conditions["warmup_failed"] == 2


def test_a_compile_inside_the_window_is_seen(tmp_path: Path) -> None:
    with started(tmp_path, STANDIN_COMPILE_AFTER="10") as engine:
        inside, later = run(engine, tmp_path, seed=1), run(engine, tmp_path, seed=2)
    assert inside.conditions["compiles_in_window"] == 1
    assert "standin_kernel" in str(inside.conditions["compile_lines"])
    assert later.conditions["compiles_in_window"] == 0


def test_a_compile_in_the_warm_up_is_not_in_the_window(tmp_path: Path) -> None:
    with started(tmp_path, STANDIN_COMPILE_AFTER="2") as engine:
        assert run(engine, tmp_path).conditions["compiles_in_window"] == 0


def test_an_engine_that_dies_on_the_way_is_a_failure(tmp_path: Path) -> None:
    with started(tmp_path, STANDIN_CRASH_AFTER="9") as engine, pytest.raises(EngineFailure, match="ended"):
        run(engine, tmp_path)


def test_an_engine_that_hangs_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.measure.IDLE_WAIT_S", 0.3)
    with started(tmp_path, STANDIN_HANG_AFTER="9") as engine:
        m = run(engine, tmp_path, request_s=0.5, run_s=2)
    assert m.failed > 0 and m.completed + m.failed == 12
    assert m.conditions["idle_after_s"] is None


def test_the_open_loop(tmp_path: Path) -> None:
    w = WORKLOAD.model_copy(update={"concurrency": None, "rate_per_s": 40.0})
    with started(tmp_path) as engine:
        m = run(engine, tmp_path, w)
    assert (m.completed, m.failed) == (12, 0)
    assert isinstance(m.conditions["lateness_ms_max"], float)
    assert "output_tokens_per_s_little" not in m.metrics


@pytest.mark.parametrize(
    "line",
    [
        "WARNING [jit_monitor.py:140] Triton kernel JIT compilation during inference: kernel_unified_attention.",
        "INFO [backends.py:398] Compiling a graph for compile range (1, 2048) takes 3.16 s",
        "INFO [monitor.py:62] torch.compile took 11.21 s in total",
        "INFO [backends.py:1166] Dynamo bytecode transform time: 2.55 s",
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|####",
        "INFO [gpu_model_runner.py:6582] Graph capturing finished in 9 secs, took 0.50 GiB",
        "[aiter] start build [module_rmsnorm] under /tmp/x",
    ],
)
def test_lines_that_tell_of_a_compile(line: str) -> None:
    assert COMPILE_LINES.search(line)


def test_lines_that_do_not() -> None:
    for line in (
        "Avg prompt throughput: 1.0 tokens/s, GPU KV cache usage: 2.2%",
        "POST /v1/completions HTTP/1.1 200 OK",
    ):
        assert not COMPILE_LINES.search(line)


def test_a_sentinel_watches_the_window_and_is_ended_with_it(tmp_path: Path) -> None:
    cpu = next(card for card in detect() if card.kind == "cpu")
    with started(tmp_path, STANDIN_STEP_MS="50") as engine:  # a window of a second
        sentinel = Sentinel(cpu, lambda: {engine.process.pid}, period_s=0.01)
        m = measure(engine, WORKLOAD, 1, "A", 0, 0, tmp_path / "artifacts/runs", Limits(), sentinel)
        with pytest.raises(EngineFailure):  # an engine that breaks ends it too
            engine.process.kill()
            engine.process.wait()
            measure(engine, WORKLOAD, 1, "A", 0, 0, tmp_path / "artifacts/runs", Limits(), Sentinel(cpu, tuple))
    assert not [thread for thread in threading.enumerate() if thread.name == "sentinel"]
    seen = m.conditions
    assert isinstance(seen["card_samples"], int) and seen["card_samples"] > 0
    assert seen["card_foreign"] is None and "card_foreign" in seen["card_not_told"]
    assert isinstance(seen["foreign_cpu_named"], list) and seen["sentinel_error"] is None


def test_every_condition_of_a_sentinel_is_in_the_table() -> None:
    from engine import measure as module

    table = module.__doc__ or ""
    found = {**summary([], frozenset(), 0.5), "card_not_told": 1, "foreign_cpu_named": 1, "sentinel_cpu_share": 1}
    absent = [name for name in found if name not in table and not name.startswith(("card_sclk_mhz_", "card_mclk_mhz_"))]
    assert set(absent) <= {"card_power_w_max"}  # written as card_power_w_mean, _max
