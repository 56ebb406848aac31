"""Whole made-up nights for tests (see made_up.py): every verdict, killed, interrupted, running, fruitless, broken."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from contracts import Failure, FailureKind, LaunchRecord, Verdict, VerdictWord
from ledger import schema
from ledger.log import Ledger
from tests.ledger.made_up import EAGER, NOISY, NOTHING, REFUSED, SECRET, SEQS, TRADE, UNSURE, WRONG, MadeUpNight


def said(word: VerdictWord, reason: str, ratio: float | None = None, half: float = 0.03) -> Verdict:
    return Verdict(
        word=word,
        reason=reason,
        metric="output_tokens_per_s" if ratio else None,
        ratio=ratio,
        interval=(ratio * (1 - half), ratio * (1 + half)) if ratio else None,
        confidence=0.975 if ratio else None,
        launch_pairs=2 if ratio else 0,
        alpha_spent=0.025 if ratio else 0.0,
    )


KEEP_SEQS = said(VerdictWord.KEEP, "at least 1.71x at 97.5 % confidence; the smallest gain is 1.02x", 1.76)
KEEP_EAGER = said(VerdictWord.KEEP, "at least 1.12x at 98.3 % confidence; the smallest gain is 1.02x", 1.155)


def trees(when: Literal["before", "after"]) -> schema.InstalledTrees:
    return schema.InstalledTrees(
        when=when,
        trees={"vllm": schema.TreeState(files=3300, bytes=466 << 20, digest="d" * 64)},
        left_out="__pycache__ and *.pyc",
        path=f"artifacts/installed_trees-{when}.json",
        seconds=0.9,
    )


def whole_night(folder: Path, vllm: str = "0.32.0") -> Path:
    """Every verdict once, a kill and a resume in the middle, and a confirmed gain."""
    night = MadeUpNight(folder, vllm)
    with night.stage("preflight"):
        night.start()
    night.add("installed_trees", trees("before"))
    night.baseline()
    night.profile()
    night.research(SEQS, EAGER, WRONG, NOTHING, REFUSED, TRADE, UNSURE, NOISY)
    night.experiment(1, SEQS, KEEP_SEQS, 1.76)
    wrong = "the answers are wrong: 7 of 8 part, the first at token 3 where the top-2 gap is 4.1 nats (near tie: 0.3)"
    night.experiment(2, WRONG, said(VerdictWord.REVERT, wrong), wrong=True, seconds=61)
    _killed_and_resumed(night)
    night.experiment(3, EAGER, KEEP_EAGER, 1.155, seconds=204)
    nothing = "not measured: the change is not in use; both logs say the same about attention-backend"
    night.experiment(4, NOTHING, said(VerdictWord.VOID, nothing), path="absent", seconds=49)
    night.refused(5, REFUSED)
    trade = "TPOT p95 is 118 ms, above the workload's limit of 90 ms; output tokens/s alone (1.004x) would not decide"
    night.experiment(6, TRADE, said(VerdictWord.REVERT, trade, 1.004), 1.004)
    unsure = "output tokens/s is between 0.985x and 1.046x: neither a gain of 1.02x nor the lack of one is shown"
    night.experiment(7, UNSURE, said(VerdictWord.INCONCLUSIVE, unsure, 1.015), 1.015)
    noisy = "two runs of arm B were void: 31 % of their prompt tokens hit the prefix cache, 0 % in arm A"
    night.experiment(8, NOISY, said(VerdictWord.VOID, noisy), void=("prefix cache hit unequally",))
    shown = "on 2 fresh launch pairs that no decision has seen, output tokens/s is 2.03x (1.95x to 2.11x at 95 %)"
    night.confirm(VerdictWord.KEEP, 2.03, (1.95, 2.11), shown)
    with night.stage("report"):
        night.add("installed_trees", trees("after").model_copy(update={"identical": True}))
        night.add("gate_unsealed", schema.GateUnsealed(secret=SECRET))
    night.finish("done", "every hypothesis was tried")
    return folder


def _killed_and_resumed(night: MadeUpNight) -> None:
    night.begin(3, EAGER)
    night.ledger.close()
    night.now += timedelta(minutes=7)
    with night.clock():
        night.ledger = Ledger.resume(night.folder)
    lost = ("the launch of arm B for enforce-eager",)
    night.add("night_resumed", schema.NightResumed(at_stage="launch", lost=lost, ended_orphans=(4007,)))


def interrupted_night(folder: Path) -> Path:
    """Ctrl+C while the second experiment was being measured: one change kept, nothing confirmed."""
    night = MadeUpNight(folder)
    night.start()
    night.baseline()
    night.research(SEQS, EAGER)
    night.experiment(1, SEQS, KEEP_SEQS, 1.76)
    e = night.begin(2, EAGER)
    night.launch("B", e)
    night.add("interrupted", schema.Interrupted(signal="SIGINT"), 4)
    night.finish("interrupted", "stopped by Ctrl+C while measuring enforce-eager", 1)
    return folder


def running_night(folder: Path) -> MadeUpNight:
    """An engine of the second experiment is starting; the ledger is still open."""
    night = MadeUpNight(folder)
    night.start()
    night.baseline()
    night.research(SEQS, EAGER)
    night.experiment(1, SEQS, KEEP_SEQS, 1.76)
    e = night.begin(2, EAGER)
    night.add("stage_entered", schema.StageEntered(stage="launch", experiment_id=e))
    record = LaunchRecord(
        launch_id="L099", spec_id="spec-B", pid=4099, pid_started=1.0, port=18001, nonce="n", log_path="engine.log"
    )
    night.add("launch_started", schema.LaunchStarted(launch=record, arm="B", experiment_id=e), 0.3)
    return night


def fruitless_night(folder: Path) -> Path:
    """Nothing was worth keeping."""
    night = MadeUpNight(folder)
    night.start()
    night.baseline()
    night.research(UNSURE)
    unsure = "output tokens/s is between 0.985x and 1.046x: neither a gain of 1.02x nor the lack of one is shown"
    night.experiment(1, UNSURE, said(VerdictWord.INCONCLUSIVE, unsure, 1.015), 1.015)
    night.finish("done", "every hypothesis was tried")
    return folder


def broken_night(folder: Path) -> Path:
    """The baseline engine did not start."""
    night = MadeUpNight(folder)
    night.start()
    failure = Failure(
        kind=FailureKind.OUT_OF_MEMORY, reason="the kernel killed it: out of memory", log_tail=("Killed",)
    )
    with night.stage("baseline"):
        night.add("launch_failed", schema.LaunchFailed(launch_id="L001", failure=failure, seconds=31), 31)
    night.finish("problem", "the base engine does not start: out of memory", 1)
    return folder
