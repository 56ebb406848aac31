"""What agents/ calls until it is rewired: the questions of one file, in the MI355X night's style, against the floor."""

from __future__ import annotations

from accuracy_gate.gsm8k.ask import ask
from accuracy_gate.gsm8k.check import CHECK, check
from accuracy_gate.gsm8k.questions import read
from accuracy_gate.gsm8k.styles import style
from contracts import GateResult
from engine.running import RunningEngine


def run(engine: RunningEngine, path: str | None) -> GateResult:
    """Raises EngineFailure when the engine is not ours. A missing or bad file is `not_run`, with what to do."""
    if path is None:
        reason = "no questions given; set gate.gsm8k_path in the night file to a JSONL of question and answer rows"
        return GateResult(check=CHECK, outcome="not_run", mode="mi355x_night", reason=reason)
    try:
        questions = read(path)
    except (OSError, ValueError) as error:
        reason = f"gate.gsm8k_path cannot be used: {error}"
        return GateResult(check=CHECK, outcome="not_run", mode="mi355x_night", reason=reason)
    return check(questions, None, ask(engine, questions, style("mi355x_night")))
