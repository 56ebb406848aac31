"""The tile that vLLM computes where it has no table: `get_default_config` of the installed fused_moe.py, followed for
given arguments (attention_source.Walk). Nothing is imported or run; what is not understood is not known,
and no tile."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from agents.research.dossier import Dossier
from agents.research.tables.attention_source import Arch, UnknownError, Walk
from agents.research.tables.moe_json import MoeName
from agents.research.tables.table_file import function_text, read_source
from contracts import Frozen

SOURCE = "model_executor/layers/fused_moe/fused_moe.py"
FUNCTION = "get_default_config"
INVARIANT = "VLLM_BATCH_INVARIANT"


class Ruled(Frozen):
    tile: dict[str, Any]
    source: str  # vllm/...:line of the function


def default_tile(dossier: Dossier, vllm: Path, asked: MoeName, m: int) -> Ruled | None:
    """None where the rule cannot be followed, or leaves sizes to another place (4-bit groups)."""
    held = function_text(read_source(vllm / SOURCE), FUNCTION)
    model = dossier.model
    if held is None or model is None or model.experts is None or dossier.spec.env.get(INVARIANT, "0") not in ("", "0"):
        return None
    line, text = held
    try:
        function = ast.parse(text).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(function, ast.FunctionDef) or any(_alters(node) for node in ast.walk(function)):
        return None
    known: dict[str, Any] = {
        "M": m,
        "E": asked.experts,
        "N": asked.width,
        "K": model.hidden,
        "topk": model.experts.top_k,
        "dtype": asked.dtype or None,
        "block_shape": list(asked.block) or None,
        "is_marlin": False,
    }
    walk = _Walk(known, Arch(dossier.card.arch), amd=dossier.card.kind == "amd")
    try:
        walk.block(function.body)
    except (UnknownError, TypeError):
        return None
    tile = walk.names.get("config")
    if not isinstance(tile, dict) or not all(type(v) is int for v in tile.values()) or "BLOCK_SIZE_K" not in tile:
        return None
    return Ruled(tile=tile, source=f"vllm/{SOURCE}:{line}")


def _alters(node: ast.AST) -> bool:
    """What changes a value in another way than by an assignment to a name."""
    return isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)


class _Walk(Walk):
    """With dictionaries of constant keys, one element of a list, and the two questions that this function asks."""

    def __init__(self, names: dict[str, Any], arch: Arch, amd: bool) -> None:
        super().__init__(names, arch)
        self.amd = amd

    def value(self, node: ast.expr) -> Any:
        text = ast.unparse(node) if isinstance(node, ast.Call | ast.Attribute) else ""
        if text == "current_platform.is_rocm()":
            return self.amd
        if text == f"envs.{INVARIANT}":
            return False
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            pairs = zip(node.keys, node.values, strict=True)
            return {key.value: self.value(its) for key, its in pairs if isinstance(key, ast.Constant)}
        if isinstance(node, ast.Subscript):
            held, at = self.value(node.value), self.value(node.slice)
            if isinstance(held, list) and isinstance(at, int) and 0 <= at < len(held):
                return held[at]
            raise UnknownError(ast.unparse(node)[:80])
        return super().value(node)
