"""Is a condition in somebody's source true here? Yes, no, or not known: an expression's syntax tree is worked out with
the facts there are, and nothing is run.

A fact is a piece of source text and its value: {"get_cdna_version()": 3, "use_mla": False}.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

UNKNOWN: Any = object()

# Shared by all who work out other people's conditions (gates/evaluate.py, tables/attention_source.py).
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def truth(node: ast.expr, facts: Mapping[str, Any]) -> bool | None:
    """None: not known from these facts."""
    value = worked_out(node, facts)
    return None if value is UNKNOWN else bool(value)


def worked_out(node: ast.expr, facts: Mapping[str, Any], depth: int = 0) -> Any:
    """The value, or UNKNOWN. `and` and `or` are decided by one operand where that suffices."""
    if depth > 40:
        return UNKNOWN
    text = ast.unparse(node)
    if text in facts:
        return facts[text]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = [worked_out(e, facts, depth + 1) for e in node.elts]
        return UNKNOWN if any(p is UNKNOWN for p in parts) else tuple(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = worked_out(node.operand, facts, depth + 1)
        return value if value is UNKNOWN else not value
    if isinstance(node, ast.BoolOp):
        stops = isinstance(node.op, ast.Or)
        values = [worked_out(v, facts, depth + 1) for v in node.values]
        if any(v is not UNKNOWN and bool(v) is stops for v in values):
            return stops
        return UNKNOWN if any(v is UNKNOWN for v in values) else not stops
    if isinstance(node, ast.Compare):
        return _compare(node, facts, depth)
    return UNKNOWN


def _compare(node: ast.Compare, facts: Mapping[str, Any], depth: int) -> Any:
    sides = [worked_out(side, facts, depth + 1) for side in (node.left, *node.comparators)]
    if any(side is UNKNOWN for side in sides):
        return UNKNOWN
    try:
        return all(COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    except TypeError:
        return UNKNOWN
