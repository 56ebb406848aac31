"""Would larger attention tiles for prompts be anything new here? For a prior's condition (conditions.py); the reader
`attention_tables` says what is wrong with a tree, and where."""

from __future__ import annotations

from pathlib import Path

from agents.research.attention_backends import calls_aiter
from agents.research.dossier import Dossier
from agents.research.tables import attention, attention_source
from agents.research.tables.attention import Call
from agents.research.tables.attention_calls import named_backend, prompt_user, reached, runs_elsewhere
from agents.research.tables.attention_tree import AttentionTree, kernel_users, read_tree

SECTION = "attn_2d"  # the kernel of prompts; attn_3d and its like serve decode alone


def nothing_new(dossier: Dossier, rows: int) -> str | None:
    """Why tiles of `rows` rows would change nothing for prompts, or None: they would, or no tree says."""
    if dossier.card.kind != "amd" or not dossier.aiter:
        return None
    package, backend = Path(dossier.knobs.path), named_backend(dossier)
    if dossier.knobs.path and not calls_aiter(package, dossier.card.arch):
        return f"{dossier.knobs.named} never calls AITER on {dossier.card.arch}"
    users = kernel_users(package, dossier.card.arch)
    if runs_elsewhere(backend, users):
        return f"prompts run on {backend}, which has another kernel for them"
    tree = read_tree(Path(dossier.aiter), dossier.card.arch)
    longest = [kind.calls[-1] for kind in reached(dossier, prompt_user(backend, users))]
    held = [block_m(dossier, tree, call) for call in longest]
    known = [found for found in held if found is not None]
    if not known or len(known) < len(held) or min(n for n, _ in known) < rows:
        return None
    seen = ", ".join(f"{n} at head size {call.head_size}" for call, (n, _) in zip(longest, known, strict=True))
    return f"prompts get tiles of {rows} rows here already ({seen}: {known[0][1]})"


def block_m(dossier: Dossier, tree: AttentionTree, call: Call) -> tuple[int, str] | None:
    """(rows of the tile that serves a call, what says so). None: not known."""
    if tree.problem or (tree.table is None and tree.loader):
        return None
    if tree.table is not None:
        admitted = dossier.spec.env.get(tree.variable) == "1"
        sections = attention.read_sections(tree.table, opt_in=admitted)[0] if attention.has_schema(tree.table) else {}
        section = sections.get(SECTION)
        hit = attention.lookup(section, call) if section else None
        rows = hit.block_m(call.queries_per_kv) if hit else None
        return (rows, f"{tree.table_path}#{SECTION}.{hit.key}") if hit and rows else None
    if tree.function is None:
        return None
    try:
        now = attention_source.tiles(tree.function, call, dossier.card.arch)
    except attention_source.UnknownError:
        return None
    return now.block_m, f"{tree.function_path}:{now.line}"
