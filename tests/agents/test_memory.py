"""What earlier nights on the same stack found out. The nights are made up and small; their ledgers are real ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.research import memory_folders
from agents.research.memory import (
    CONFIRMED,
    KEPT,
    Memory,
    PastNight,
    Stack,
    difference,
    facts,
    likelier,
    model_identity,
    refused_ids,
    remember,
    stack_of,
    stack_of_night,
    why_refused,
)
from agents.research.memory_folders import read_nights
from agents.tuning.static_check import static_check
from contracts import Change, EngineSpec, Failure, FailureKind, Hypothesis, LaunchRecord, Lever, Verdict, VerdictWord
from ledger import schema
from ledger.line import LEDGER
from ledger.view import NightView
from tests.agents.examples import KNOBS, spec
from tests.ledger.made_up import EAGER, NOTHING, REFUSED, SEQS, UNSURE, WRONG, MadeUpNight, hypothesis
from tests.ledger.nights import KEEP_EAGER, KEEP_SEQS, running_night, said

SMALL = hypothesis("max-num-batched-tokens", None, 4096, 1.05)
BLOCK = hypothesis("block-size", None, 16, 1.05)  # the same change as the planted one, in earnest
LAYER = WRONG.model_copy(update={"planted": False})
TOO_SMALL = said(VerdictWord.REVERT, "output tokens/s 1.003x: less than the smallest gain of 2 %", 1.003, half=0.01)
WRONG_ANSWERS = said(VerdictWord.REVERT, "the token_ids gate says fail: 7 of 8 part")
SPEC = EngineSpec(python="p", model="m", flags={"enforce-eager": True, "max-num-seqs": 4})


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.log.os.fsync", lambda fd: None)
    monkeypatch.setattr("ledger.log.reserve.hold", lambda folder: None)


def night(folder: Path, play: Callable[[MadeUpNight], object], vllm: str = "0.32.0", days: int = 0) -> PastNight:
    """A whole small night: start, what `play` does, an end."""
    made = MadeUpNight(folder, vllm)
    made.now = made.now.replace(day=1 + days)
    made.start()
    play(made)
    made.finish("done", "every hypothesis was tried")
    nights, notes = read_nights(folder.parent)
    assert notes == ()
    return next(n for n in nights if n.name == folder.name)


def tried(n: MadeUpNight, number: int, h: Hypothesis, verdict: Verdict) -> None:
    """An experiment of which only the verdict is told."""
    n.judge(n.begin(number, h), verdict, 100)


def stack(past: PastNight) -> Stack:
    held = stack_of_night(past)
    assert held is not None
    return held


def ids(memory: Memory, on: EngineSpec = SPEC) -> tuple[str, ...]:
    return refused_ids(memory, on)


def test_what_was_refused_is_not_tried_again_and_what_was_kept_is_likelier(tmp_path: Path) -> None:
    def play(n: MadeUpNight) -> None:
        tried(n, 1, SEQS, KEEP_SEQS)
        tried(n, 2, SMALL, TOO_SMALL)
        n.refused(3, BLOCK)

    past = night(tmp_path / "monday", play)
    memory = remember([past], stack(past))
    assert [(r.change.key, r.outcome, r.about) for r in memory.remembered] == [
        ("max-num-seqs", "kept", "speed"),
        ("max-num-batched-tokens", "refused", "speed"),
        ("block-size", "refused", "start"),
    ]
    assert ids(memory) == (SMALL.change.id, BLOCK.change.id) and memory.notes == ()
    assert why_refused(memory, SMALL.change) == (
        "monday has tried it on this stack: revert: output tokens/s 1.003x: less than the smallest gain of 2 %"
    )
    assert why_refused(memory, SEQS.change) is None

    surer = likelier(SEQS, memory)
    assert (SEQS.probability, surer.probability) == (0.6, KEPT)
    assert surer.why.endswith("; monday kept it on this stack") and surer.predicted_gain == SEQS.predicted_gain
    assert surer.evidence[-1].source == "logs/monday/ledger.jsonl#e01-" + SEQS.id[:6]
    assert likelier(EAGER, memory) is EAGER

    assert [f.title for f in facts(memory)] == [
        "engine_flag: max-num-seqs: 4 -> 32 was kept by monday on this stack: "
        "keep: at least 1.71x at 97.5 % confidence; the smallest gain is 1.02x",
        "engine_flag: max-num-batched-tokens: default -> 4096 is not tried again: monday has tried it on this stack: "
        "revert: output tokens/s 1.003x: less than the smallest gain of 2 %",
        "engine_flag: block-size: default -> 16 is not tried again: monday has tried it on this stack: failed: the "
        'engine refused to start with it: ValueError: block_size must be a multiple of 32, got <16> & "stopped"',
    ]


def test_the_static_check_takes_the_ids(tmp_path: Path) -> None:
    past = night(tmp_path / "monday", lambda n: tried(n, 1, SMALL, TOO_SMALL))
    refused = ids(remember([past], stack(past)))
    assert static_check(SMALL.change, spec(), KNOBS, refused) == "it was refused before on this stack"


def test_a_start_or_an_answer_does_not_depend_on_where_the_change_began(tmp_path: Path) -> None:
    def play(n: MadeUpNight) -> None:
        n.refused(1, BLOCK)
        n.experiment(2, LAYER, WRONG_ANSWERS, wrong=True)
        tried(n, 3, SEQS, TOO_SMALL)

    past = night(tmp_path / "monday", play)
    memory = remember([past], stack(past))
    elsewhere = EngineSpec(python="p", model="m", flags={"block-size": 64, "max-num-seqs": 16})
    from_64 = Change(lever=Lever.ENGINE_FLAG, key="block-size", before=64, after=16)
    from_16 = Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=16, after=32)
    assert from_64.id in ids(memory, elsewhere) and LAYER.id in ids(memory, elsewhere)
    assert from_16.id not in ids(memory, elsewhere)  # 4 -> 32 was too little; 16 -> 32 is another question
    assert why_refused(memory, from_64) and not why_refused(memory, from_16)


@pytest.mark.parametrize(
    ("verdict", "refused"),
    [
        (said(VerdictWord.INCONCLUSIVE, "between 0.985x and 1.046x", 1.015, half=0.03), False),  # 4.6 % may be there
        (said(VerdictWord.INCONCLUSIVE, "between 0.995x and 1.015x", 1.005, half=0.01), True),  # under two smallest
        (said(VerdictWord.INCONCLUSIVE, "faster, but a limit is unsure", 1.03, half=0.005), False),
        (said(VerdictWord.INCONCLUSIVE, "the budget ended before the next launch pair"), False),
        (said(VerdictWord.VOID, "void, and void again whenever repeated"), False),
    ],
)
def test_an_undecided_change_is_refused_only_by_a_night_that_could_have_seen_it(
    tmp_path: Path, verdict: Verdict, refused: bool
) -> None:
    past = night(tmp_path / "monday", lambda n: tried(n, 1, UNSURE, verdict))
    assert (UNSURE.id in ids(remember([past], stack(past)))) is refused


@pytest.mark.parametrize(
    ("kind", "refused"), [(k, k not in ("port_taken", "no_vllm", "not_ours")) for k in FailureKind]
)
def test_a_failure_of_the_place_says_nothing_of_the_change(tmp_path: Path, kind: FailureKind, refused: bool) -> None:
    def play(n: MadeUpNight) -> None:
        e = n.begin(1, BLOCK)
        failure = Failure(kind=kind, reason="it did not serve")
        n.add("launch_failed", schema.LaunchFailed(launch_id="L1", failure=failure, experiment_id=e, seconds=8))
        n.judge(e, Verdict(word=VerdictWord.FAILED, reason=f"{kind}: it did not serve"), 9)

    past = night(tmp_path / "monday", play)
    assert (BLOCK.id in ids(remember([past], stack(past)))) is refused


def test_what_the_engine_took_without_using_it_is_a_fact_and_no_refusal(tmp_path: Path) -> None:
    ignored = NOTHING.model_copy(update={"planted": False})
    void = said(VerdictWord.VOID, "nothing was measured: both logs say the same")
    past = night(tmp_path / "monday", lambda n: n.experiment(1, ignored, void, path="absent"))
    memory = remember([past], stack(past))
    assert ids(memory) == ()
    [fact] = facts(memory)
    assert "was accepted and not in use in monday on this stack" in fact.title


def test_a_verdict_on_speed_needs_the_same_load(tmp_path: Path) -> None:
    def play(n: MadeUpNight) -> None:
        tried(n, 1, SEQS, KEEP_SEQS)
        tried(n, 2, SMALL, TOO_SMALL)
        n.refused(3, BLOCK)

    past = night(tmp_path / "monday", play)
    other = stack(past).model_copy(update={"load": "another"})
    memory = remember([past], other)
    assert ids(memory) == (BLOCK.change.id,)  # it does not start under any load
    assert likelier(SEQS, memory) is SEQS
    assert "under another load, so it may be tried again" in facts(memory)[1].title


def test_a_load_is_what_is_sent_and_not_how_it_is_measured(tmp_path: Path) -> None:
    past = night(tmp_path / "monday", lambda n: None)
    view = past.view
    assert view.config is not None and view.card is not None
    work = view.config.workload

    def load(**changes: Any) -> str:
        assert view.card is not None
        return stack_of(view.versions, view.card, "m", work.model_copy(update=changes)).load

    assert load() == load(seed=9, requests=400, name="x", warmup_requests=1) == stack(past).load
    assert len({load(), load(concurrency=8), load(input_tokens=(1, 2)), load(shared_prefix_tokens=64)}) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": {"vllm": "0.33.0", "torch": "2.13.0+cpu"}}, "another engine"),
        ({"engine": {}}, "its version of vLLM is not known"),
        ({"card": "gfx950 MI355X, 256 compute units"}, "another card"),
        ({"model": "config abc"}, "another model"),
        ({"metric": "ttft_ms_p50"}, "another metric"),
    ],
)
def test_another_stack_is_another_question(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    past = night(tmp_path / "monday", lambda n: tried(n, 1, SMALL, TOO_SMALL))
    other = stack(past).model_copy(update=changes)
    assert says in str(difference(stack(past), other))
    memory = remember([past], other)
    assert (memory.remembered, memory.notes) == ((), ("1 night of another stack, left out",))
    assert read_nights(tmp_path, other) == ((), ("1 night of another stack, left out",))  # after its first line


def test_a_start_need_not_be_the_first_line(tmp_path: Path) -> None:
    made = MadeUpNight(tmp_path / "monday")
    with made.stage("preflight"):
        made.start()
    made.finish("done", "nothing was tried")
    [past], _ = read_nights(tmp_path)
    other = stack(past).model_copy(update={"card": "another"})
    assert read_nights(tmp_path, other) == ((), ("1 night of another stack, left out",))


def test_what_does_not_decide_the_speed_is_no_other_stack(tmp_path: Path) -> None:
    past = night(tmp_path / "monday", lambda n: None)
    view = past.view
    assert view.config is not None and view.card is not None
    newer = dict(view.versions) | {"nightgate": "9", "commit": "x", "python": "3.12.1", "kernel": "6.9"}
    assert stack_of(newer, view.card, past.model, view.config.workload) == stack(past)


def test_the_newest_verdict_on_a_change_stands(tmp_path: Path) -> None:
    old = night(tmp_path / "monday", lambda n: n.refused(1, BLOCK))
    new = night(tmp_path / "tuesday", lambda n: tried(n, 1, BLOCK, said(VerdictWord.KEEP, "now", 1.1)), days=1)
    for order in ([old, new], [new, old]):
        memory = remember(order, stack(new))
        assert [(r.night, r.outcome) for r in memory.remembered] == [("tuesday", "kept")]
        assert ids(memory) == ()


@pytest.mark.parametrize(
    ("word", "probability"),
    [(VerdictWord.KEEP, CONFIRMED), (VerdictWord.REVERT, 0.6), (VerdictWord.VOID, KEPT), (VerdictWord.FAILED, KEPT)],
)
def test_a_confirmation_counts(tmp_path: Path, word: VerdictWord, probability: float) -> None:
    def play(n: MadeUpNight) -> None:
        tried(n, 1, EAGER, KEEP_EAGER)
        n.confirm(word, 1.15, (1.1, 1.2), "told again")

    past = night(tmp_path / "monday", play)
    assert likelier(EAGER, remember([past], stack(past))).probability == probability


def test_planted_changes_and_rehearsals_count_for_nothing(tmp_path: Path) -> None:
    def play(n: MadeUpNight) -> None:
        n.refused(1, REFUSED)
        tried(n, 2, SEQS, KEEP_SEQS)

    real = night(tmp_path / "real", play)
    night(tmp_path / "rehearsed", lambda n: tried(n, 1, SMALL, TOO_SMALL), vllm="0.0.0+standin")
    nights, notes = read_nights(tmp_path, stack(real))
    memory = remember(nights, stack(real))
    assert notes == ()
    assert set(memory.notes) == {
        "real: 1 planted change, left out",
        "rehearsed: a rehearsal on a stand-in engine, left out",
    }
    assert [(r.night, r.change) for r in memory.remembered] == [("real", SEQS.change)]


def test_a_launch_that_calls_itself_a_stand_in_is_enough(tmp_path: Path) -> None:
    past = night(tmp_path / "monday", lambda n: tried(n, 1, SMALL, TOO_SMALL))
    record = LaunchRecord(
        launch_id="L1", spec_id="s", pid=1, pid_started=1.0, port=1, nonce="n", log_path="l",
        realised={"stand_in": "1.0"},
    )  # fmt: skip
    past = past.model_copy(update={"view": past.view.model_copy(update={"launches": (record,)})})
    assert remember([past], stack(past)).notes == ("monday: a rehearsal on a stand-in engine, left out",)


def test_a_night_that_is_running_or_never_started(tmp_path: Path) -> None:
    running = running_night(tmp_path / "running")
    nights, _ = read_nights(tmp_path)
    [past] = nights
    assert [r.change.id for r in remember([past], stack(past)).remembered] == [SEQS.id]  # the open one has no verdict
    assert read_nights(tmp_path, leave_out=tmp_path / "running") == ((), ())
    running.ledger.close()
    empty = PastNight(name="empty", model="m", view=NightView())
    assert remember([empty], stack(past)).notes == ("empty: its first line is missing, left out",)


def test_a_model_is_its_configuration_or_else_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"hidden_size": 8}))
    monkeypatch.setattr("tests.ledger.made_up.MODEL", str(model))
    past = night(tmp_path / "logs" / "monday", lambda n: None)
    assert past.model == model_identity("/elsewhere", {"hidden_size": 8}) != model_identity("/elsewhere", None)
    (model / "config.json").write_text("{")
    [again], _ = read_nights(tmp_path / "logs")
    assert again.model == str(model)


def test_ledgers_that_cannot_be_read_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = night(tmp_path / "good", lambda n: tried(n, 1, SMALL, TOO_SMALL))
    for name in ("changed", "long", "loop", "pipe", "no_ledger", "garbage", "empty"):
        (tmp_path / name).mkdir()
    text = (tmp_path / "good" / LEDGER).read_text()
    (tmp_path / "changed" / LEDGER).write_text(text.replace('"minutes":25', '"minutes":26'))
    (tmp_path / "long" / LEDGER).write_text(text + "x" * 200_000)
    (tmp_path / "loop" / LEDGER).symlink_to(tmp_path / "loop" / LEDGER)
    os.mkfifo(tmp_path / "pipe" / LEDGER)
    (tmp_path / "garbage" / LEDGER).write_bytes(b"\xff\x00\n[[[[\n")
    (tmp_path / "empty" / LEDGER).touch()
    (tmp_path / "README.md").touch()
    monkeypatch.setattr(memory_folders, "MOST_BYTES", 200_000)
    nights, notes = read_nights(tmp_path)
    assert {n.name for n in nights} == {"good", "empty"}
    assert sorted(notes) == [
        "changed: its ledger is left out: changed/ledger.jsonl: line 1: its content does not match its hash: "
        "it was changed after it was written",
        "garbage: its ledger is left out: garbage/ledger.jsonl: line 1: it is not JSON: "
        "it was changed after it was written",
        "long: its ledger is left out: it has 0 MiB, and at most 0 are read",
        "loop: its ledger is left out: Too many levels of symbolic links",
    ]
    assert [r.night for r in remember(nights, stack(good)).remembered] == ["good"]


def test_only_the_newest_nights_are_read(tmp_path: Path) -> None:
    for number in range(4):
        night(tmp_path / f"n{number}", lambda n: None)
        os.utime(tmp_path / f"n{number}" / LEDGER, (1000 + number, 1000 + number))
    nights, notes = read_nights(tmp_path, most=2)
    assert [n.name for n in nights] == ["n3", "n2"]
    assert notes == ("not read: 2 older nights; the newest 2 are",)


def test_no_folder_of_nights_is_no_fault(tmp_path: Path) -> None:
    assert read_nights(tmp_path / "none") == ((), ())
    (tmp_path / "file").touch()
    assert read_nights(tmp_path / "file") == ((), ("earlier nights are not read: Not a directory",))
