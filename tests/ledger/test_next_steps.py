"""What a report advises: only what follows from the night."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts import Change, Lever
from ledger.line import read_events
from ledger.next_steps import in_use, next_steps, upstream
from ledger.summary import summary
from ledger.view import NightView, fold
from tests.ledger.nights import broken_night, fruitless_night, interrupted_night, whole_night


def test_a_confirmed_night_says_how_to_serve_with_it(view: NightView) -> None:
    first = next_steps(view)[0]
    assert first.startswith("Serve with it: --max-num-seqs 32; ") and "without --enforce-eager" in first
    assert upstream(view) == "Nothing: what was kept are settings of this deployment, not code or tables."
    assert summary(view)["next_steps"] == next_steps(view) and summary(view)["upstream"] == upstream(view)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (interrupted_night, "Do not serve with what was kept on the way: it was not confirmed."),
        (interrupted_night, "run_night.py CONFIG --resume goes on where the night was interrupted."),
        (fruitless_night, "Undecided: mode: default → 2"),
        (
            broken_night,
            "Mend what ended the night (the base engine does not start: out of memory): run_night.py doctor",
        ),
    ],
)
def test_other_nights(made: Any, told: str, tmp_path: Path) -> None:
    view = fold(read_events(made(tmp_path)))
    assert any(step.startswith(told) for step in next_steps(view)), next_steps(view)
    assert upstream(view) == "Nothing: no gain was confirmed."


def test_nothing_follows_from_a_rehearsal_or_a_kept_trap(view: NightView, tmp_path: Path) -> None:
    rehearsal = fold(read_events(whole_night(tmp_path, vllm="0.0.0+standin")))
    assert next_steps(rehearsal) == ["Nothing: this was a rehearsal."]
    planted = next(e.id for e in view.experiments if e.hypothesis.planted)
    (only,) = next_steps(view.but(kept_ids=(*view.kept_ids, planted)))
    assert only.startswith("Use nothing of this night: a planted trap was kept")
    assert next_steps(NightView())[0].startswith("Wait for the night's end")


@pytest.mark.parametrize(
    ("lever", "key", "after", "told"),
    [
        (Lever.ENGINE_FLAG, "max-num-seqs", 8, "--max-num-seqs 8"),
        (Lever.ENGINE_FLAG, "enforce-eager", True, "--enforce-eager"),
        (Lever.ENGINE_FLAG, "enable-prefix-caching", False, "--no-enable-prefix-caching"),
        (Lever.ENGINE_FLAG, "block-size", None, "without --block-size"),
        (Lever.ENGINE_FLAG, "speculative-config", {"method": "ngram"}, '--speculative-config \'{"method": "ngram"}\''),
        (Lever.ENVIRONMENT, "VLLM_X", "1", "VLLM_X=1 in its environment"),
        (Lever.ENVIRONMENT, "VLLM_X", None, "without the variable VLLM_X"),
        (Lever.COMPILATION, "mode", 2, '{"mode": 2} in --compilation-config'),
    ],
)
def test_how_a_server_is_started_with_a_change(lever: Lever, key: str, after: Any, told: str) -> None:
    assert in_use(Change(lever=lever, key=key, before="other", after=after)) == told


def test_a_table_or_a_patch_may_be_for_upstream(view: NightView) -> None:
    kept = view.kept[-1]
    change = Change(lever=Lever.MOE_TABLE, key="E=64,N=768.json#32", before=None, after={"BLOCK_SIZE_M": 16})
    hypothesis = kept.experiment.hypothesis.model_copy(update={"change": change})
    table = kept.model_copy(update={"experiment": kept.experiment.model_copy(update={"hypothesis": hypothesis})})
    said = upstream(view.but(tries=tuple(table if t is kept else t for t in view.tries)))
    assert said.startswith("E=64,N=768.json#32: default → ") and "(vLLM MoE table, commit " in said
    assert "Nightgate writes no patch for vLLM or AITER" in said
