"""Ask, check, merge, order."""

from __future__ import annotations

import contextlib
import math
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agents.research.limited import TooLong, at_most
from agents.research.rank import UnknownReader, merge, order, research
from agents.research.readers import READERS, Reader
from contracts import Change, Evidence, Hypothesis, Lever, TryItem
from ledger.line import GENESIS, MAX_LINE, encode
from ledger.schema import Researched
from tests.agents.examples import dossier, spec

BUSY = {"running_mean": 4.0, "waiting_mean": 12.0, "waiting_peak": 12}
SLOW = spec(flags={"enforce-eager": True, "max-num-seqs": 4})


def item(key: str, after: Any = 1, lever: Lever = Lever.ENGINE_FLAG, **fields: Any) -> TryItem:
    return TryItem(lever=lever, key=key, after=after, why="by hand", **fields)


def hypothesis(key: str, after: Any, score: float, **fields: Any) -> Hypothesis:
    base: dict[str, Any] = {
        "change": Change(lever=Lever.ENGINE_FLAG, key=key, after=after),
        "proposer": "p",
        "why": f"why {key}",
        "predicted_gain": math.exp(score * 200),
        "probability": 0.5,
        "cost_s": 100.0,
        "score": score,
    }
    return Hypothesis(**{**base, **fields})


def test_a_badly_set_up_engine() -> None:
    found = research(dossier(spec=SLOW, profile=BUSY))
    assert [(h.change.key, h.change.after) for h in found.hypotheses][:2] == [("max-num-seqs", 16), ("max-num-seqs", 8)]
    eager = next(h for h in found.hypotheses if h.change.key == "enforce-eager")
    assert eager.proposer == "defaults + execution_mode"  # one change, both names, all evidence
    assert eager.predicted_gain == 1.15
    assert len(eager.evidence) >= 2
    assert [h.score for h in found.hypotheses] == sorted((h.score for h in found.hypotheses), reverse=True)
    for h in found.hypotheses:
        assert h.score == pytest.approx(math.log(h.predicted_gain) * h.probability / h.cost_s)


def test_pure_and_repeatable() -> None:
    d = dossier(spec=SLOW, profile=BUSY)
    assert research(d) == research(d)


def test_the_night_files_items_keep_their_numbers() -> None:
    d = dossier(
        spec=SLOW, try_first=(item("block_size", 16, predicted_gain=1.2, probability=0.1, cost_s=30, planted=True),)
    )
    [h] = [h for h in research(d).hypotheses if h.proposer == "night file"]
    assert (h.change.key, h.predicted_gain, h.probability, h.cost_s, h.planted) == ("block-size", 1.2, 0.1, 30, True)


def test_the_night_files_items_are_checked_like_any_other() -> None:
    d = dossier(
        spec=SLOW,
        try_first=(
            item("max-num-seq", 16),
            item("max-num-seqs", 4),
            item("port", 9000),
            item("PYTHONPATH", "/x", Lever.ENVIRONMENT),
            item("MY_PLUGIN", "1", Lever.ENVIRONMENT),
        ),
    )
    found = research(d, readers=[])
    assert [h.change.key for h in found.hypotheses] == ["MY_PLUGIN"]
    assert len(found.dropped) == 4
    assert "engine_flag: max-num-seq: default -> 16 (night file): vLLM 0.32.0 has no flag" in found.dropped[0]
    assert "did you mean max-num-seqs?" in found.dropped[0]


def test_refused_before_is_dropped() -> None:
    change = Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=4, after=16)
    found = research(dossier(spec=SLOW, profile=BUSY, refused_before=(change.id,)), readers=["batch_limits"])
    assert [h.change.after for h in found.hypotheses] == [8]
    assert "refused before on this stack" in found.dropped[0]


def test_readers_by_name() -> None:
    assert research(dossier(spec=SLOW), readers=["defaults"]).hypotheses
    with pytest.raises(UnknownReader, match="did you mean batch_limits?"):
        research(dossier(), readers=["batch_limit"])


def test_a_reader_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> list[Hypothesis]:
        raise KeyError("x")

    monkeypatch.setitem(READERS, "broken", Reader("broken", broken, lambda _: [], lambda _: []))
    found = research(dossier(spec=SLOW, profile=BUSY))
    assert found.hypotheses
    assert "reader broken failed and was left out: KeyError: 'x'" in found.dropped


