"""The real vLLM: an unchanged engine passes its own gate, a skipped layer does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accuracy_gate.collect import Mode, TokenRun, collect
from accuracy_gate.gate import GateReference, calibrate, check
from accuracy_gate.prompts import prompts
from contracts import EngineSpec, Limits
from engine.server import Engine

ROOT = Path(__file__).parents[2]
LIMITS = Limits(engine_start_s=300, engine_stop_s=30)
WIDTH = 8
ASKED: tuple[tuple[Mode, int], ...] = (("concurrent", WIDTH), ("alone", 4))

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


@contextmanager
def engine(folder: Path, launch_id: str, fault: str = "") -> Iterator[Engine]:
    """With the plugin of the planted faults on its path, also where no fault is named."""
    chosen, model = ROOT / ".engine-python", ROOT / ".models" / "smollm2-135m-instruct"
    if not chosen.exists() or not model.exists():
        pytest.skip("no engine and model here: run `make setup`")
    spec = EngineSpec(
        python=chosen.read_text().strip(),
        model=str(model),
        flags={"enforce-eager": True, "max-model-len": 1024},
        env={"VLLM_CPU_KVCACHE_SPACE": "1"} | ({"NIGHTGATE_PLANTED_FAULT": fault} if fault else {}),
        plugin_paths=(str(ROOT / "tests" / "planted"),),
    )
    with Engine.start(spec, launch_id, folder, LIMITS) as running:
        running.wait_ready()
        yield running


def record(running: Engine) -> list[TokenRun]:
    return [collect(running, prompts(count), mode=mode, concurrency=WIDTH) for mode, count in ASKED]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> GateReference:
    folder = tmp_path_factory.mktemp("unchanged")
    runs: list[TokenRun] = []
    for launch_id in ("L001", "L002"):
        with engine(folder, launch_id) as running:
            runs += record(running)
            assert "PLANTED FAULT" not in running.log_since(0)
    return calibrate(runs)


def test_an_unchanged_engine_in_a_fresh_process_passes(reference: GateReference, tmp_path: Path) -> None:
    assert reference.tokens_repeat["alone"], reference.mode  # measured: exact, log-probabilities too
    with engine(tmp_path, "L003") as running:
        for run in record(running):
            result = check(reference, run)
            assert result.outcome == "pass", result.reason


def test_a_skipped_layer_fails_in_one_wave_of_prompts(reference: GateReference, tmp_path: Path) -> None:
    with engine(tmp_path, "L004", fault="skip_layer") as running:
        assert "PLANTED FAULT active: skip_layer, decoder layer 15 of 30 is left out" in running.log_since(0)
        run = collect(running, prompts(WIDTH), mode="concurrent", concurrency=WIDTH)
    result = check(reference, run)
    ratio = result.statistic["ratio"]
    assert result.outcome == "fail" and isinstance(ratio, float) and ratio > 5, result.reason
