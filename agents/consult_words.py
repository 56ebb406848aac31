"""What a language model said to an audit, on the screen. Every text is plain: nothing of it is markup or control."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from agents.llm_call import Outcome
from agents.research.consult import Consulted
from agents.research.finding import Finding


def print_consulted(said: Consulted, opportunities: Sequence[Finding], console: Console) -> None:
    """`opportunities`: the audit's own, best first; the model's numbers are their ranks."""
    console.print(Text(f"\nWhat the language model says ({said.model}): a second opinion, never run", "bold"))
    console.print(Text(used_words(said), style="dim"))
    if said.outcome is not Outcome.ANSWERED:
        console.print(Text(f"no answer ({said.outcome}): {said.reason}"))
        return
    if said.explanation:
        console.print(Text(said.explanation))
    if said.order:
        console.print(Text("It would try, by our numbers (our own order above stands):"))
    for place, turn in enumerate(said.order, 1):
        what = opportunities[turn.number - 1]
        name = str(what.change) if what.change else what.title
        short = name if len(name) < 72 else name[:69] + "..."
        console.print(Text(f"{place:>3}. our {turn.number}, {short}: {turn.reason}"))
    for proposal, rank in zip(said.proposals, said.would_rank, strict=True):
        terms = proposal.terms
        console.print(Text(f"- proposes {proposal.change}: {proposal.title}"))
        if terms:
            told = f"  gain {terms.gain:.2f}x ({terms.speedup_from}), probability {terms.probability:.0%} ("
            told += f"{terms.probability_from}), score {terms.score:.2f}: it would stand at place {rank}"
            console.print(Text(told, style="dim"))
        console.print(Text(f"  rests on {'; '.join(e.source for e in proposal.evidence)}", style="dim"))
    if said.dropped:
        console.print(Text(f"Not taken of what it said ({len(said.dropped)})", style="bold"))
    for line in said.dropped:
        console.print(Text(f"- {line}"))


def used_words(said: Consulted) -> str:
    used = said.used
    parts = [
        f"{used.tokens_in:,} tokens in and {used.tokens_out:,} out{' (counted by us)' if used.guessed else ''}",
        "price not known" if used.money is None else f"{used.money:.4f} in money",
        f"{used.requests} requests in {used.seconds:.1f} s",
    ]
    return ", ".join(parts)
