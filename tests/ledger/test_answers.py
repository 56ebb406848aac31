"""Gates as a morning reads them: a line a check, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts import GateResult
from ledger import answers

NIGHT = Path(__file__).resolve().parents[2] / "docs" / "nights" / "2026-11-30-h200-graphs"


@pytest.fixture(scope="module")
def real() -> list[GateResult]:
    """Of the night's first experiment, on an H200."""
    told = [json.loads(line) for line in (NIGHT / "ledger.jsonl").read_text().splitlines()]
    gated = [line["data"] for line in told if line["kind"] == "gated"]
    first = next(data["experiment_id"] for data in gated if data["experiment_id"])
    return [GateResult.model_validate(data["result"]) for data in gated if data["experiment_id"] == first]


def gate(outcome: Any, reason: str, **more: Any) -> GateResult:
    return GateResult(check=more.pop("check", "token_ids"), outcome=outcome, reason=reason, mode="full: alone", **more)


def test_eight_gates_of_a_real_experiment_are_three_lines(real: list[GateResult]) -> None:
    assert len(real) == 8
    tokens, drift, sums = answers.lines(real)
    assert (tokens.mark, drift.mark, sums.mark) == ("pass", "pass", "not_run")
    assert tokens.text.startswith(
        "token_ids 6 times, farthest from equal (full: concurrent, 32 at a time): 13 of 32 seq"
    )
    assert tokens.text.endswith("(rms 0.021 against 0.019 nats); up to 1.5 times pass")
    assert drift.text == "drift: all log-probabilities of 2749 tokens are equal"


def test_what_went_wrong_comes_first_and_each_has_its_line() -> None:
    said = answers.lines(
        [gate("pass", "equal"), gate("fail", "7 of 8 part"), gate("fail", "2 part"), gate("inconclusive", "?")]
    )
    assert [line.mark for line in said] == ["fail", "fail", "inconclusive", "pass"]
    assert said[0].text == "token_ids (full: alone): 7 of 8 part" and said[3].text == "token_ids: equal"
    assert answers.lines([]) == []


def test_the_tally_of_a_real_experiment(real: list[GateResult]) -> None:
    assert answers.tally(real) == "7 checks passed, none failed, 1 was not run."
    assert answers.tally([gate("fail", "part"), gate("inconclusive", "?")]) == "0 checks passed, 1 failed, 1 undecided."


def test_every_word_of_every_gate_is_still_told(real: list[GateResult]) -> None:
    rows = answers.rows(real, "experiment 1")
    sights = answers.sights(real)
    told = " ".join([*(f"{row.mode} {row.reason} {row.over}" for row in rows), *map(str, sights)])
    assert sum(row.count for row in rows) == 8 and [row.count for row in rows if row.count > 1] == [2]
    for one in real:
        for text in (one.mode, one.reason, *(one.power or "").split(". ")):
            assert text in told, text
    tokens = next(sight for sight in sights if sight.check == "token_ids")
    assert tokens.always.startswith("A fault that moves leads by 0.03 nats rms fails") and len(tokens.own) == 4


def test_a_power_of_one_sentence_is_what_the_check_could_see() -> None:
    only = gate("pass", "equal", power="sees an element that is one ulp further off", check="numerics")
    assert answers.sights([only, only]) == [
        answers.Sight(check="numerics", always="sees an element that is one ulp further off", own=())
    ]
    assert answers.rows([only, only], "final stack")[0].over == "" and answers.sights([gate("pass", "equal")]) == []
