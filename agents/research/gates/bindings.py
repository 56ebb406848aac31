"""What a module binds at its top level: flags, functions, imported names, and under which questions.

    if current_platform.is_rocm():
        from vllm.platforms.rocm import on_gfx906
    else:
        def on_gfx906(): return False

On ROCm this module has no function of that name: it imports one. What surely is not run is not there; of what may be
run both ways, both are kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    name: str
    owner: str  # the class, or ""
    node: ast.FunctionDef | ast.AsyncFunctionDef
    names: frozenset[str]  # all names and attributes that it mentions
    archs: frozenset[str]  # all "gfx..." texts in it

    @property
    def title(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


@dataclass(frozen=True)
class Bound:
    """One binding of a name. `value` None: it is imported."""

    line: int
    value: ast.expr | Function | None
    doubts: tuple[ast.expr, ...] = ()  # questions around it whose answer is not known
    owner: str = ""


@dataclass(frozen=True)
class Settled:
    flag: tuple[ast.expr, int] | None
    functions: list[Function]
    unsure: bool  # a function that may as well be something else


def collected(
    body: list[ast.stmt],
    truth: Callable[[ast.expr], bool | None],
    owner: str = "",
    doubts: tuple[ast.expr, ...] = (),
) -> Iterator[tuple[str, Bound]]:
    """Module-level names and all functions, those of classes and under `if` and `try` included. Of `try` the body
    counts; a name that a handler gives another value is in doubt."""
    for node in body:
        if isinstance(node, ast.If):
            answer = truth(node.test)
            for branch, taken, test in ((node.body, True, node.test), (node.orelse, False, _not(node.test))):
                if answer is None:
                    yield from collected(branch, truth, owner, (*doubts, test))
                elif answer is taken:
                    yield from collected(branch, truth, owner, doubts)
        elif isinstance(node, ast.Try):
            yield from collected([*node.body, *node.orelse], truth, owner, doubts)
            for handler in node.handlers:
                failed = ast.Call(ast.Name("failed", ast.Load()), [handler.type] if handler.type else [], [])
                for name, bound in collected(handler.body, truth, owner, (*doubts, failed)):
                    if isinstance(bound.value, ast.expr):
                        yield name, bound
        elif isinstance(node, ast.ClassDef):
            yield from collected(node.body, truth, node.name, doubts)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = Function(node.name, owner, node, *mentions(node))
            yield node.name, Bound(node.lineno, function, doubts, owner)
        elif isinstance(node, ast.ImportFrom) and not owner:
            for alias in node.names:
                yield alias.asname or alias.name, Bound(node.lineno, None, doubts)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, Bound(node.lineno, node.value, doubts, owner)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, Bound(node.lineno, node.value, doubts, owner)


def _not(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def settled(bound: list[Bound]) -> Settled:
    """Of all bindings of one name: what counts at the end of the module. What is bound in doubt may leave what was
    bound before, so a flag becomes `new if question else old`. Names of classes come after the module's own."""
    own = sorted((b for b in bound if not b.owner), key=lambda b: b.line)
    sure = max((place for place, b in enumerate(own) if not b.doubts), default=0)
    own = own[sure:]
    functions = [b.value for b in own if isinstance(b.value, Function)]
    methods = [b.value for b in bound if b.owner and isinstance(b.value, Function)]
    flag: tuple[ast.expr, int] | None = None
    if any(isinstance(b.value, ast.expr) for b in own):
        for b in own:
            new = b.value if isinstance(b.value, ast.expr) else ast.Call(ast.Name("elsewhere", ast.Load()), [], [])
            held = new if flag is None or not b.doubts else ast.IfExp(_all(b.doubts), new, flag[0])
            flag = (held, b.line if flag is None or isinstance(b.value, ast.expr) else flag[1])
    elif not functions:
        flag = next(((b.value, b.line) for b in bound if b.owner and isinstance(b.value, ast.expr)), None)
    return Settled(flag, functions + methods, unsure=bool(functions) and len(own) > 1)


def _all(doubts: tuple[ast.expr, ...]) -> ast.expr:
    return doubts[0] if len(doubts) == 1 else ast.BoolOp(ast.And(), list(doubts))


def mentions(node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """(names and attributes, texts that are an arch or begin one) of a piece of code."""
    names, archs = set(), set()
    for n in ast.walk(node):
        if isinstance(n, ast.Name):
            names.add(n.id)
        elif isinstance(n, ast.Attribute):
            names.add(n.attr)
        elif isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.startswith("gfx"):
            archs.add(n.value)
    return frozenset(names), frozenset(a for a in archs if re.fullmatch(r"gfx[0-9a-f]+", a))
