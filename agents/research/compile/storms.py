"""Kernels of a tree that are compiled again for other batches: constexpr parameters and heuristics that follow a
batch or a length, and autotuners that tune again for each. Read from the call sites `kernel[grid](...)`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agents.research.compile.evidence import Job
from agents.research.compile.extract import heuristics_of, is_constexpr, jit_decorator, parameters
from agents.research.compile.flow import Flow, Vary
from agents.research.compile.modules import Module, Sources

# What a server's steps bring, in sequences or tokens: 16 sizes, with the special value 1, multiples of 16 and others.
BATCHES = (1, 2, 3, 5, 8, 16, 24, 48, 64, 100, 128, 200, 333, 512, 1000, 2048)
FEW = 4  # variants over BATCHES that are taken for a handful, not for a storm


How = Literal["constexpr", "heuristic", "autotune key"]
_LAUNCH = re.compile(rb"\b([A-Za-z_]\w*)\[[^\[\]]{1,160}\]\(")  # kernel[grid](
_DEFINED = re.compile(rb"^[ \t]*def (\w+)\(", re.MULTILINE)
_TRAINING = re.compile(r"bwd|backward|_dq|_dkdv")  # no server runs these


@dataclass(frozen=True)
class Storm:
    """One parameter of one kernel at one call site."""

    kernel: str
    kernel_at: str  # file:line of its definition
    parameter: str
    how: How
    vary: Vary
    call_at: str  # file:line
    expression: str  # what is passed, or the heuristic
    values: tuple[int, ...]  # for BATCHES
    module: Module = field(compare=False)
    node: ast.FunctionDef = field(compare=False)


def storms(sources: Sources) -> list[Storm]:
    """Of all call sites in the tree whose kernel is found in it; of each file, one for each (kernel, parameter), the
    worst."""
    found: dict[tuple[str, str, str], Storm] = {}
    for path, lines in _launching(sources):
        module = sources.module(path)
        for function in _outermost(module.tree, lines) if module else ():
            flow = Flow(function)
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
                    assert module is not None
                    for storm in _of_call(sources, module, flow, call):
                        key = (storm.kernel_at, storm.parameter, module.where)
                        if key not in found or storm.vary > found[key].vary:
                            found[key] = storm
    return sorted(found.values(), key=lambda s: (-s.vary, -len(set(s.values)), s.kernel_at, s.parameter))


def worst(found: list[Storm]) -> list[Storm]:
    """One for each (kernel, parameter) of a list from storms()."""
    first: dict[tuple[str, str], Storm] = {}
    for storm in found:
        first.setdefault((storm.kernel_at, storm.parameter), storm)
    return list(first.values())


def _launching(sources: Sources) -> list[tuple[Path, list[int]]]:
    """Files that launch a function of a file with jit functions, and the lines where. From the text: parsing all of
    vLLM's files would take most of the time."""
    texts = list(sources.files(b"triton"))
    defined = {name for _, raw in texts if b".jit" in raw for name in _DEFINED.findall(raw)}
    found = []
    for path, raw in texts:
        hits = [m for m in _LAUNCH.finditer(raw) if m.group(1) in defined]
        if hits:
            found.append((path, [raw.count(b"\n", 0, m.start()) + 1 for m in hits]))
    return found


def _outermost(tree: ast.Module, lines: list[int]) -> list[ast.FunctionDef]:
    """Functions and methods that are not jit functions and hold one of the lines."""
    found: list[ast.FunctionDef] = []
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            last = node.end_lineno or node.lineno
            if any(node.lineno <= line <= last for line in lines) and jit_decorator(node) is None:
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
    if home is None or node is None or jit_decorator(node) is None or _TRAINING.search(node.name):
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
    found_here: list[Storm] = []

    def add(name: str, how: How, level: Vary, text: str, values: list[int]) -> None:
        different = len(set(values))
        if level == Vary.FIXED or different == 1 or (how == "autotune key" and level != Vary.EACH):
            return
        level = Vary.POWERS if different <= FEW else level
        at = f"{home.where}:{node.lineno}"
        found_here.append(Storm(node.name, at, name, how, level, call_at, text, tuple(values), home, node))

    for argument in arguments:
        if argument.arg in passed and is_constexpr(argument):
            expression = passed[argument.arg]
            values = [flow.sample(expression, batch) for batch in BATCHES]
            add(argument.arg, "constexpr", vary[argument.arg], ast.unparse(expression), values)
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
    return found_here


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
        f"import triton\nimport triton.language as tl\n\n\n@triton.jit{option}\ndef {storm.kernel}({held}):\n    pass\n"
    )
    launches = tuple({**dict.fromkeys(names, 64), storm.parameter: value} for value in storm.values)
    return Job(kind="count", source=source, kernel=storm.kernel, arch=arch, launches=launches)
