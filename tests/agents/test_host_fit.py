"""A night asks its host before it begins: may this user open the card, will it hold two engines, who ends it early?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agents import machine_fit
from agents.preflight import foresee_twins, preflight
from cards.detect import detect
from contracts import Card
from tests.agents.test_preflight import CPU, GIB, GPU, fatal, model, night
from tests.agents.z100_host import LI, host, interpreter, z100

__all__ = ["model"]  # the fixture


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_fit, "LOOK_S", 0.02)


def test_a_night_on_a_card_that_this_user_may_not_open_does_not_begin(model: Path, tmp_path: Path) -> None:
    """A Z100's host, written down as a folder: nobody here has one."""
    answer = {"python": "3.10.12", "vllm": "0.19.1+gfx906", "vllm_distribution": "vllm", "torch": "2.9.0", "hip": "6.3"}
    config = night(model, python=str(interpreter(tmp_path / "engine", **answer)))
    where = host(z100(tmp_path / "root"), env={"SLURM_JOB_END_TIME": "1800003600", "SLURM_JOB_ID": "5"})
    card = detect(tmp_path / "root")[0]
    problems = preflight(config, card, tmp_path, where)
    assert fatal(problems)[0].startswith(
        "li may not use /dev/kfd, /dev/mkfd, /dev/dri/renderD128: sudo usermod -aG render"
    )
    assert any(
        str(p).startswith("Slurm (job 5) ends all this in 60 minutes, and the night wants 600") for p in problems
    )
    member = host(tmp_path / "root", LI.model_copy(update={"gids": (109,)}))
    assert not any("/dev/" in line for line in fatal(preflight(config, card, tmp_path, member)))


@pytest.mark.parametrize(
    ("card", "free_gib", "engine", "begins"),
    [
        (CPU, 16, {}, "yes: each wants about 3.5 GiB, and 16.0 are free on CPU"),
        (CPU, 6, {}, "no, one after the other: each wants about 3.5 GiB, and 6.0 are free on CPU"),
        (GPU, 139, {"flags": {"gpu-memory-utilization": 0.45}}, "yes: each wants about 63.0 GiB"),
        (GPU, 139, {}, "no, one after the other: each wants about 128.8 GiB, and 139.0 are free on H200; for two, set"),
        (GPU, None, {}, "no telling: the card does not say what is free"),
    ],
)
def test_before_any_engine_twins_are_an_estimate(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    card: Card,
    free_gib: int | None,
    engine: dict[str, object],
    begins: str,
) -> None:
    monkeypatch.setattr("agents.preflight.free_memory", lambda _card: None if free_gib is None else free_gib * GIB)
    enough, why = foresee_twins(night(model, **engine), card)
    assert why.startswith(begins)
    assert enough == begins.startswith("yes")
