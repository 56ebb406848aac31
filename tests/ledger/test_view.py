"""The fold: what a view knows after a night, and how its wall clock was divided."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from contracts import Event, VerdictWord
from ledger import schema
from ledger.clock import TimeShare, divide, seconds_between
from ledger.content import content
from ledger.line import read_events
from ledger.schema import KINDS
from ledger.view import NightView, fold, medians
from tests.ledger.made_up import EAGER, SEQS, UNSURE, MadeUpNight
from tests.ledger.nights import KEEP_SEQS, broken_night, interrupted_night, running_night


def test_the_made_up_night_has_every_kind_of_line_but_one(events: list[Event]) -> None:
    """Keeps it honest as a test of everything that reads a night."""
    assert set(KINDS) - {event.kind for event in events} == {"interrupted"}


def test_the_fold_is_the_same_at_once_and_one_by_one(events: list[Event], view: NightView) -> None:
    step = NightView()
    for event in events:
        step = step.after(event)
    assert step == view and fold(events[100:], fold(events[:100])) == view


def test_a_view_knows_the_night(view: NightView) -> None:
    assert [e.verdict.word.value for e in view.experiments if e.verdict] == [
        "keep", "revert", "keep", "void", "failed", "revert", "inconclusive", "void",
    ]  # fmt: skip
    assert [change.key for change in view.kept_changes] == ["max-num-seqs", "enforce-eager"]
    assert view.incumbent_gain == pytest.approx(1.76 * 1.155)
    assert view.confirmed and view.confirmed.verdict.word is VerdictWord.KEEP
    assert view.lost == ("the launch of arm B for enforce-eager",)
    assert view.finish and view.finish.exit_code == 0 and not view.running
    assert view.baseline and view.baseline.noise.launch_sd == 0.011 and view.findings["peak_running"] == 4
    assert len(view.hypotheses) == 8 and len(view.dropped) == 1
    assert view.open_launches == () and len(view.failures) == 1
    first = view.experiments[0]
    assert len(first.launches) == 2 and all(launch.ready_s == 21 for launch in first.launches)
    assert len(first.measurements) == 4 and first.path_evidence and first.path_evidence.outcome == "proven"
    assert sum(m.purpose == "aa" for m in view.measured) == 4


def test_what_a_later_research_lacks_is_still_told(tmp_path: Path) -> None:
    """After each change that is kept the readers are asked again: the kept one is in no later list."""
    night = MadeUpNight(tmp_path)
    night.start()
    night.research(SEQS, EAGER, UNSURE)
    night.experiment(1, SEQS, KEEP_SEQS, 1.76)
    night.research(UNSURE)
    view = fold(night.ledger.events)
    assert view.hypotheses == (UNSURE,) and view.considered == (SEQS, UNSURE, EAGER)  # tried, left, gone
    became = [h["became"] for h in content(view, "night")["hypotheses"]]
    assert became == ["keep", "not tried", "no longer proposed"]
    night.ledger.close()


def test_an_experiment_begun_again_after_a_resume_is_one_experiment(view: NightView) -> None:
    assert len({t.experiment.id for t in view.tries}) == len(view.tries) == 8


def test_what_a_resume_forgets_and_what_it_keeps(tmp_path: Path) -> None:
    night = running_night(tmp_path)
    night.now += timedelta(seconds=400)
    night.add("night_resumed", schema.NightResumed(at_stage="launch", lost=("the launch",), ended_orphans=()))
    view = fold(night.ledger.events)
    assert (
        view.open_launches == () and view.stage is None and view.kept_ids and view.tries[-1].experiment.verdict is None
    )
    assert view.time.away == pytest.approx(400.05)
    night.ledger.close()


def test_a_running_night_tells_its_budget_and_what_is_open(tmp_path: Path) -> None:
    night = running_night(tmp_path)
    view = fold(night.ledger.events)
    later = (night.now + timedelta(seconds=30)).isoformat()
    assert view.used_s(later) == pytest.approx(view.used_s() + 30)
    assert view.left_s(later) == pytest.approx(25 * 60 - view.used_s() - 30)
    assert view.left_s((night.now + timedelta(days=1)).isoformat()) == 0
    assert [(o.arm, o.ready) for o in view.open_launches] == [("B", False)]
    assert (view.stage, view.stage_experiment) == ("launch", view.tries[-1].experiment.id)
    night.ledger.close()


def test_a_kept_change_that_is_reverted_later_is_no_longer_kept(tmp_path: Path) -> None:
    night = MadeUpNight(tmp_path)
    e = night.begin(1, SEQS)
    night.judge(e, KEEP_SEQS, 10)
    assert fold(night.ledger.events).kept_ids == (e,)
    night.add("reverted", schema.Reverted(experiment_id=e, commit="base", spec_id="spec-A"))
    view = fold(night.ledger.events)
    assert view.kept_ids == () and view.incumbent_gain == 1 and view.incumbent_commit == "base"
    night.ledger.close()


def test_lines_of_a_newer_version_are_counted_not_fatal(events: list[Event]) -> None:
    newer = events[-1].model_copy(update={"kind": "dreamt"})
    assert fold([*events, newer]).unknown_kinds == ("dreamt",)


def test_medians_leave_out_void_runs_and_missing_values(view: NightView) -> None:
    noisy = view.experiments[-1]
    assert len(noisy.measurements) == 4 and medians(noisy.measurements) == {}
    assert "itl_ms_p99" not in medians(view.experiments[0].measurements)


# --- how the wall clock is divided ---------------------------------------------------------------------------------


def test_every_second_counts_once(events: list[Event], view: NightView) -> None:
    whole = view.time.running + view.time.away
    assert whole == pytest.approx(seconds_between(events[0].at, events[-1].at)) and whole > 1000
    assert sum(s for s in view.time.shares().values() if s is not None) == pytest.approx(1, abs=1e-3)


def test_two_engines_that_start_side_by_side_count_once(tmp_path: Path) -> None:
    night = MadeUpNight(tmp_path)
    with night.stage("launch", "e1"):
        night.launch("A", ready_s=0)
    before = fold(night.ledger.events).time
    record = fold(night.ledger.events).launches[0]
    twins = [record.model_copy(update={"launch_id": f"T{i}"}) for i in (1, 2)]
    with night.stage("baseline"):
        for twin in twins:
            night.add("launch_started", schema.LaunchStarted(launch=twin, arm="A"), 0)
        for twin in twins:
            night.add("launch_ready", schema.LaunchReady(launch=twin), 20)
        night.measure(record, "A", 100)  # 16 s
        night.add("launch_stopped", schema.LaunchStopped(launch_id="T1", seconds=3, forced=False), 10)
    after = fold(night.ledger.events).time
    assert after.engine_starts - before.engine_starts == pytest.approx(40 + 3)
    assert after.measurements_and_gates - before.measurements_and_gates == pytest.approx(16 + 7 + 0.05)
    night.ledger.close()


def _event(kind: str, **data: object) -> Event:
    return Event(seq=1, at="2026-11-29T00:00:00+00:00", kind=kind, data=data, prev="", hash="")


@pytest.mark.parametrize(
    ("event", "starting", "stage", "where"),
    [
        (_event("launch_ready"), True, "measure", {"engine_starts": 10}),
        (_event("measured"), False, "measure", {"measurements_and_gates": 10}),
        (_event("measured"), True, "measure", {"engine_starts": 10}),
        (_event("gated"), False, "full_gate", {"measurements_and_gates": 10}),
        (_event("judged"), False, "judge", {"rest": 10}),
        (_event("stage_entered"), False, None, {"rest": 10}),
        (_event("launch_stopped", seconds=4), False, "confirm", {"engine_starts": 4, "measurements_and_gates": 6}),
        (_event("launch_stopped", seconds=99), False, "pick", {"engine_starts": 10}),
        (_event("launch_failed", seconds=0), False, "measure", {"measurements_and_gates": 10}),
        (_event("night_resumed"), True, "measure", {"away": 10}),
    ],
)
def test_the_rule(event: Event, starting: bool, stage: str | None, where: dict[str, float]) -> None:
    assert divide(TimeShare(), 10, event, starting, stage) == TimeShare(**where)


def test_a_clock_set_back_takes_no_time_away(tmp_path: Path) -> None:
    night = MadeUpNight(tmp_path)
    with night.stage("research"):
        night.now -= timedelta(hours=1)
        night.research(EAGER)
    assert 0 <= fold(night.ledger.events).time.running < 5
    night.ledger.close()


def test_an_empty_and_a_broken_night(tmp_path: Path) -> None:
    assert fold([]) == NightView() and NightView().left_s() is None and NightView().time.shares()["rest"] is None
    view = fold(read_events(broken_night(tmp_path)))
    assert view.failures[0].failure.kind == "out_of_memory" and view.baseline is None


def test_an_interrupted_night_says_so(tmp_path: Path) -> None:
    view = fold(read_events(interrupted_night(tmp_path)))
    assert view.interrupted == "SIGINT" and view.tries[-1].experiment.verdict is None and view.open_launches == ()