@pytest.mark.timeout(60, method="thread")  # which leaves SIGALRM to the code
def test_a_reader_without_an_end_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may even catch what ends it: the alarm rings again."""

    def endless(_: Any) -> list[Hypothesis]:
        with contextlib.suppress(Exception):
            while True:
                pass
        re.match(r"(a+)+$", "a" * 40 + "b")  # takes years
        return []

    monkeypatch.setattr("agents.research.rank.MOST_S", 0.2)
    monkeypatch.setitem(READERS, "endless", Reader("endless", endless, lambda _: [], lambda _: []))
    found = research(dossier(spec=SLOW, profile=BUSY), ["endless", "defaults"])
    assert found.hypotheses
    assert found.dropped[0] == "reader endless failed and was left out: TooLong: it took more than 0.2 s"
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.timeout(60, method="thread")  # which leaves SIGALRM to the code
def test_only_the_main_thread_has_a_time_limit() -> None:
    def slow() -> str:
        time.sleep(0.05)
        return "done"

    with ThreadPoolExecutor(1) as other:
        assert other.submit(at_most, 0.001, slow).result() == "done"
    with pytest.raises(TooLong, match=r"more than 0\.001 s"):
        at_most(0.001, lambda: time.sleep(5))


@pytest.mark.timeout(60, method="thread")  # which leaves SIGALRM to the code
def test_an_alarm_that_a_nights_own_signal_left_set_takes_itself_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM as the time limit is being taken away: the night goes on to end its engines, and nothing may raise there
    a second later. (The signal comes here at the one place that matters.)"""

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("agents.research.limited._quiet", stopped)
        with pytest.raises(KeyboardInterrupt) as held:  # whoever holds the error holds all frames of it
            at_most(0.05, lambda: None)
    assert signal.getitimer(signal.ITIMER_REAL) != (0, 0)
    time.sleep(0.3)
    assert held.value.__traceback__ is not None
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_merge_joins_what_is_said_about_one_change() -> None:
    low = hypothesis("a", 1, 0.001, proposer="x", bound=3.0, risk="high", evidence=(Evidence(source="s", detail="1"),))
    high = hypothesis(
        "a", 1, 0.002, proposer="y", bound=5.0, planted=True, evidence=(Evidence(source="t", detail="2"),)
    )
    [h] = merge([low, high])
    assert h.proposer == "x + y"
    assert (h.bound, h.risk, h.planted) == (3.0, "high", True)
    assert h.predicted_gain == pytest.approx(high.predicted_gain)
    assert len(h.evidence) == 2


def test_a_prediction_never_exceeds_its_bound() -> None:
    high = hypothesis("a", 1, 0.02, bound=None)
    low = hypothesis("a", 1, 0.001, bound=1.2)
    [h] = merge([high, low])
    assert h.predicted_gain == 1.2
    assert h.score == pytest.approx(math.log(1.2) * 0.5 / 100)


def test_ties_are_ordered_and_said() -> None:
    first, second = order([hypothesis("b", 1, 0.01), hypothesis("a", 2, 0.01)])
    assert (first.change.key, second.change.key) == ("a", "b")
    assert "same score as engine_flag: a: default -> 2" in second.why
    assert order([hypothesis("a", 2, 0.01), hypothesis("b", 1, 0.01)]) == (first, second)
    assert order([second, first]) == (first, second)  # said once, however often they are ordered
    (alone,) = order([second])
    assert alone.why == hypothesis("b", 1, 0.01).why  # and no longer where there is no tie


def test_a_loss_is_ranked_last_not_lost() -> None:
    found = order([hypothesis("a", 1, -0.01), hypothesis("b", 1, 0.0), hypothesis("c", 1, 0.01)])
    assert [h.change.key for h in found] == ["c", "b", "a"]


def test_what_no_line_of_the_ledger_can_hold_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader took NaN, a table of megabytes and many large ones from damaged files; a line that cannot be written
    would end the night."""
    tile = {"x": {"y": [math.nan]}}
    several = [hypothesis("max-num-seqs", 17 + n, score=(20 - n) / 1000, why="z" * 500_000) for n in range(20)]
    found = [
        hypothesis("max-num-batched-tokens", tile, score=1.0),
        hypothesis("max-model-len", 4096, score=0.9, why="x" * (1 << 20)),
        *several,
    ]
    monkeypatch.setitem(READERS, "bad", Reader("bad", lambda _: found, lambda _: [], lambda _: []))
    monkeypatch.setattr("agents.research.rank.static_check", lambda *_, **__: None)
    said = research(dossier(spec=SLOW), ["bad"])
    assert [h.change.after for h in said.hypotheses] == [17 + n for n in range(12)]  # the best; 12 of them fit
    assert "max-num-batched-tokens" in said.dropped[0] and "NaN" in said.dropped[0]
    assert "max-model-len" in said.dropped[1] and "more than the 524,288 that are tried" in said.dropped[1]
    assert len(said.dropped) == 2 + 8 and all("fill the ledger's line" in line for line in said.dropped[2:])
    _, line = encode(1, "2026-11-30T21:00:00.000+00:00", "researched", Researched(**said.model_dump()), GENESIS)
    assert len(line) < MAX_LINE


def test_a_readers_own_fault_is_told_in_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> list[Hypothesis]:
        raise ValueError("a\nb" * 10_000)

    monkeypatch.setitem(READERS, "bad", Reader("bad", fails, lambda _: [], lambda _: []))
    [line] = research(dossier(spec=SLOW), ["bad"]).dropped
    assert line.startswith("reader bad failed and was left out: ValueError: a ba b") and len(line) < 400
