"""Entries of unified attention's table as changes of a night, and in words for a person."""

from __future__ import annotations

import json
from pathlib import Path

from agents.research.dossier import Dossier
from agents.research.row_change import Candidate, changes
from agents.research.tables.attention_entry import Check, Proposal
from agents.research.tables.attention_tree import AttentionTree
from agents.research.tables.gemm_json import CONFIGS
from agents.research.tables.prompt_tiles import SECTION
from agents.tuning.levers.aiter_json import row_fault
from contracts import Change, Lever

ANOTHER_GUESS = 0.5  # of the probability: fewer rows, or fewer keys, than the most that fit


def tries(
    dossier: Dossier, tree: AttentionTree, checked: list[tuple[Proposal, Check]], likely: float
) -> list[tuple[Proposal, Check, Change | None, float]]:
    """The proposals that the lever takes, each with its change and its probability; the first one alone, for a person,
    where it takes none of them."""
    file = tree.table_path.removeprefix(f"aiter/{CONFIGS}/")
    found: list[tuple[Proposal, Check, Change | None, float]] = []
    for number, (proposal, proof) in enumerate(checked):
        key, factor = f"{file}#{SECTION}/{proposal.key}", 1.0 if number == 0 else ANOTHER_GUESS
        if row_fault(Path(dossier.aiter), key, proposal.entry) is not None:
            continue
        one = Candidate(
            lever=Lever.AITER_JSON,
            key=key,
            row=proposal.entry,
            words=proposal.words[0],
            source=tree.table_path,
            factor=factor,
        )
        found += [(proposal, proof, t.change, t.probability) for t in changes(dossier, [one], likely)]
    return found or [(*checked[0], None, likely)]


def guess(proposal: Proposal) -> str:
    keys = proposal.entry.get("TILE_SIZE_MAX", proposal.entry.get("TILE_SIZE", "as many"))
    return f"{proposal.entry['BLOCK_M']} rows and {keys} keys"


def table_fix(tree: AttentionTree, proposal: Proposal) -> str:
    return (
        f"Add to {SECTION} in {tree.table_path} (or mount a changed copy over the installed file), then restart the "
        f"engine: tables are cached by the process that read them.\n{json.dumps({SECTION: proposal.json()}, indent=2)}"
    )
