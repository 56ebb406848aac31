"""A constexpr parameter turned into a run-time argument that is not specialised on: as a diff, where that is safe.

Safe means that nothing in the kernel needs the value while it is compiled. A value that was constant may be used in
arithmetic, in comparisons with run-time values, as a bound of a loop, in masks and pointers, and as a plain argument
of another jit function that uses it so. In shapes, tl.arange, static_* and compile-time branches it may not; what is
not understood counts as unsafe. The arithmetic becomes 32-bit instead of the compiler's own.
"""

from __future__ import annotations

import ast
import difflib

from agents.research.compile.extract import is_constexpr, jit_decorator, parameters
from agents.research.compile.modules import Module, Sources
from agents.research.compile.storms import Storm

MAX_DEPTH = 4
# Take run-time scalars in any argument.
_SCALAR = {
    *("cdiv", "minimum", "maximum", "where", "load", "store", "min", "max", "assume", "int32", "int64"),
    *("atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "device_print"),
}
_RUN_TIME_CALLS = {"program_id", "num_programs", "load", "arange", "atomic_add", "sum", "dot"}


def by_hand(sources: Sources, storm: Storm) -> str:
    """Why a person has to change it, "" where `diff` may."""
    if storm.how == "autotune key":
        return f"{storm.parameter} is part of the autotuner's key: take it out, or round it to a few sizes"
    why = _needs_constant(sources, storm.module, storm.node, storm.parameter, 0)
    return f"{storm.parameter}: {why}" if why else ""


def _needs_constant(sources: Sources, module: Module, node: ast.FunctionDef, name: str, depth: int) -> str:
    """Why `name` must be known while this function is compiled, "" if it need not."""
    if depth > MAX_DEPTH:
        return "it is passed on too far to follow"
    body = ast.Module(body=node.body, type_ignores=[])
    parents = {child: parent for parent in ast.walk(body) for child in ast.iter_child_nodes(parent)}
    run_time = {a.arg for a in parameters(node) if not is_constexpr(a) and a.arg != name}
    derived = {name}
    while True:  # until nothing new: what is computed from run-time values, and what from this constant alone
        before = len(run_time) + len(derived)
        for target, value in _assignments(body):
            if _mixes(value, run_time):
                run_time.add(target)
            elif _reads(value) & derived:
                derived.add(target)
        if len(run_time) + len(derived) == before:
            break
    derived -= run_time - {name}
    for use in ast.walk(body):
        if isinstance(use, ast.Name) and isinstance(use.ctx, ast.Load) and use.id in derived:
            why = _use(sources, module, use, parents, run_time, depth)
            if why:
                return f"{why} ({module.where}:{use.lineno})"
    return ""


def _use(
    sources: Sources,
    module: Module,
    use: ast.expr,
    parents: dict[ast.AST, ast.AST],
    run_time: set[str],
    depth: int,
) -> str:
    child: ast.AST = use
    while True:
        parent = parents.get(child)
        if isinstance(parent, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp):
            if isinstance(parent, ast.Compare) and any(
                isinstance(op, ast.Is | ast.IsNot | ast.In) for op in parent.ops
            ):
                return f"it is compared by `{ast.unparse(parent)}`"
            if _mixes(parent, run_time):
                return ""  # a run-time value before and after
            child = parent
        elif isinstance(parent, ast.IfExp):
            if not all(isinstance(n, ast.Name | ast.Constant) for n in (parent.body, parent.orelse)):
                return f"`{ast.unparse(parent)}` is decided while compiling"
            child = parent
        elif isinstance(parent, ast.keyword):
            call = parents.get(parent)
            return _argument(sources, module, call, child, parent.arg, depth) if isinstance(call, ast.Call) else "?"
        elif isinstance(parent, ast.Call):
            return _argument(sources, module, parent, child, None, depth)
        elif _plain_assignment(parent) or _block_pointer(parent, parents):
            return ""
        else:
            kind = type(parent).__name__ if parent is not None else "module"
            words = {
                "If": "a branch is decided by it",
                "Tuple": "it is part of a shape",
                "List": "it is part of a shape",
            }
            return f"{words.get(kind, f'it is used in a {kind}')} while compiling"


def _argument(sources: Sources, module: Module, call: ast.Call, child: ast.AST, key: str | None, depth: int) -> str:
    if child is call.func:
        return f"it is called: `{ast.unparse(call)}`"
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _SCALAR or (name == "range" and key is None):
        return ""
    found = sources.find(module, name) if isinstance(call.func, ast.Name) else None
    callee = found[0].functions.get(found[1]) if found else None
    if found is None or callee is None or jit_decorator(callee) is None:
        return f"it is given to {ast.unparse(call.func)}"
    arguments = parameters(callee)
    taken = next((a for a in arguments if a.arg == key), None)
    if key is None:
        place = call.args.index(child) if child in call.args else len(arguments)
        taken = arguments[place] if place < len(arguments) else None
    if taken is None or is_constexpr(taken):
        return f"{name} needs it as a constant"
    return _needs_constant(sources, found[0], callee, taken.arg, depth + 1)


def _assignments(body: ast.AST) -> list[tuple[str, ast.expr]]:
    found = []
    for node in ast.walk(body):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                found += [(t.id, node.value) for t in names if isinstance(t, ast.Name)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append((node.target.id, node.value))
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            found.append((node.target.id, node.iter))
    return found


def _reads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _mixes(node: ast.AST, run_time: set[str]) -> bool:
    calls = {n.func.attr for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    return bool(_reads(node) & run_time) or bool(calls & _RUN_TIME_CALLS)


def _plain_assignment(node: ast.AST | None) -> bool:
    """To names: what they hold then is looked at as well."""
    if not isinstance(node, ast.Assign | ast.AugAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(t, ast.Name | ast.Tuple) for t in targets)


def _block_pointer(held: ast.AST | None, parents: dict[ast.AST, ast.AST]) -> bool:
    """Shape, strides and offsets of tl.make_block_ptr(base, shape, strides, offsets, block_shape, order)."""
    if not isinstance(held, ast.Tuple | ast.List):
        return False
    call = parents.get(held)
    key = None
    if isinstance(call, ast.keyword):
        key, call = call.arg, parents.get(call)
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("make_block_ptr"):
        return False
    return key in ("shape", "strides", "offsets") if key else held in call.args[1:4]


def diff(module: Module, node: ast.FunctionDef, names: list[str]) -> str:
    """Against the file as it stands: the annotations go, the decorator gains do_not_specialize."""
    lines = module.text.splitlines(keepends=True)
    for argument in reversed(parameters(node)):  # from the end, so that columns before stay right
        if argument.arg in names:
            _replace(lines, argument, argument.arg)
    decorator = jit_decorator(node)
    assert decorator is not None
    named = ", ".join(f'"{name}"' for name in names)
    if not isinstance(decorator, ast.Call):
        _replace(lines, decorator, f"{ast.unparse(decorator)}(do_not_specialize=[{named}])")
    else:
        held = next((k.value for k in decorator.keywords if k.arg == "do_not_specialize"), None)
        if isinstance(held, ast.List) and held.elts:
            text = ast.get_source_segment(module.text, held.elts[-1]) or ast.unparse(held.elts[-1])
            _replace(lines, held.elts[-1], f"{text}, {named}")
        elif decorator.keywords:
            last = decorator.keywords[-1].value
            text = ast.get_source_segment(module.text, last) or ast.unparse(last)
            _replace(lines, last, f"{text}, do_not_specialize=[{named}]")
        else:
            _replace(lines, decorator, f"{ast.unparse(decorator.func)}(do_not_specialize=[{named}])")
    before, after = module.text.splitlines(keepends=True), "".join(lines).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"a/{module.where}", f"b/{module.where}"))


def _replace(lines: list[str], node: ast.expr | ast.arg, text: str) -> None:
    """In place, by the node's own place; later lines keep their numbers. Columns count bytes."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset or 0 :].decode()
    lines[first : last + 1] = [head + text + tail] + [""] * (last - first)
