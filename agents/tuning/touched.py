"""Which functions of a Python file a patch changes, from the two texts. Pure; nothing is imported or run.

Not the hunks are looked at but what the compiler sees: two syntax trees, function by function. So a comment is no
change, a decorator or a default belongs to its function, and a function inside another one is its own. What stands
outside of functions is "module level", which the import runs; but a new import, a new name or a new class there only
serves functions, and does nothing by itself where functions change too.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from contracts import Frozen

# Decorators that give the source to a compiler: the function itself is never called. The last part of their name.
_COMPILERS = ("jit", "njit", "script")


class Function(Frozen):
    name: str  # as Python's __qualname__; a second one of that name in the file ends in "#2" (a property's setter)
    line: int  # where its code begins, decorators included: co_firstlineno
    kernel: bool  # compiled by something else than Python: Triton


class Touched(Frozen):
    functions: tuple[str, ...]
    module: bool  # statements outside of functions changed, in a way that does something by itself


@dataclass
class _Text:
    functions: dict[str, tuple[Function, str]] = field(
        default_factory=dict
    )  # name -> it, and its text without inner ones
    # (class, statement, may go without effect: an import, a function's place). A statement inside another one is told
    # with where it stands there: the same line under `else` is another one.
    level: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    order: list[tuple[str, str, bool]] = field(default_factory=list)  # of them, those whose order counts
    binds: dict[str, frozenset[str]] = field(default_factory=dict)  # statement -> names, where it only binds names
    classes: set[str] = field(default_factory=set)


def functions_of(source: bytes) -> dict[str, Function]:
    """All functions of a file by name. Raises SyntaxError or ValueError for what this Python cannot read."""
    return {name: function for name, (function, _) in _read(source).functions.items()}


def touched(before: bytes | None, after: bytes) -> Touched:
    """What changed between two texts of one file; `before` is None for a new file. No function and not `module`: only
    comments and layout changed. Raises SyntaxError or ValueError for a text that this Python cannot read."""
    old, new = _read(before or b""), _read(after)
    functions = tuple(name for name, (_, text) in new.functions.items()
                      if name not in old.functions or old.functions[name][1] != text)  # fmt: skip
    if functions:
        return Touched(functions=functions, module=before is not None and _acts(old, new, _names(before)))
    same = old.level == new.level and old.order == new.order and set(old.functions) == set(new.functions)
    return Touched(functions=(), module=not same)


def _acts(old: _Text, new: _Text, known: set[str]) -> bool:
    """An import that goes does nothing; what binds names that the file did not know serves whoever uses them."""
    gone = [entry for entry in old.level - new.level if not entry[2]]
    come = [(holder, statement) for holder, statement, _ in new.level - old.level
            if not (holder and holder not in old.classes)
            and (statement not in new.binds or new.binds[statement] & known)]  # fmt: skip
    here, there = ([entry for entry in text.order if entry in old.level and entry in new.level] for text in (old, new))
    return bool(gone or come or here != there)


def _names(source: bytes) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name.partition(".")[0])
    return found


def _read(source: bytes) -> _Text:
    try:
        text = _Text()
        _level(ast.parse(source).body, "", text)
        return text
    except (RecursionError, MemoryError):  # the second one is the parser's own word for it
        raise ValueError("nested too deeply") from None


def _level(body: Iterable[ast.stmt], scope: str, text: _Text, where: str = "") -> None:
    """Statements outside of functions. `scope` is the class, "" for the module; `where` stands for what is around them
    (if, try, ...) and for the branch, "" for none."""

    def told(written: str, idle: bool = False) -> None:
        text.level[scope, written, idle] += 1
        if not idle:
            text.order.append((scope, written, idle))

    prefix = f"{scope}." if scope else ""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _function(statement, prefix, text)
                if where:
                    written = f"{where}def {statement.name}"
                    told(written, idle=True)
                    text.binds[written] = frozenset({statement.name})
            case ast.ClassDef():
                name = prefix + statement.name
                text.classes.add(name)
                head = [*statement.bases, *statement.keywords, *statement.decorator_list]
                text.level[name, f"{where}class " + ", ".join(map(ast.dump, head)), False] += 1
                _level(statement.body, name, text, where)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                origin = f"{statement.level} {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
                for alias in aliases:
                    written = f"{where}import {origin}{alias.name} as {alias.asname}"
                    told(written, idle=True)
                    text.binds[written] = frozenset({alias.asname or alias.name.partition(".")[0]})
            case _ if inner := list(_blocks(statement)):  # if, try, with, for: its head, then what it holds
                opening = where + _head(statement)
                told(opening)
                for branch, block in inner:
                    told(opening + branch)
                    _level(block, scope, text, f"{hash((opening, branch)):x} ")  # short, however deep it is
            case _:
                written = where + ast.dump(statement)
                told(written)
                targets = _targets(statement)
                if targets and all(isinstance(target, ast.Name) for target in targets):
                    text.binds[written] = frozenset(target.id for target in targets if isinstance(target, ast.Name))


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _blocks(statement: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The branches: what each is called, an except's or a case's own words with it, and its statements."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for inner in getattr(statement, name, None) or ():
            if not isinstance(inner, ast.stmt):  # an except or a case
                yield f" {name} {_head(inner)}", inner.body
            elif inner is getattr(statement, name)[0]:
                yield f" {name}", getattr(statement, name)


def _head(statement: ast.AST) -> str:
    blocks = ("body", "handlers", "cases", "orelse", "finalbody")
    kept = [value for name, value in ast.iter_fields(statement) if name not in blocks]
    nodes: list[object] = [node for value in kept for node in (value if isinstance(value, list) else [value])]
    words = [ast.dump(node) if isinstance(node, ast.AST) else str(node) for node in nodes if node is not None]
    return f"{type(statement).__name__} {' '.join(words)}"


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, text: _Text) -> None:
    name, count = prefix + node.name, 1
    while name in text.functions:
        count += 1
        name = f"{prefix}{node.name}#{count}"
    own = copy.copy(node)
    own.body = [_Hollow().visit(copy.deepcopy(statement)) for statement in node.body]
    line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    text.functions[name] = Function(name=name, line=line, kernel=_is_kernel(node)), ast.dump(own)
    _inner(node.body, f"{prefix}{node.name}.<locals>.", text)


def _inner(nodes: Iterable[ast.AST], prefix: str, text: _Text) -> None:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _function(node, prefix, text)
        elif isinstance(node, ast.ClassDef):
            _inner(node.body, f"{prefix}{node.name}.", text)
        else:
            _inner(ast.iter_child_nodes(node), prefix, text)


def _is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in _COMPILERS:
            return True
    return False


class _Hollow(ast.NodeTransformer):
    """Leaves the name of an inner function and nothing else."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return ast.Expr(ast.Constant(f"def {node.name}"))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return ast.Expr(ast.Constant(f"async def {node.name}"))
