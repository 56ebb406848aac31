"""Prompts of a night: fresh for every pair of runs, the same in its two arms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.pairs import BURST, SETTLING, _Plan, prompt_seed, single_run
from contracts import Workload
from tests.agents.examples import CPU, GFX950, run, spec, workload

NIGHT: Any = SimpleNamespace(config=SimpleNamespace(workload=workload()))


def test_every_run_has_prompts_of_its_own_and_so_has_a_burst() -> None:
    """A burst with the prompts of run 0 filled the prefix cache of one arm for it."""
    places = [("experiment", pair, run) for pair in range(3) for run in (BURST - 1, BURST, 0, 1, 2)] + [("aa", 0, 0)]
    seeds = [prompt_seed(NIGHT, purpose, "e01", pair, run) for purpose, pair, run in places]  # type: ignore[arg-type]
    assert len(set(seeds)) == len(places)
    assert prompt_seed(NIGHT, "aa", None, 0, 0) == prompt_seed(NIGHT, "aa", None, 0, 0)


@pytest.mark.parametrize(
    ("card", "compiles", "bursts"),
    [(GFX950, [2, 1, 0, 0], 3), (GFX950, [0, 0], 1), (GFX950, [1] * 9, SETTLING), (CPU, [1], 0)],
)
def test_a_launch_on_a_gpu_is_given_bursts_until_one_compiles_nothing(
    card: Any, compiles: list[int], bursts: int
) -> None:
    night: Any = SimpleNamespace(
        card=card, config=SimpleNamespace(workload=workload(), judge=SimpleNamespace(runs_per_launch=2))
    )
    plan, asked = _Plan(night, {"A": spec(), "B": spec()}, 0, "aa", None), list[int]()

    def run_once(arm: str, number: int, attempt: int, short: Workload | None = None) -> Any:
        assert short is not None and (short.requests, short.warmup_requests) == (16, 0)  # one wave of 16 users
        asked.append(number)
        return run(arm, compiles_in_window=compiles[len(asked) - 1])

    plan.run_once = run_once  # type: ignore[method-assign]
    plan.settle("B")
    assert asked == [BURST - 1 - n for n in range(bursts)]


@pytest.mark.parametrize(("voids", "attempts"), [([0], 1), ([1, 0], 2), ([1, 1, 0], 3), ([1, 1, 1, 0], 3)])
def test_a_single_run_that_is_void_is_repeated_as_those_of_pairs_are(
    voids: list[int], attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's own defaults were once not told of in a night's report, because their one run was void."""
    told: list[tuple[str, Any]] = []
    night: Any = SimpleNamespace(
        card=CPU,
        config=SimpleNamespace(workload=workload(), judge=SimpleNamespace(runs_per_launch=2)),
        emit=lambda kind, data: told.append((kind, data)),
    )

    def run_once(plan: _Plan, arm: str, number: int, attempt: int) -> Any:
        late = ("the load generator was late",) if voids[attempt] else ()
        return run(arm).model_copy(update={"void_reasons": late})

    monkeypatch.setattr(_Plan, "run_once", run_once)
    last = single_run(night, spec(), "stock")
    assert [kind for kind, _ in told] == ["measured"] * attempts  # each is in the ledger
    assert bool(last.void_reasons) == (voids[attempts - 1] == 1)
