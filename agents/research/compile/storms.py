"""Kernels of a tree that are compiled again for other batches: constexpr parameters and heuristics that follow a
batch or a length, and autotuners that tune again for each. Read from the call sites `kernel[grid](...)`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from agents.research.compile.evidence import Job
from agents.research.compile.extract import heuristics_of, is_constexpr, jit_decorator, parameters
from agents.research.compile.flow import Flow, Vary
from agents.research.compile.modules import Module, Sources

# What a server's steps bring: 16 sizes, the special value 1, multiples of 16 and others.
BATCHES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 200)


@dataclass(frozen=True)
class Storm:
    """One parameter of one kernel at one call site."""

    kernel: str
    kernel_at: str  # file:line of its definition
    parameter: str
    how: Literal["constexpr", "heuristic", "autotune key"]
    vary: Vary
    call_at: str  # file:line
    expression: str  # what is passed, or the heuristic
    values: tuple[int, ...]  # for BATCHES
    module: Module
    node: ast.FunctionDef


def storms(sources: Sources) -> list[Storm]:
    """Of all call sites in the tree whose kernel is found in it; one for each (kernel, parameter), the worst."""
    worst: dict[tuple[str, str], Storm] = {}
    for path in sources.files(b"]("):
        module = sources.module(path)
        for function in _outermost(module.tree) if module else ():
            calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)]
            flow = Flow(function) if calls else None
            for call in calls:
                assert module is not None and flow is not None
                for storm in _of_call(sources, module, flow, call):
                    key = (storm.kernel_at, storm.parameter)
                    if key not in worst or storm.vary > worst[key].vary:
                        worst[key] = storm
    return sorted(worst.values(), key=lambda s: (-s.vary, -len(set(s.values)), s.kernel_at, s.parameter))


def _outermost(tree: ast.Module) -> list[ast.FunctionDef]:
    found: list[ast.FunctionDef] = []
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            if jit_decorator(node) is None:
                found.append(node)
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.With):
            todo.extend(ast.iter_child_nodes(node))
    return sorted(found, key=lambda f: f.lineno)


def _of_call(sources: Sources, module: Module, flow: Flow, call: ast.Call) -> list[Storm]:
    assert isinstance(call.func, ast.Subscript)
    if not isinstance(call.func.value, ast.Name):
        return []
    found = sources.find(module, call.func.value.id)
    home, node = (found[0], found[0].functions.get(found[1])) if found else (None, None)
    if home is None or node is None or jit_decorator(node) is None:
        return []
    arguments = parameters(node)
    passed: dict[str, ast.expr] = {}
    for argument, value in zip(arguments, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        passed[argument.arg] = value
    passed |= {k.arg: k.value for k in call.keywords if k.arg is not None}
    vary = {name: flow.of(value) for name, value in passed.items()}
    call_at = f"{module.where}:{call.lineno}"
    storms_here: list[Storm] = []

    def add(name: str, how: Literal["constexpr", "heuristic", "autotune key"], level: Vary, text: str, values: list[int]) -> None:
        if level > Vary.FIXED and (how != "autotune key" or level == Vary.EACH):
            at = f"{home.where}:{node.lineno}"
            storms_here.append(
                Storm(node.name, at, name, how, level, call_at, text, tuple(values), home, node)
            )

    for argument in arguments:
        value = passed.get(argument.arg)
        if value is not None and is_constexpr(argument):
            values = [flow.sample(value, batch) for batch in BATCHES]
            add(argument.arg, "constexpr", vary[argument.arg], ast.unparse(value), values)
    for name, function in heuristics_of(node).items():
        inner = Flow(function, vary)
        values = []
        for batch in BATCHES:
            held = {n: flow.sample(v, batch) for n, v in passed.items()}
            values.append(inner.sample(function.body, batch, held))
        add(name, "heuristic", inner.of(function.body), ast.unparse(function), values)
    for name in _autotune_key(node):
        if name in passed:
            values = [flow.sample(passed[name], batch) for batch in BATCHES]
            add(name, "autotune key", vary[name], ast.unparse(passed[name]), values)
    return storms_here


def _autotune_key(node: ast.FunctionDef) -> list[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("autotune"):
            for keyword in decorator.keywords:
                if keyword.arg == "key" and isinstance(keyword.value, ast.List):
                    return [str(e.value) for e in keyword.value.elts if isinstance(e, ast.Constant)]
    return []


def count_job(storm: Storm, arch: str, as_: Literal["constexpr", "run time", "not specialised"]) -> Job:
    """Counts the variants over BATCHES of a kernel with this signature: the binder's key does not depend on the body,
    so the body is empty. All other arguments stay the same."""
    names = [a.arg for a in parameters(storm.node)]
    constexprs = {a.arg for a in parameters(storm.node) if is_constexpr(a)} | (
        {storm.parameter} if as_ == "constexpr" else set()
    )
    if as_ != "constexpr":
        constexprs.discard(storm.parameter)
    held = ", ".join(f"{n}: tl.constexpr" if n in constexprs else n for n in names)
    option = f"(do_not_specialize=[{storm.parameter!r}])" if as_ == "not specialised" else ""
    source = (
        "import triton\nimport triton.language as tl\n\n\n"
        f"@triton.jit{option}\ndef {storm.kernel}({held}):\n    pass\n"
    )
    launches = tuple({**dict.fromkeys(names, 64), storm.parameter: value} for value in storm.values)
    return Job(kind="count", source=source, kernel=storm.kernel, arch=arch, launches=launches)
