"""The real vLLM: asked, read back, measured, stopped; and one whose loop is killed while it starts."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from accuracy_gate.arithmetic.generate import problems
from accuracy_gate.arithmetic.measure import ask as ask_sums
from contracts import Workload
from engine.measure import measure
from engine.orphans import alive, end_orphans, wait_gone
from engine.server import Engine
from tests.engine.dying_loop import dying_loop, loop_program
from tests.real import LIMITS, real_spec
from tests.standin import standin_spec

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(600)]


def segments() -> set[str]:
    return set(os.listdir("/dev/shm"))


def ask(engine: Engine, path: str = "/v1/completions", **more: Any) -> httpx.Response:
    body = {"model": engine.served_name, "prompt": "Altogether there are 17+25=", "temperature": 0} | more
    return httpx.post(engine.base_url + path, json=body, trust_env=False, timeout=120)


def test_it_answers_and_stays_ours(real: Engine) -> None:
    real.check()
    choice = ask(real, max_tokens=3, return_token_ids=True).json()["choices"][0]
    assert choice["text"] and len(choice["token_ids"]) == 3
    score = ask_sums(real, problems("held_out_numbers", 4, seed=4))
    assert score.errors == 0 and score.right >= 3, score.wrong
    real.check()
    names = {psutil.Process(pid).name() for pid in real.pids()}
    assert any("EngineCore" in name for name in names), names


def test_what_runs_is_read_back(real: Engine) -> None:
    realised = real.record.realised
    assert (realised["max_num_seqs"], realised["max_model_len"], realised["enforce_eager"]) == (16, 1024, True)
    assert "stand_in" not in realised and realised["version"]
    if realised["device_config"] == "cpu":
        assert realised["attention_backend"] == "CPU_ATTN" and realised["compilation.mode"] == "NONE"
        assert real.record.mismatches == (
            "asked attention_backend = FLASH_ATTN, realised CPU_ATTN",
            "asked moe_backend = triton, realised none, the model has no experts",
            "asked VLLM_NO_SUCH_VARIABLE = 1, realised unknown to this vLLM",
        )
    assert real.record.ready_s and real.record.rss_bytes


def shape(value: Any) -> Any:
    """The keys and kinds of an answer, without its values."""
    if isinstance(value, dict):
        keys = {key: shape(inner) for key, inner in value.items()}
        return {"token": "number"} if keys and all(key.startswith("token_id:") for key in keys) else keys
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def answers(engine: Engine) -> dict[str, Any]:
    options: dict[str, Any] = {"max_tokens": 3, "logprobs": 2, "ignore_eos": True, "return_token_ids": True,
                               "return_tokens_as_token_ids": True}  # fmt: skip
    whole = shape(ask(engine, **options).json())
    lines = ask(engine, **options, stream=True, stream_options={"include_usage": True}).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [shape(json.loads(line.removeprefix("data: "))) for line in lines[:-2]]
    for answer in (whole, chunks[-1]):  # an extra that no reader of ours looks at
        answer["system_fingerprint"] = answer["usage"]["completion_tokens_details"] = None
        answer["usage"]["prompt_tokens_details"] = None
    tokens = shape(ask(engine, "/tokenize").json())
    wrong = httpx.post(f"{engine.base_url}/v1/completions", json={"model": "other", "prompt": "x"}, trust_env=False)
    return {"whole": whole, "chunks": chunks, "tokens": tokens, "wrong model": (wrong.status_code, shape(wrong.json()))}


def test_the_stand_in_answers_in_the_real_ones_shapes(real: Engine, tmp_path: Path) -> None:
    with Engine.start(standin_spec(), "L1", tmp_path, LIMITS) as stand_in:
        stand_in.wait_ready()
        assert answers(stand_in) == answers(real)


WORKLOAD = Workload(
    name="few", concurrency=20, requests=24, warmup_requests=4, input_tokens=(16, 32), output_tokens=(16, 24), seed=3
)


def test_a_few_requests_are_measured(real: Engine, tmp_path: Path) -> None:
    a, again = (measure(real, WORKLOAD, 1, "A", 0, run, tmp_path / "runs", LIMITS) for run in (0, 1))
    assert (a.completed, a.failed) == (24, 0)
    seen = a.conditions
    assert seen["running_peak"] == 16 and seen["load_kept"] is True and seen["compiles_in_window"] == 0
    assert seen["output_tokens"] == again.conditions["output_tokens"] != 0
    assert seen["prefix_caching"] is True and seen["prefix_hit_rate"] == 0
    assert isinstance(seen["steps"], float) and seen["steps"] > 16
    ttft, e2e, rate = (a.metrics[name] for name in ("ttft_ms_p50", "e2e_ms_p50", "output_tokens_per_s"))
    assert ttft and e2e and rate and 0 < ttft < e2e


def test_stopped_and_its_memory_back(real: Engine) -> None:
    """The last of all tests that share it (conftest.py)."""
    pids, resident = real.pids(), real.rss_bytes()
    assert len(pids) >= 3 and resident > 1 << 30
    report = real.stop()
    assert not report.forced and real.stop() == report
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_kill_9_of_the_loop_ends_a_real_engine_with_its_children(tmp_path: Path) -> None:
    """While it starts."""
    before = segments()
    spec = f"EngineSpec.model_validate_json({real_spec().model_dump_json()!r})"
    starting = "while len(engine.pids()) < 3: time.sleep(0.2)"
    with dying_loop(loop_program("from contracts import EngineSpec", spec, 20, starting), tmp_path) as found:
        loop, record, below = found
        assert len(below) >= 4 and all(alive(one) for one in below)
        loop.send_signal(signal.SIGKILL)
        wait_gone(below, 60)
        assert not any(alive(one) for one in below)
        assert end_orphans([record]) == ()
        time.sleep(0.5)  # the resource tracker of the engine tidies after it
        assert segments() - before == set()
