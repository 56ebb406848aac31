"""Which batch sizes vLLM captures graphs for: its own default, read from its source, and what a list of sizes covers.

`VllmConfig._set_cudagraph_sizes` (config/vllm.py; 0.30.0, 0.32.0 and 0.33.0 alike) captures 1, 2, 4, then multiples of
8 below 256 and of 16 from there, up to a largest size, which is by default the least of a product of max_num_seqs and a
constant; with draft tokens also whole numbers of requests. The product and the constant are taken from the syntax tree;
an expression that is not of that form is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

FUNCTION = "_set_cudagraph_sizes"
NAMES = ("max_num_seqs", "decode_query_len", "uniform_decode_query_len")
STRIDE = 16  # requests between the sizes that extend() adds: what the default grid has in tokens from 256 on


class UnknownError(Exception):
    """The source does not say it in a form that is understood. The text says what is missing."""


@dataclass(frozen=True)
class DefaultRule:
    """The largest size captured by default is min(product, cap). Lines are of config/vllm.py."""

    factor: int  # of max_num_seqs
    per_request: bool  # times the tokens of a request in a decode step
    cap: int
    whole_requests: bool  # sizes that are whole numbers of requests are appended
    line: int
    text: str  # the expression as it stands there

    def largest(self, max_num_seqs: int, width: int) -> int:
        return min(max_num_seqs * self.factor * (width if self.per_request else 1), self.cap)

    def sizes(self, max_num_seqs: int, width: int, budget: int | None) -> list[int]:
        """Captured by default. `width`: tokens of a request in a decode step; `budget`: max_num_batched_tokens."""
        largest = self.largest(max_num_seqs, width)
        found = set(grid(min(largest, budget or largest)))
        if budget is not None and budget <= largest:
            found.add(budget)
        if self.whole_requests and width > 1:
            counts = {*grid(min(max_num_seqs, self.cap)), min(max_num_seqs, self.cap)}
            found |= {n * width for n in counts if n * width <= min(largest, budget or largest)}
        return sorted(found)


def grid(largest: int) -> list[int]:
    return [n for n in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if n <= largest]


def usable(sizes: Iterable[int], width: int) -> list[int]:
    """As a decode step can use them: rounded up to whole requests, none above the largest (config/compilation.py,
    adjust_cudagraph_sizes_for_spec_decode)."""
    held = sorted(set(sizes))
    return sorted({up for n in held if (up := -(-n // width) * width) <= held[-1]}) if held else []


def covers(sizes: Iterable[int], width: int) -> int:
    """How many sequences of `width` tokens each a captured graph can hold at most."""
    held = usable(sizes, width)
    return held[-1] // width if held else 0


def extend(sizes: Iterable[int], sequences: int, width: int) -> list[int]:
    """The list, and whole numbers of requests every STRIDE beyond it, up to the sequences wanted."""
    held = sorted(set(sizes))
    start = covers(held, width)
    return sorted({*held, *(n * width for n in range(start + STRIDE, sequences, STRIDE)), sequences * width})


def default_rule(source: str, arch: str) -> DefaultRule:
    """From the text of config/vllm.py. Raises UnknownError."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnknownError("config/vllm.py does not parse") from None
    function = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == FUNCTION), None)
    if function is None:
        raise UnknownError(f"config/vllm.py has no function {FUNCTION}")
    assigned = {
        node.targets[0].id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not _is_min_of_seqs(node.value)
    }
    ranges = {
        (call.args[0].value, call.args[2].value)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and _named(call.func) == "range" and len(call.args) == 3
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[2], ast.Constant)
    }
    if not {(8, 8), (256, 16)} <= ranges:
        raise UnknownError("the sizes are not 8 apart from 8 and 16 apart from 256")
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_min_of_seqs(node.value):
            factor, per_request, cap = _least(node.value, assigned, arch)
            whole = any(_named(c.func) == "request_counts" for c in ast.walk(function) if isinstance(c, ast.Call))
            return DefaultRule(factor, per_request, cap, whole, node.lineno, ast.unparse(node)[:160])
    raise UnknownError("no largest size that is the least of max_num_seqs and a constant")


def _is_min_of_seqs(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and _named(node.func) == "min"
        and len(node.args) == 2
        and any(_named(n) == "max_num_seqs" for n in ast.walk(node))
    )


def _least(call: ast.Call, assigned: dict[str, ast.expr], arch: str) -> tuple[int, bool, int]:
    """min(max_num_seqs * decode_query_len * 2, cap) as (2, True, cap), in any order."""
    product, cap = None, None
    for part in call.args:
        factors = _factors(part)
        if any(_named(f) == "max_num_seqs" for f in factors):
            product = factors
        else:
            cap = _constant(part, assigned, arch)
    if product is None or cap is None:
        raise UnknownError(f"not understood: {ast.unparse(call)[:120]}")
    factor, per_request = 1, False
    for one in product:
        if isinstance(one, ast.Constant) and isinstance(one.value, int):
            factor *= one.value
        elif _named(one) in NAMES:
            per_request = per_request or _named(one) != "max_num_seqs"
        else:
            raise UnknownError(f"not understood: {ast.unparse(call)[:120]}")
    return factor, per_request, cap


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _constant(node: ast.expr, assigned: dict[str, ast.expr], arch: str) -> int | None:
    """A number, a name for one, or one of two by the family of the device: is_device_capability_family(100) holds for
    sm_100 to sm_109, and for no AMD card."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, ast.IfExp):
        test = node.test
        if not (
            isinstance(test, ast.Call) and _named(test.func) == "is_device_capability_family" and len(test.args) == 1
        ):
            return None
        family = test.args[0].value if isinstance(test.args[0], ast.Constant) else None
        if not isinstance(family, int):
            return None
        same = arch.startswith("sm_") and len(arch) == len(f"sm_{family}") and arch[3:-1] == str(family)[:-1]
        return _constant(node.body if same else node.orelse, assigned, arch)
    name = _named(node)
    return _constant(assigned[name], {**assigned, name: ast.Constant(None)}, arch) if name in assigned else None


def _named(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
