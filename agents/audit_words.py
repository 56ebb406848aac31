"""An audit on the screen: the ranked table with every term of the score, then each finding with its evidence."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agents.research.audit import Audit
from agents.research.dossier import Dossier
from agents.research.finding import Finding

MOST_EVIDENCE = 4


def as_json(audit: Audit, dossier: Dossier, seconds: float) -> dict[str, Any]:
    """Stable keys; `rank` counts opportunities from 1."""
    ranks = {id(f): n for n, f in enumerate(audit.of("opportunity"), 1)}
    return {
        "card": dossier.card.model_dump(mode="json"),
        "model": dossier.model.model_dump(mode="json") if dossier.model else None,
        "vllm": {"version": dossier.knobs.version, "path": dossier.knobs.path},
        "aiter": dossier.aiter,
        "workload": dossier.workload.model_dump(mode="json"),
        "findings": [
            {
                "rank": ranks.get(id(f)),
                **f.model_dump(mode="json"),
                **({"gain": f.terms.gain, "bound": _finite(f.terms.bound), "score": f.terms.score} if f.terms else {}),
            }
            for f in audit.findings
        ],
        "hypotheses": [h.model_dump(mode="json") for f in audit.of("opportunity") if (h := f.hypothesis())],
        "notes": list(audit.notes),
        "seconds": round(seconds, 2),
    }


def print_audit(audit: Audit, dossier: Dossier, seconds: float, top: int, console: Console) -> None:
    console.print(subject_words(dossier))
    found = audit.of("opportunity")
    if found:
        console.print(ranking(found[:top]))
        for number, finding in enumerate(found[:top], 1):
            console.print(details(finding, f"{number}. "))
        if len(found) > top:
            console.print(f"... and {len(found) - top} more (--top {len(found)})")
    else:
        console.print("nothing to try was found")
    for kind, head in (("trap", "Traps: what would waste a night or serve something wrong"), ("fact", "Facts")):
        chosen = audit.of(kind)
        if chosen:
            console.print(Text(f"\n{head} ({len(chosen)})", style="bold"))
        for finding in chosen[: 2 * top]:
            console.print(details(finding, "- "))
        if len(chosen) > 2 * top:
            console.print(f"... and {len(chosen) - 2 * top} more (--json has all)")
    if audit.notes:
        console.print(Text(f"\nLeft out or not read ({len(audit.notes)})", style="bold"))
        for note in audit.notes[: 2 * top]:
            console.print(Text(f"- {note}"))
        if len(audit.notes) > 2 * top:
            console.print(f"... and {len(audit.notes) - 2 * top} more (--json has all)")
    console.print(f"\n{len(audit.findings)} findings in {seconds:.1f} s. Nothing ran on a card: gains are predictions.")


def subject_words(dossier: Dossier) -> Text:
    work, model = dossier.workload, dossier.model
    arrivals = f"{work.concurrency} at a time" if work.concurrency else f"{work.rate_per_s:g} requests/s"
    tokens = f"{_range(work.input_tokens)} tokens in, {_range(work.output_tokens)} out"
    what = f"{model.architecture}, {model.parameters / 1e9:.1f} G parameters" if model else "no model given"
    lines = [
        f"{dossier.card.arch} ({dossier.card.name}, from {dossier.card.source}); {what}; {arrivals}, {tokens}",
        f"vLLM {dossier.knobs.version}" + ("" if dossier.knobs.path else " (no tree: flags are not checked)")
        + f"; AITER {'read' if dossier.aiter else 'not given'}",
    ]  # fmt: skip
    return Text("\n".join(lines))


def ranking(found: tuple[Finding, ...]) -> Table:
    table = Table(
        "#", "what", "gain", "= share", "x speed-up", "bound", "probability", "cost", "score",
        box=box.SIMPLE_HEAD, title="Worth trying, best first; score = ln(gain) x probability / hours",
    )  # fmt: skip
    for number, finding in enumerate(found, 1):
        terms = finding.terms
        if terms is None:
            table.add_row(str(number), escape(finding.title[:70]), *["–"] * 7)
            continue
        table.add_row(
            str(number), escape(_short(finding)), f"{terms.gain:.2f}x", f"{terms.share:.0%}", f"{terms.speedup:.2f}x",
            "–" if math.isinf(terms.bound) else f"{terms.bound:.2f}x", f"{terms.probability:.0%}",
            f"{terms.cost_s / 60:.0f} min", f"{terms.score:.2f}",
        )  # fmt: skip
    return table


def details(finding: Finding, lead: str) -> Group:
    lines = [Text(f"{lead}[{finding.reader}] {finding.title}")]
    if finding.change:
        lines.append(Text(f"   change: {finding.change}", style="cyan"))
    if terms := finding.terms:
        lines.append(
            Text(
                f"   share: {terms.share_from}; speed-up: {terms.speedup_from}; probability: {terms.probability_from}; "
                f"risk {finding.risk}",
                style="dim",
            )
        )
    for e in finding.evidence[:MOST_EVIDENCE]:
        lines.append(Text(f"   {e.source}: {e.detail}", style="dim"))
    if len(finding.evidence) > MOST_EVIDENCE:
        lines.append(Text(f"   ... and {len(finding.evidence) - MOST_EVIDENCE} more places", style="dim"))
    if finding.fix:
        lines += [Text(f"   | {line}") for line in finding.fix.splitlines()]
    return Group(*lines)


def _short(finding: Finding) -> str:
    """A line of the ranking; the whole sentence stands below the table."""
    text = str(finding.change) if finding.change else finding.title
    return text if len(text) < 72 else text[:69] + "..."


def _range(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}-{pair[1]}"


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
