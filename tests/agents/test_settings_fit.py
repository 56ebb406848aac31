"""What a night file sets for all of its engines, against what a vLLM of the real layout knows (fake_vllm)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.config import load_night
from agents.research.installed_vllm import read_knobs
from agents.research.knobs import Knobs
from agents.research.vllm_source import knobs_from_source
from agents.settings_fit import ignored_settings, unknown_settings
from agents.stages.opening import base_spec
from contracts import EngineSpec
from tests.agents import fake_vllm

CHECKOUT = Path(__file__).resolve().parents[2]
REAL = CHECKOUT / ".venv-engine" / "bin" / "python"


@pytest.fixture(scope="module")
def knobs(tmp_path_factory: pytest.TempPathFactory) -> Knobs:
    return knobs_from_source(fake_vllm.plant(tmp_path_factory.mktemp("site")))


def told(knobs: Knobs, **settings: Any) -> list[str]:
    spec = EngineSpec(python="python", model="model", **settings)
    return [str(problem) for _, problem in unknown_settings(spec, knobs)]


@pytest.mark.parametrize(
    ("settings", "says", "fix"),
    [
        (
            {"flags": {"max-num-seq": 4}},
            "has no flag max-num-seq; did you mean max-num-seqs?",
            "engine.flags.max-num-seq",
        ),
        ({"flags": {"dtype": "float8"}}, 'dtype takes one of auto, half, float16, not "float8"', "engine.flags.dtype"),
        ({"compilation": {"mod": 3}}, "has no compilation key mod; did you mean mode?", "engine.compilation.mod"),
        (
            {"env": {"VLLM_NOSUCH": "1"}},
            "has no environment variable VLLM_NOSUCH; it would be ignored",
            "engine.env.VLLM",
        ),
    ],
)
def test_a_slip_in_the_base_is_told_with_its_place(settings: Any, says: str, fix: str, knobs: Knobs) -> None:
    (line,) = told(knobs, **settings)
    assert says in line and f"correct {fix}" in line and line.endswith(" in the night file")


@pytest.mark.parametrize(
    "settings",
    [
        {"flags": {"max-num-seqs": "4", "enforce-eager": True, "dtype": "half"}},  # vLLM reads "4" as a number
        {"flags": {"trust-remote-code": True, "hf-token": "x", "tokenizer": "t"}},  # nothing to tune, and fine here
        {"env": {"PATH": "/bin", "OMP_NUM_THREADS": "4", "VLLM_LOGGING_LEVEL": "DEBUG", "LD_PRELOAD": "/x.so"}},
        {"compilation": {"cudagraph_capture_sizes": [1, 2], "cache_dir": "/x", "pass_config": {"fuse": True}}},
    ],
)
def test_what_an_engine_takes_is_no_word(settings: Any, knobs: Knobs) -> None:
    assert told(knobs, **settings) == []


def test_of_what_an_engine_starts_with_the_ignored_is_a_warning_of_the_night(knobs: Knobs) -> None:
    spec = EngineSpec(python="python", model="m", flags={"of-a-plugin": 1}, env={"VLLM_NOSUCH": "1"})
    (problem,) = ignored_settings(spec, knobs)
    assert "VLLM_NOSUCH" in str(problem) and not problem.fatal


def test_where_no_source_was_read_nothing_is_unknown() -> None:
    nothing = Knobs(version="unknown", path="")
    assert told(nothing, flags={"max-num-seq": 4}, compilation={"mod": 3}, env={"VLLM_NOSUCH": "1"}) == []


@pytest.mark.skipif(not REAL.exists(), reason="no .venv-engine here; `make setup` installs the engine")
def test_the_embedded_night_is_known_to_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTGATE_ENGINE_PYTHON", str(REAL))
    spec = base_spec(load_night(CHECKOUT / "configs" / "nights" / "first_night.yaml"))
    assert list(unknown_settings(spec, read_knobs(str(REAL)))) == []
