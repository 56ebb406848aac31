"""The same tiles in AITER's older releases, where a Python function picks them: `select_2d_config` in
`ops/triton/attention/unified_attention.py` (or one folder up). Its syntax tree is walked for given arguments; nothing
is imported or run, and an expression that is not understood is unknown, never guessed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents.research.tables.attention import MIN_RATIO, USUAL_HEADS, Call, power_of_two
from agents.research.three_valued import COMPARE

FUNCTION = "select_2d_config"


class UnknownError(Exception):
    """An expression or statement that this reader does not understand."""


@dataclass(frozen=True)
class Tiles:
    """What the function picks for one call, and the test that decided it last ("" where none did)."""

    block_m: int
    tile: int | None
    line: int  # of the assignment of BLOCK_M
    test: str
    test_line: int


@dataclass(frozen=True)
class Arch:
    name: str

    @property
    def is_rdna(self) -> bool:
        return self.name.startswith(("gfx10", "gfx11", "gfx12")) and self.name != "gfx1250"


def find_function(source: str) -> ast.FunctionDef | None:
    """Raises nothing: source that does not parse has no function."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == FUNCTION)
    return next(found, None)


def tiles(function: ast.FunctionDef, call: Call, arch: str) -> Tiles:
    """Raises UnknownError where the function cannot be followed for this call."""
    known: dict[str, Any] = {
        "block_size": call.page,
        "head_size": call.head_size,
        "sliding_window": int(call.window),
        "all_decode": call.rows == 1,
        "max_seqlen_q": call.rows,
        "num_queries_per_kv": call.queries_per_kv,
        "q_dtype": call.q_tag,
        "kv_cache_dtype": call.kv_tag,
        "e4m3_dtype": "fp8",
        "shuffled_kv_cache": call.shuffled,
    }
    walk = Walk(known, Arch(arch))
    walk.block(function.body)
    block_m, tile = walk.names.get("BLOCK_M"), walk.names.get("TILE_SIZE")
    if not isinstance(block_m, int):
        raise UnknownError("BLOCK_M")
    line = walk.lines["BLOCK_M"]
    return Tiles(block_m, tile if isinstance(tile, int) else None, line, *walk.last_on("head_size", "max_seqlen_q"))


def long_from(function: ast.FunctionDef) -> int | None:
    """From how many rows on the function asks for another tile: the least n > 1 of `max_seqlen_q >= n`."""
    return min((n for n in _compared(function, "max_seqlen_q") if n > 1), default=None)


def head_bounds(function: ast.FunctionDef) -> list[int]:
    return sorted({*_compared(function, "head_size"), *USUAL_HEADS})


def _compared(function: ast.FunctionDef, name: str) -> list[int]:
    return [
        node.comparators[0].value
        for node in ast.walk(function)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == name
        and isinstance(node.ops[0], ast.GtE | ast.Gt)
        and isinstance(node.comparators[0], ast.Constant)
        and isinstance(node.comparators[0].value, int)
    ]


def misplaced(function: ast.FunctionDef, call: Call, arch: str) -> tuple[Tiles, int, Tiles] | None:
    """As in the tables (attention.misplaced): a long call whose tile would be the same one row below the line that the
    function draws, while the nearest smaller head whose tile does change there gets MIN_RATIO times as many rows. What
    serves it, the neighbour's head size, and what serves that. Raises UnknownError."""
    line = long_from(function)
    if line is None or call.rows < line:
        return None
    mine = tiles(function, call, arch)
    if mine.block_m != tiles(function, _with(call, rows=line - 1), arch).block_m:
        return None
    for head in reversed([h for h in head_bounds(function) if h < call.head_size]):
        other = tiles(function, _with(call, head_size=head), arch)
        if other.block_m != tiles(function, _with(call, head_size=head, rows=line - 1), arch).block_m:
            return (mine, head, other) if other.block_m >= MIN_RATIO * mine.block_m else None
    return None


def _with(call: Call, **changes: Any) -> Call:
    return Call(**{**call.__dict__, **changes})


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Walk:
    """Follows assignments and branches; a name that was set from something unknown is not known."""

    def __init__(self, names: dict[str, Any], arch: Arch) -> None:
        self.names = names
        self.arch = arch
        self.lines: dict[str, int] = {}
        self.tests: list[tuple[int, str]] = []

    def last_on(self, *names: str) -> tuple[str, int]:
        """The last branch that asked for one of the names and was taken: (its test, its line)."""
        for line, text in reversed(self.tests):
            if any(name in text for name in names):
                return text, line
        return "", 0

    def block(self, body: list[ast.stmt]) -> bool:
        """True where the function has returned."""
        for node in body:
            if isinstance(node, ast.Return):
                return True
            if isinstance(node, ast.If):
                held = bool(self.value(node.test))
                if held:
                    self.tests.append((node.lineno, ast.unparse(node.test)))
                if self.block(node.body if held else node.orelse):
                    return True
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.assign(node.targets[0], node.value, node.lineno)
            elif not isinstance(node, ast.Assert | ast.Expr | ast.Pass):
                raise UnknownError(type(node).__name__)
        return False

    def assign(self, target: ast.expr, value: ast.expr, line: int) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self.assign(one, its, line)
        elif isinstance(target, ast.Name):
            self.lines[target.id] = line
            try:
                self.names[target.id] = self.value(value)
            except UnknownError:
                self.names.pop(target.id, None)
        else:
            raise UnknownError(ast.unparse(target))

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return [self.value(e) for e in node.elts]
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.value(node.test) else node.orelse)
        if isinstance(node, ast.BoolOp):
            return self.logic(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return self.number(node)
        if isinstance(node, ast.Compare):
            return self.compare(node)
        if isinstance(node, ast.Attribute) and node.attr in ("name", "is_rdna"):
            held = self.value(node.value)
            if isinstance(held, Arch):
                return getattr(held, node.attr)
        if isinstance(node, ast.Call):
            return self.call(node)
        raise UnknownError(ast.unparse(node)[:80])

    def logic(self, node: ast.BoolOp) -> Any:
        stop = isinstance(node.op, ast.Or)
        held: Any = None
        for part in node.values:
            held = self.value(part)
            if bool(held) is stop:
                break
        return held

    def number(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        divides = isinstance(node.op, ast.FloorDiv | ast.Mod)
        if not isinstance(left, int) or not isinstance(right, int) or (divides and not right):
            raise UnknownError(ast.unparse(node)[:80])
        return _ARITHMETIC[type(node.op)](left, right)

    def compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, right in zip(node.ops, (self.value(c) for c in node.comparators), strict=True):
            try:
                if type(op) not in COMPARE or not COMPARE[type(op)](left, right):
                    return False
            except TypeError:
                raise UnknownError(ast.unparse(node)[:80]) from None
            left = right
        return True

    def call(self, node: ast.Call) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "get_arch" and not node.args:
            return self.arch
        if name not in ("min", "max", "next_power_of_2") or not node.args or node.keywords:
            raise UnknownError(ast.unparse(node)[:80])
        held = [self.value(a) for a in node.args]
        if not all(isinstance(v, int) for v in held):
            raise UnknownError(ast.unparse(node)[:80])
        return power_of_two(held[0]) if name == "next_power_of_2" else (min if name == "min" else max)(held)
