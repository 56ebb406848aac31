"""In which order a vLLM's platform tries its attention back ends: the priority function of platforms/rocm.py (or of
cuda.py, which has one of the same name), or, up to vLLM 0.12, the method that chooses without an order. Read as syntax
trees.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.research.attention_backends import ENUM, PLATFORM, BackendsError, function_named, registered, tree_of
from agents.research.three_valued import truth
from contracts import Frozen

ORDER = "_get_backend_priorities"
CHOOSER = "get_attn_backend_cls"  # of the platform's class; up to vLLM 0.12 it chooses by itself, without an order


class Tried(Frozen):
    """One entry of the priority function. `condition` is its source's own words, "" for always."""

    name: str
    condition: str
    holds: bool | None  # None: not known from the dossier
    where: str


def order(package: Path, facts: Mapping[str, Any], platform: str = PLATFORM) -> list[Tried]:
    """The priority function's list under these facts, what is left out because its condition does not hold included
    (with holds False, in the place where the source names it). Raises BackendsError."""
    tree = tree_of(str(package / platform))
    function = function_named(tree, ORDER)
    found: list[Tried] = []
    if function is not None:
        _walk(function.body, (), True, facts, found)
    else:
        chooser = _method(tree, CHOOSER) if platform == PLATFORM else None
        if chooser is None:
            raise BackendsError(f"{platform} has no function {ORDER}")
        nothing_asked = {"selected_backend": None, **{f"{ENUM}.{b.name}": b.name for b in registered(package)}}
        _choose(chooser.body, (), True, {**facts, **nothing_asked}, found)
    return [t.model_copy(update={"where": t.where.replace(PLATFORM, platform)}) for t in found]


def order_line(package: Path, platform: str) -> str:
    """Where that function stands: "vllm/platforms/rocm.py:478", "" where it does not."""
    function = function_named(tree_of(str(package / platform)), ORDER)
    return f"vllm/{platform}:{function.lineno}" if function else ""


def _method(tree: ast.Module | None, name: str) -> ast.FunctionDef | None:
    """A function or method of that name, wherever it stands."""
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name) if tree else iter(())
    return next(found, None)


def _choose(
    body: list[ast.stmt], path: tuple[str, ...], holds: bool | None, facts: Mapping[str, Any], found: list[Tried]
) -> bool:
    """The returns of a method that chooses by itself, in its order, where no back end is asked for; True where the
    statements surely end it. What is asked of the back end that was asked for is no condition then."""
    for node in body:
        if isinstance(node, ast.Return | ast.Raise):
            held = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == ENUM]
            found += [_tried(n, path, holds) for n in held[:1] if isinstance(node, ast.Return)]
            return holds is not False
        if not isinstance(node, ast.If):
            continue
        asked, text = truth(node.test, facts), ast.unparse(node.test)
        about = "selected_backend" in text
        if asked is False and (about or text in ("use_mla", "use_sparse")):
            ended = False  # another back end was asked for, or the model has another kind of attention
        else:
            ended = _choose(node.body, path if about else (*path, text), _both(holds, asked), facts, found)
        other = _choose(node.orelse, path, _both(holds, None if asked is None else not asked), facts, found)
        if (asked is True and ended) or (asked is False and other and node.orelse) or (ended and other and node.orelse):
            return True
    return False


def named_in(package: Path, platform: str, function: str) -> tuple[tuple[str, ...], str]:
    """(the back ends that a method or function of a platform names, in the source's order, where it stands). The CPU's
    get_attn_backend_cls chooses among those that it names, whatever is asked for."""
    node = _method(tree_of(str(package / platform)), function)
    if node is None:
        return (), ""
    held = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == ENUM]
    names = [n.attr for n in sorted(held, key=lambda n: (n.lineno, n.col_offset))]
    return tuple(dict.fromkeys(names)), f"vllm/{platform}:{node.lineno}"


def _walk(
    body: list[ast.stmt], path: tuple[str, ...], holds: bool | None, facts: Mapping[str, Any], found: list[Tried]
) -> bool:
    """Follows the statements; True where they surely return."""
    for node in body:
        if isinstance(node, ast.If):
            asked, text = truth(node.test, facts), ast.unparse(node.test)
            done = _walk(node.body, (*path, text), _both(holds, asked), facts, found) if asked is not False else False
            if asked is False:
                _leave_out(node.body, (*path, text), found)
            other = None if asked is None else not asked
            if node.orelse and other is not False:
                inner = node.orelse[0] if len(node.orelse) == 1 else None
                chained = isinstance(inner, ast.If)  # elif: its own text says enough
                done_too = _walk(
                    node.orelse, path if chained else (*path, f"not ({text})"), _both(holds, other), facts, found
                )
                if done_too and other is True:
                    return True
            if done and asked is True:
                return True
        elif isinstance(node, ast.Return):
            for element in node.value.elts if isinstance(node.value, ast.List) else ():
                found += _element(element, path, holds, facts)
            return True
        else:
            _one(node, path, holds, found)
    return False


def _element(node: ast.expr, path: tuple[str, ...], holds: bool | None, facts: Mapping[str, Any]) -> list[Tried]:
    """Of a list that is returned: X, or *([X] if condition else [])."""
    if isinstance(node, ast.Attribute):
        return [_tried(node, path, holds)]
    inner = node.value if isinstance(node, ast.Starred) else None
    if not (isinstance(inner, ast.IfExp) and isinstance(inner.body, ast.List)):
        return []
    asked, text = truth(inner.test, facts), ast.unparse(inner.test)
    held = [e for e in inner.body.elts if isinstance(e, ast.Attribute)]
    return [_tried(e, (*path, text), _both(holds, asked)) for e in held]


def _one(node: ast.stmt, path: tuple[str, ...], holds: bool | None, found: list[Tried]) -> None:
    """backends.append(X), backends.insert(0, X), backends.remove(X)."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
        return
    what = call.args[-1]
    if not (isinstance(what, ast.Attribute) and ast.unparse(what.value) == ENUM):
        return
    if call.func.attr == "append":
        found.append(_tried(what, path, holds))
    elif call.func.attr == "insert":
        place = call.args[0].value if isinstance(call.args[0], ast.Constant) else 0
        found.insert(place if isinstance(place, int) else 0, _tried(what, path, holds))
    elif call.func.attr == "remove" and holds:
        found[:] = [t for t in found if t.name != what.attr]


def _leave_out(body: list[ast.stmt], path: tuple[str, ...], found: list[Tried]) -> None:
    """Appended under a condition that does not hold: told, in its place. Whole lists that are returned elsewhere (MLA)
    are another kind of model and are not."""
    for node in body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
            what = call.args[-1]
            if isinstance(what, ast.Attribute) and ast.unparse(what.value) == ENUM:
                found.append(_tried(what, path, False))


def _tried(node: ast.Attribute, path: tuple[str, ...], holds: bool | None) -> Tried:
    where = f"vllm/{PLATFORM}:{node.lineno}"
    return Tried(name=node.attr, condition=" and ".join(path), holds=holds, where=where)


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True
