"""What an audit was not given, and which readers say nothing, or less, without it."""

from __future__ import annotations

from collections.abc import Sequence

from agents.research.attention_backends import aiter_may_serve
from agents.research.dossier import Dossier

_OF_A_CARD = (
    "arch_gates", "attention_backends", "attention_tables", "compile_evidence", "compile_storms", "gemm_tables",
    "graph_coverage", "kv_dtype", "moe_tables", "roofline",
)  # fmt: skip
_OF_A_MODEL = ("attention_backends", "attention_tables", "compile_evidence", "kv_dtype", "moe_tables", "roofline")
_OF_A_MODEL_IN_PART = ("gemm_tables", "graph_coverage")
_OF_VLLM = ("arch_gates", "knob_versions")
_OF_VLLM_IN_PART = ("attention_backends", "compile_storms", "defaults", "graph_coverage", "moe_tables")
_OF_AITER = ("attention_tables", "compile_evidence", "gemm_tables")


def missing(dossier: Dossier, asked: Sequence[str], assumed: bool = False) -> tuple[str, ...]:
    """One line each, of the readers that were `asked`; each silent one is named once. `assumed`: nobody told the load,
    or not all of it."""
    found: list[tuple[str, Sequence[str], Sequence[str]]] = []
    if dossier.card.kind == "cpu":
        what = "no card in this machine, so its CPU is audited: give --arch (gfx950, MI355X, ...) for a card"
        found.append((what, _OF_A_CARD, ()))
    elif dossier.sheet is None:
        what = f"no sheet of {dossier.card.arch} in configs/cards/: its peaks are not known"
        found.append((what, ("roofline",), ("kv_dtype", "compile_evidence", "gemm_tables")))
    if dossier.model is None:
        found.append(("no model (--model config.json)", _OF_A_MODEL, _OF_A_MODEL_IN_PART))
    if not dossier.knobs.path:
        what = "no vLLM (--vllm, or --python with one): flags are not checked"
        found.append((what, _OF_VLLM, _OF_VLLM_IN_PART))
    if dossier.card.kind == "amd" and not dossier.aiter and aiter_may_serve(dossier.knobs.path, dossier.card.arch):
        found.append(("no AITER (--aiter)", _OF_AITER, ("compile_storms", "moe_tables")))
    lines, gone = [], set[str]()
    for what, silent, in_part in found:
        parts = (("silent", silent), ("saying less", in_part))
        told = [(word, [n for n in names if n in asked and n not in gone]) for word, names in parts]
        lines.append("; ".join([what, *(f"{word}: {', '.join(names)}" for word, names in told if names)]))
        gone |= set(silent)
    if assumed:
        lines.append("your load (--night, or --concurrency, --input-tokens, --output-tokens): batch work's is assumed")
    return tuple(lines)
