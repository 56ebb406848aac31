"""Prompts of a night: fresh for every pair of runs, the same in its two arms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agents.pairs import BURST, prompt_seed
from tests.agents.examples import workload

NIGHT: Any = SimpleNamespace(config=SimpleNamespace(workload=workload()))


def test_every_run_has_prompts_of_its_own_and_so_has_a_burst() -> None:
    """A burst with the prompts of run 0 filled the prefix cache of one arm for it."""
    places = [("experiment", pair, run) for pair in range(3) for run in (BURST, 0, 1, 2)] + [("aa", 0, 0)]
    seeds = [prompt_seed(NIGHT, purpose, "e01", pair, run) for purpose, pair, run in places]  # type: ignore[arg-type]
    assert len(set(seeds)) == len(places)
    assert prompt_seed(NIGHT, "aa", None, 0, 0) == prompt_seed(NIGHT, "aa", None, 0, 0)
