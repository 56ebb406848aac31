"""What an audit was not given, and which readers say nothing, or less, without it."""

from __future__ import annotations

from collections.abc import Sequence

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


def missing(dossier: Dossier, asked: Sequence[str]) -> tuple[str, ...]:
    """One line each, of the readers that were `asked`."""
    found = []
    if dossier.card.kind == "cpu":
        what = "no card: this machine has none and no --arch was given (gfx950, MI355X, ...), so its CPU is audited"
        found.append(_line(what, _OF_A_CARD, (), asked))
    elif dossier.sheet is None:
        what = f"no sheet of {dossier.card.arch} in configs/cards/: its peaks are not known"
        found.append(_line(what, ("roofline",), ("kv_dtype", "compile_evidence", "gemm_tables"), asked))
    if dossier.model is None:
        found.append(_line("no model (--model config.json)", _OF_A_MODEL, _OF_A_MODEL_IN_PART, asked))
    if not dossier.knobs.path:
        what = "no vLLM (--vllm, or --python with one): flags are not checked"
        found.append(_line(what, _OF_VLLM, _OF_VLLM_IN_PART, asked))
    if dossier.card.kind == "amd" and not dossier.aiter:
        found.append(_line("no AITER (--aiter)", _OF_AITER, ("compile_storms", "moe_tables"), asked))
    return tuple(found)


def _line(what: str, silent: Sequence[str], in_part: Sequence[str], asked: Sequence[str]) -> str:
    says = (
        (", ".join(name for name in names if name in asked), word)
        for names, word in ((silent, "silent"), (in_part, "saying less"))
    )
    told = [f"{word}: {names}" for names, word in says if names]
    return "; ".join([what, *told])
