"""The live screen: where the night is, time left, the incumbent's gain so far, the last verdicts, what is awaited."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ledger.clock import seconds_between
from ledger.follow import GONE_AFTER, POLL_S, Follower
from ledger.lock import writer
from ledger.plain import plain_lines
from ledger.view import NightView
from ledger.words import (
    between,
    change_words,
    clean,
    duration,
    headline,
    level_words,
    percent,
    stand_in,
    state_words,
    times,
    word_of,
)

__all__ = ["plain_lines", "render", "waiting_for", "watch"]

VERDICTS_SHOWN = 7
STYLES = {
    "keep": "bold green",
    "revert": "red",
    "failed": "red",
    "inconclusive": "yellow",
    "void": "bright_black",
    "not judged": "cyan",
}
DOES = {
    "preflight": "looking whether card, port, disk and engine are fit",
    "baseline": "runs on two equal engines, for the noise floor",
    "profile": "the engine's own counters under load",
    "research": "the readers' hypotheses",
    "prove_path": "proof that the change is in use",
    "quick_gate": "a few answers, against the reference",
    "full_gate": "all answers, against the reference",
    "measure": "runs under load, both arms in turn",
    "confirm": "the clean base against the final stack, on fresh launches",
    "report": "the report",
}


def render(view: NightView, now: datetime | None = None) -> RenderableType:
    """One screen for a view at a moment (UTC); without one, at this moment."""
    at = (now or datetime.now(UTC)).astimezone(UTC).isoformat()
    name = view.config.name if view.config else "night"
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bright_black", no_wrap=True)
    rows.add_column(ratio=1)
    for label, what in _rows(view, at):
        rows.add_row(label, what)
    parts: list[RenderableType] = [rows]
    if view.tries:
        parts.append(_verdicts(view))
    parts += [Text(f"! {clean(message)}", style="yellow") for message in view.warned[-2:]]
    title = Text(f" nightgate · {clean(name)} ", style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style=_border(view), padding=(1, 2))


def waiting_for(view: NightView, now: str) -> str:
    """What the night waits for at this moment, in words."""
    if view.finish:
        return "nothing: the night is over"
    limit = view.config.limits.engine_start_s if view.config else None
    starting = [
        f"engine {o.arm} (pid {o.launch.pid}) to start, {duration(seconds_between(o.since, now))} so far"
        for o in view.open_launches
        if not o.ready
    ]
    if starting:
        return "; ".join(starting) + (f", at most {duration(limit)}" if limit else "")
    return DOES.get(view.stage or "", view.stage.replace("_", " ") if view.stage else "the next step")


def _rows(view: NightView, now: str) -> list[tuple[str, RenderableType]]:
    rows: list[tuple[str, RenderableType]] = []
    pretended = stand_in(view)
    if pretended:
        words = f"rehearsal: the engine is a stand-in ({clean(pretended)}), numbers mean nothing"
        rows.append(("", Text(words, style="bold red")))
    if view.card:
        vllm = view.versions.get("vllm") or "unknown"
        model = Path(view.config.engine.model).name if view.config else "?"
        rows.append(("on", Text(clean(f"{view.card.name} ({view.card.arch}), vLLM {vllm}, {model}"))))
    rows.append(("time", _time(view, now)))
    if view.finish:
        rows.append(("ended", Text(clean(f"it {state_words(view)}"))))
        said = headline(view)
        rows.append(("result", Text(clean(said.title), style="bold green" if said.confirmed else "bold")))
        return rows
    rows.append(("stage", _stage(view, now)))
    rows.append(("waits for", Text(clean(waiting_for(view, now)))))
    rows.append(("gain so far", _gain(view)))
    queue = _next(view)
    if queue:
        rows.append(("next", Text(clean(queue), style="bright_black")))
    return rows


def _time(view: NightView, now: str) -> RenderableType:
    used, left = view.used_s(now), view.left_s(now)
    if left is None or view.config is None:
        return Text(f"{duration(used)} used")
    line = Table.grid(padding=(0, 2))
    said = f"{duration(used)} used" if view.finish else f"{duration(used)} used, {duration(left)} left"
    line.add_row(ProgressBar(total=view.config.minutes * 60, completed=used, width=20), Text(said))
    return line


def _stage(view: NightView, now: str) -> Text:
    words = (view.stage or "between two stages").replace("_", " ")
    t = view.of(view.stage_experiment) if view.stage_experiment else None
    text = Text(words, style="bold cyan")
    if t:
        text.append(f"  {t.experiment.id}  {change_words(t.experiment.hypothesis.change)}", style="default not bold")
    if view.stage_since:
        text.append(f"  for {duration(seconds_between(view.stage_since, now))}", style="bright_black")
    return text


def _gain(view: NightView) -> Text:
    if view.confirmed:
        said = headline(view)
        return Text(clean(said.title), style="bold green" if said.confirmed else "bold")
    if view.baseline is None:
        return Text("no baseline yet", style="bright_black")
    level = level_words(view.metric, view.baseline.metrics.get(view.metric))
    base = f"baseline {level}, noise {percent(view.baseline.noise.launch_sd)}"
    count = len(view.kept)
    if not count:
        return Text(f"none yet ({base})")
    text = Text(times(view.incumbent_gain), style="bold green")
    plural = "" if count == 1 else "s"
    return text.append(f"  estimate of {count} kept change{plural}, not confirmed ({base})", style="default not bold")


def _next(view: NightView) -> str:
    tried = {e.hypothesis.id for e in view.experiments}
    left = [change_words(h.change) for h in view.hypotheses if h.id not in tried]
    if not left:
        return ""
    more = f" and {len(left) - 2} more" if len(left) > 2 else ""
    return "; ".join(left[:2]) + more


def _verdicts(view: NightView) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), pad_edge=False)
    table.add_column("", style="bright_black", no_wrap=True)
    table.add_column("change", ratio=3)
    table.add_column("verdict", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    table.add_column("why", ratio=4)
    for t in view.tries[-VERDICTS_SHOWN:]:
        e, v = t.experiment, t.experiment.verdict
        word = word_of(e) if v else "in hand" if view.running else "not judged"
        planted = " (planted)" if e.hypothesis.planted else ""
        table.add_row(
            e.id.split("-")[0],
            Text(change_words(e.hypothesis.change) + planted, overflow="ellipsis", no_wrap=True),
            Text(word, style=STYLES.get(word, "cyan")),
            times(v.ratio) if v else "",
            between(v.interval) if v else "",
            Text(clean(v.reason) if v else "", overflow="ellipsis", no_wrap=True),
        )
    return table


def _border(view: NightView) -> str:
    if view.finish is None:
        return "cyan"
    return "green" if view.finish.exit_code == 0 else "red"


def watch(night_dir: Path | str, console: Console | None = None, poll_s: float = POLL_S) -> NightView:
    """Follows a night until it ends, its process is gone, or Ctrl+C; reads only. On a terminal a live screen, else
    plain lines. Returns the last view. Raises NoNight, LedgerBroken."""
    console = console or Console()
    follower = Follower(night_dir)
    folder = follower.path.parent
    try:
        if console.is_terminal:
            with Live(render(NightView()), console=console, refresh_per_second=4) as live:
                while _go_on(follower, folder, poll_s, None):
                    live.update(render(follower.view))
                live.update(render(follower.view), refresh=True)
        else:
            while _go_on(follower, folder, poll_s, console):
                pass
    except KeyboardInterrupt:
        return follower.view
    if follower.view.finish is None:
        words = "the process that wrote this night is gone and wrote no end: go on with it by --resume"
        console.print(Text(words, style="yellow"), soft_wrap=True)
    return follower.view


def _go_on(follower: Follower, folder: Path, poll_s: float, log: Console | None) -> bool:
    """Reads what is new, printing it to `log`; False when nothing more will come."""
    for _ in range(GONE_AFTER):
        alone = writer(folder) is None  # asked first: a writer that ends now has written all that we read next
        fresh = follower.poll()
        for line in filter(None, map(plain_lines, fresh if log else ())):
            assert log
            log.print(Text(line), soft_wrap=True)
        if follower.view.finish and (alone or not fresh):
            return False
        if fresh or not alone:
            time.sleep(poll_s)
            return True
        time.sleep(poll_s)
    return False
