"""`run_night.py run` and `doctor`: a night begun, gone on with or only looked at, and what it needs."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.command import DONE, PROBLEM, Problem, guarded_command, print_json, say
from agents.config import load_night
from agents.doctor import doctor
from agents.live import live
from agents.night_cli import read_view
from agents.preflight import preflight
from agents.research.rank import reader_names
from cards.choose import choose_card
from contracts import Hypothesis, NightConfig
from ledger.errors import LedgerError, NoNight
from ledger.summary import summary
from ledger.words import folded


def run_command(config_path: Path, hours: float | None, resume: bool, dry_run: bool, logs: Path, as_json: bool) -> int:
    def work() -> int:
        overrides = {"minutes": hours * 60} if hours is not None else {}
        config = load_night(config_path, overrides)
        reader_names(config.readers)
        if dry_run:
            return dry(config, logs, as_json)
        from agents import runner  # langgraph takes seconds to import: not before the night file is known to be good

        with live(plain=as_json) as on_event:
            if resume:
                folder, code = runner.resume(newest_unfinished(logs, config), on_event)
            else:
                folder, code = runner.start(config, logs, on_event)
        return closing_words(folder, code, as_json)

    return guarded_command(work)


def newest_unfinished(logs: Path, config: NightConfig) -> Path:
    """The latest night of this name. Raises NoNight when there is none."""
    nights = [p.parent for p in logs.glob(f"{config.name}-*/ledger.jsonl")]
    if not nights:
        raise NoNight(f"no night of {config.name} under {logs} to go on with: leave out --resume to start one")
    return max(nights, key=lambda night: night.name)


def closing_words(folder: Path, code: int, as_json: bool) -> int:
    """What the night came to. A ledger that was taken away meanwhile is a problem of the night, not of the command."""
    try:
        view = read_view(folder)
    except LedgerError as error:
        return say([str(error)], code or PROBLEM)
    if as_json:
        print_json(summary(view))
    elif view.finish is not None:
        print(f"{view.finish.outcome}: {view.finish.reason}" if view.finish.reason else view.finish.outcome)
    if (folder / "report.md").exists():  # on a full disk it is not, and why has been said
        print(f"report: {folder / 'report.md'} and report.html", file=sys.stderr if as_json else sys.stdout)
    return code


def dry(config: NightConfig, logs: Path, as_json: bool) -> int:
    """Everything that needs no engine: preflight, and what the readers would try before a profile exists."""
    from agents.research.rank import research
    from agents.settings_fit import unknown_settings
    from agents.stages.opening import first_dossier

    card, why = choose_card(config)
    problems = preflight(config, card, logs / config.name)
    try:
        known = first_dossier(config, card)
        found = research(known, config.readers)
        problems += tuple(problem for _, problem in unknown_settings(known.spec, known.knobs))
    except (OSError, ValueError, Problem) as error:  # no model, no vLLM, no image: preflight has said so, with the fix
        if not any(problem.fatal for problem in problems):
            raise
        said = isinstance(error, OSError) or any(p.what.startswith("engine.container") for p in problems)
        found, also = None, "" if said else f" ({' '.join(str(error).split())})"
    if as_json:
        print_json(
            {
                "card": card.model_dump(mode="json"),
                "problems": [p.model_dump(mode="json") for p in problems],
                "hypotheses": [h.model_dump(mode="json") for h in found.hypotheses] if found else None,
                "dropped": list(found.dropped) if found else [],
            }
        )
    else:
        console = Console()
        console.print(f"card: {card.name} ({card.arch}), {why}", markup=False)
        for problem in problems:
            console.print(f"{'PROBLEM' if problem.fatal else 'warning'}: {problem.what}: {problem.fix}", markup=False)
        if found is None:
            console.print(
                f"What would be tried cannot be told before that is mended{also}. Without the card or the engine, "
                "`audit --night CONFIG --arch CARD --model config.json --vllm TREE` says what is worth trying.",
                markup=False,
            )
            return PROBLEM
        if found.hypotheses:
            console.print(hypotheses_table(found.hypotheses))
        for line in folded(found.dropped):
            console.print(f"note: {line}", markup=False)
        console.print(spent_words(found.hypotheses, config.judge.smallest_gain))
        console.print("Nothing was started. Readers that need a profile add theirs in the night itself.")
    return PROBLEM if any(p.fatal for p in problems) else DONE


def spent_words(hypotheses: tuple[Hypothesis, ...], smallest: float) -> str:
    """What the list takes, and what a short, small or empty one means for a long night. `smallest`: the gain from
    which on a change is kept, 0.02 is 2 %."""
    if not hypotheses:
        return (
            "Nothing would be tried: a night of this file measures its baseline and ends. Name priors "
            "(configs/priors/), or write try_first yourself; `audit --night CONFIG --try-first FILE` writes entries."
        )
    minutes = sum(h.cost_s for h in hypotheses) / 60
    small = sum(h.predicted_gain < 1 + smallest for h in hypotheses)
    less = f" ({small} with a predicted gain under judge.smallest_gain, {smallest:.0%})" if small else ""
    return (
        f"{len(hypotheses)} to try{less}, {minutes:.0f} min of card time at these costs: a small model's on 2 CPU "
        "cores, until a night has measured its own. When nothing is left to try, a night ends before its minutes."
    )


def hypotheses_table(hypotheses: tuple[Hypothesis, ...]) -> Table:
    """What is in square brackets ("[published]") is text, and no markup of rich's."""
    table = Table("#", "change", "says", "gain", "p", "cost s", "why", title="What would be tried, best first")
    for number, h in enumerate(hypotheses, 1):
        table.add_row(
            str(number),
            escape(str(h.change)),
            escape(h.proposer),
            f"{h.predicted_gain:.2f}x",
            f"{h.probability:.2f}",
            f"{h.cost_s:.0f}",
            escape(h.why),
        )
    return table


def doctor_command(config_path: Path | None, as_json: bool, measure: bool = False) -> int:
    def work() -> int:
        config = load_night(config_path) if config_path else None
        reader_names(config.readers if config else None)
        found = doctor(config, measure=measure)
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            for line in found.lines():
                print(line)
        return DONE if found.fit else PROBLEM

    return guarded_command(work)
