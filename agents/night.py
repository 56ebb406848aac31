"""The night as a LangGraph StateGraph: which node follows which, and what happens on every way out.

preflight -> baseline -> profile -> research -> pick -> static_check -> apply -> launch -> prove_path -> quick_gate
-> measure -> full_gate -> judge -> keep (-> research) or revert (-> pick) ... -> confirm -> report

A checkpoint is written after every node, so a night killed anywhere is resumed at the node that was running, with
fresh engines. Nodes live in agents/stages/; each is safe to run twice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from agents.arms import ArmFailure
from agents.context import Night, NightProblem
from agents.stages import closing as last
from agents.stages import experiment, opening
from agents.state import Progress, State
from contracts import VerdictWord
from ledger.schema import StageEntered, StageLeft

Stage = Callable[[Night, Progress], Progress]

# node -> (what it does, where it may lead). Any experiment node may also lead to "revert", any node to "report".
NODES: dict[str, tuple[Stage, tuple[str, ...]]] = {
    "preflight": (opening.preflight, ("baseline",)),
    "baseline": (opening.baseline, ("baseline", "profile")),
    "profile": (opening.profile, ("research",)),
    "research": (opening.research, ("pick",)),
    "pick": (experiment.pick, ("static_check", "confirm")),
    "static_check": (experiment.static_check, ("apply", "revert")),
    "apply": (experiment.apply, ("launch", "revert")),
    "launch": (experiment.launch, ("prove_path", "revert")),
    "prove_path": (experiment.prove_path, ("quick_gate", "revert")),
    "quick_gate": (experiment.quick_gate, ("measure", "revert")),
    "measure": (experiment.measure, ("full_gate", "judge", "revert")),
    "full_gate": (experiment.full_gate, ("judge", "revert")),
    "judge": (experiment.judge, ("keep", "revert", "measure")),
    "keep": (experiment.keep, ("research",)),
    "revert": (experiment.revert, ("pick",)),
    "confirm": (last.confirm, ("confirm",)),
    "report": (last.report, ()),
}
THREAD: RunnableConfig = {"configurable": {"thread_id": "night"}, "recursion_limit": 100_000}


def run_graph(night: Night, first: Progress) -> Progress:
    """From `first`, or from the last checkpoint when the night's folder has one, to the end. Engines are down after
    it, whichever way it ends. Raises NightProblem, Interrupted, LedgerFull; the caller writes the report."""
    path = night.folder / "checkpoint.sqlite"
    try:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            graph = build(night).compile(checkpointer=SqliteSaver(connection))
            begun = graph.get_state(THREAD).values
            start = None if begun else State(progress=first.model_dump(mode="json"))
            final = graph.invoke(start, THREAD, durability="sync")
        return Progress.model_validate(final["progress"])
    finally:
        night.arms.down()


def checkpointed(night: Night) -> tuple[Progress | None, str | None]:
    """What the last checkpoint knows and the node that was to run next; (None, None) before the first. Raises
    NightProblem when it cannot be read."""
    path = night.folder / "checkpoint.sqlite"
    if not path.exists():
        return None, None
    try:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            snapshot = build(night).compile(checkpointer=SqliteSaver(connection)).get_state(THREAD)
        if not snapshot.values:
            return None, None
        return Progress.model_validate(snapshot.values["progress"]), snapshot.next[0] if snapshot.next else None
    except (sqlite3.Error, ValueError, KeyError) as error:  # a torn value is a ValueError of the decoder's or ours
        what = " ".join(str(error).split())[:120]
        raise NightProblem(f"{path} cannot be read ({what}): restore it from a copy, or start a new night") from error


def build(night: Night) -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_edge(START, "preflight")
    for name, (stage, leads_to) in NODES.items():
        graph.add_node(name, node(night, name, stage))
        if leads_to:
            targets = [*leads_to, *({"report"} - set(leads_to))]
            graph.add_conditional_edges(name, where_to, targets)
        else:
            graph.add_edge(name, END)
    return graph


def where_to(state: State) -> str:
    return str(state["progress"]["goto"])


def node(night: Night, name: str, stage: Stage) -> Any:
    """A stage with its two ledger lines, and the failures that mean the same wherever they happen."""

    def run(state: State) -> State:
        night.check_interrupted()
        progress = Progress.model_validate(state["progress"])
        trial_id = progress.trial.experiment_id if progress.trial else None
        night.emit("stage_entered", StageEntered(stage=name, experiment_id=trial_id))
        began = time.monotonic()
        try:
            progress = stage(night, progress)
        except ArmFailure as broken:
            progress = broken_arm(progress, broken)
        night.emit("stage_left", StageLeft(stage=name, experiment_id=trial_id, seconds=time.monotonic() - began))
        return State(progress=progress.model_dump(mode="json"))

    return run


def broken_arm(progress: Progress, broken: ArmFailure) -> Progress:
    """The change's engine broke: that is its verdict. The incumbent's broke: nothing can be compared, so this
    experiment is void; twice in a row ends the night, because every later one would be void too."""
    what = f"{broken.failure.kind}: {broken.failure.reason}"
    if progress.trial is None or (broken.arm == "A" and progress.incumbent_failures >= 1):
        raise NightProblem(f"the incumbent's engine failed ({what}): its log is under artifacts/launches")
    if broken.arm == "B":
        return experiment.refuse(progress, VerdictWord.FAILED, what)
    progress = progress.but(incumbent_failures=progress.incumbent_failures + 1)
    return experiment.refuse(progress, VerdictWord.VOID, f"the incumbent's engine failed beside it ({what})")
