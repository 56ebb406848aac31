"""An audit on the screen: what is worth trying with every term of the score, then each finding with its evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agents.audit_try import way
from agents.llm_text import visible
from agents.research.attention_backends import aiter_may_serve
from agents.research.audit import Audit
from agents.research.dossier import Dossier
from agents.research.finding import Finding, plural
from agents.research.readers import known_priors

MOST_EVIDENCE = 4
WIDE = 100  # columns, from which on the ranking is a table
NO_NIGHT = (
    "a night can try flag, env, compilation, and table with a change (--try-first FILE); all else: applied by hand"
)
_ROOFLINE = re.compile(r"estimated: (roofline of \S+ \((?:[^()]|\([^()]*\))*\))(?!, )")
_OTHER_CARD = re.compile(r"^configs/priors/.*: it is for .*, this card is ")


def print_audit(
    audit: Audit,
    dossier: Dossier,
    seconds: float,
    top: int,
    console: Console,
    missing: Sequence[str] = (),
    everything: bool = False,
) -> None:
    console.print(subject_words(dossier))
    for line in missing:
        console.print(Text(f"Missing: {line}", style="yellow"))
    found = audit.of("opportunity")
    if found:
        _print_ranking(found[:top], console)
        for number, finding in enumerate(found[:top], 1):
            console.print(details(finding, f"{number}. "))
        if len(found) > top:
            console.print(f"... and {len(found) - top} more (--top {len(found)})")
    else:
        console.print("nothing to try was found" + ("; what is missing is told above" if missing else ""))
    for kind, head in (("trap", "Traps: what would waste a night or serve something wrong"), ("fact", "Facts")):
        chosen = audit.of(kind)
        here = [f for f in chosen if everything or f.reader != known_priors.NAME]
        shown = here if everything else here[: 2 * top]
        if chosen:
            folded = "; --all shows where each stands" if kind == "fact" and not everything else ""
            console.print(Text(f"\n{head} ({len(chosen)}{folded})", style="bold"))
        for finding in shown:
            brief = kind == "fact" and not everything  # nothing is to be done about most: they are background
            console.print(Text(_titled(finding)) if brief else details(finding, "- "))
        _print_rest(len(here) - len(shown), "more", console)
        _print_rest(len(chosen) - len(here), "known from elsewhere only (known_priors)", console)
    if audit.notes:
        console.print(Text(f"\nNotes: left out, not read, compiled ({len(audit.notes)})", style="bold"))
        near = [note for note in audit.notes if everything or not note.startswith("configs/priors/")]
        told = near if everything else near[: 2 * top]
        for note in told:
            console.print(Text(f"- {note}"))
        _print_rest(len(near) - len(told), "more", console)
        priors = len(audit.notes) - len(near)
        others = 0 if everything else sum(bool(_OTHER_CARD.match(note)) for note in audit.notes)
        _print_rest(others, "about other cards (configs/priors)", console)
        _print_rest(priors - others, "known from elsewhere, no change to try here (configs/priors)", console)
    console.print(
        f"\n{plural(len(audit.findings), 'finding')} in {seconds:.1f} s. Nothing ran on a card: gains are predictions."
    )


def _print_rest(count: int, what: str, console: Console) -> None:
    if count:
        console.print(Text(f"... and {count} {what}; --all shows all"))


def subject_words(dossier: Dossier) -> Text:
    work, model = dossier.workload, dossier.model
    arrivals = f"{work.concurrency} at a time" if work.concurrency else f"{work.rate_per_s:g} requests/s"
    tokens = f"{_range(work.input_tokens)} tokens in, {_range(work.output_tokens)} out"
    what = f"{model.architecture}, {model.parameters / 1e9:.1f} G parameters" if model else "no model given"
    lines = [
        f"{dossier.card.arch} ({dossier.card.name}, from {dossier.card.source}); {what}; {arrivals}, {tokens}",
        f"{dossier.knobs.called}{'' if dossier.knobs.path else ' given (flags are not checked)'}; {_aiter(dossier)}",
    ]  # fmt: skip
    return Text(visible("\n".join(lines)))  # an architecture and a version are as a file says them


def _aiter(dossier: Dossier) -> str:
    if dossier.aiter:
        return "AITER read"
    asked = dossier.card.kind == "amd" and aiter_may_serve(dossier.knobs.path, dossier.card.arch)
    return f"no AITER, which vLLM does not use on {dossier.card.arch}" if not asked else "AITER not given"


def _print_ranking(found: Sequence[Finding], console: Console) -> None:
    console.print(Text("\nWorth trying, best first; score = ln(gain) x probability / hours", style="bold"))
    if console.width >= WIDE:
        console.print(ranking(found))
    else:
        for number, finding in enumerate(found, 1):
            for line in in_two_lines(number, finding, console.width):
                console.print(Text(line))
    estimates = dict.fromkeys(m for f in found if f.terms for m in _ROOFLINE.findall(f.terms.share_from))
    for words in estimates:
        console.print(Text(f"(roofline): no profile says it, so it is estimated by the {words}", style="dim"))
    console.print(Text(NO_NIGHT, style="dim"))


def ranking(found: Sequence[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("#", "what", "by", "gain", "share", "speed-up", "bound", "prob.", "cost", "score"):
        table.add_column(name, no_wrap=name != "what", min_width=30 if name == "what" else None)
    for number, finding in enumerate(found, 1):
        table.add_row(str(number), escape(_short(finding, 72)), way(finding), *_cells(finding))
    return table


def in_two_lines(number: int, finding: Finding, width: int) -> tuple[str, str]:
    lead = f"{number}. [{way(finding)}] "
    gain, share, speedup, bound, probability, cost, score = _cells(finding)
    return (
        lead + _short(finding, width - len(lead)),
        f"   gain {gain}, share {share}, speed-up {speedup}, bound {bound}, p {probability}, {cost}, score {score}",
    )


def _cells(finding: Finding) -> tuple[str, ...]:
    terms = finding.terms
    if terms is None:
        return ("–",) * 7
    return (
        f"{terms.gain:.2f}x", f"{terms.share:.0%}", f"{terms.speedup:.2f}x",
        "–" if math.isinf(terms.bound) else f"{terms.bound:.2f}x", f"{terms.probability:.0%}",
        f"{terms.cost_s / 60:.0f} min", f"{terms.score:.2f}",
    )  # fmt: skip


def _titled(finding: Finding) -> str:
    return f"- [{finding.reader}] {finding.title}"


def details(finding: Finding, lead: str) -> Group:
    lines = [Text(f"{lead}[{finding.reader}] {finding.title}")]
    if finding.change:
        lines.append(Text(f"   change: {finding.change}", style="cyan"))
    if terms := finding.terms:
        share_from = _ROOFLINE.sub("roofline", terms.share_from)
        lines.append(
            Text(
                f"   share: {share_from}; speed-up: {terms.speedup_from}; probability: {terms.probability_from}; "
                f"risk {finding.risk}",
                style="dim",
            )
        )
    for e in finding.evidence[:MOST_EVIDENCE]:
        lines.append(Text(f"   {e.source}: {e.detail}", style="dim"))
    left = max(0, len(finding.evidence) - MOST_EVIDENCE) + finding.unnamed
    if left:
        more = plural(left, "more place")
        lines.append(Text(f"   ... and {more}", style="dim"))
    if finding.fix:
        lines += [Text(f"   | {line}") for line in finding.fix.splitlines()]
    return Group(*lines)


def _short(finding: Finding, most: int) -> str:
    """A line of the ranking; the whole sentence stands below it."""
    change = finding.change
    text = str(change).removeprefix(f"{change.lever}: ") if change else finding.title
    return text if len(text) <= most else text[: most - 3] + "..."


def _range(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}-{pair[1]}"
