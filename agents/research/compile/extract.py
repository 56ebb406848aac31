"""A Triton kernel as a module of its own: its function, the jit functions and constants that it uses, and nothing that
needs the tree it comes from. Text in, text out; what cannot be followed is named, so that nobody takes a kernel that
was not compiled for one that is fine."""

from __future__ import annotations

import ast
import builtins
import copy
from dataclasses import dataclass, field

from agents.research.compile.modules import Module, Sources

# What a stand-alone module may import under its usual names, whatever the tree's own detour is called.
IMPORTS = {
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "language": "from triton import language",
    "libdevice": "from triton.language.extra import libdevice",
    "tldevice": "from triton.language.extra import libdevice as tldevice",
    "math": "import math",
}
MAX_FUNCTIONS = 60
_KEPT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline")


@dataclass
class Kernel:
    """`text` is empty where something is missing: `problems` says what."""

    name: str
    where: str  # file:line
    text: str = ""
    parameters: tuple[str, ...] = ()
    constexprs: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()  # parameters that have one
    heuristics: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def jit_decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The @triton.jit of a function, bare or called; gluon's is another language and does not count."""
    for decorator in node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(name) in ("triton.jit", "jit", "tl.jit"):
            return decorator
    return None


def parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def is_constexpr(argument: ast.arg) -> bool:
    return argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)


def heuristics_of(node: ast.FunctionDef) -> dict[str, ast.Lambda]:
    """Parameter -> lambda of args, of every @triton.heuristics with a dictionary in place."""
    found: dict[str, ast.Lambda] = {}
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("heuristics") and decorator.args:
            table = decorator.args[0]
            if isinstance(table, ast.Dict):
                for key, value in zip(table.keys, table.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Lambda):
                        found[str(key.value)] = value
    return found


def free_names(node: ast.AST) -> set[str]:
    """Names that are read and not bound inside; what Python itself knows is left out."""
    bound = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    read: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, ast.Name):
            (read if isinstance(n.ctx, ast.Load) else bound).add(n.id)
    return {name for name in read - bound if not hasattr(builtins, name)}


def extract(sources: Sources, module: Module, name: str) -> Kernel:
    """The kernel `name` of `module`. Never raises: `problems` says what could not be followed."""
    node = module.functions.get(name)
    if node is None:
        return Kernel(name, module.where, problems=[f"{name} is not defined in {module.where}"])
    arguments = parameters(node)
    without = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    kernel = Kernel(
        name,
        f"{module.where}:{node.lineno}",
        parameters=tuple(a.arg for a in arguments),
        constexprs=tuple(a.arg for a in arguments if is_constexpr(a)),
        defaults=tuple(a.arg for a in arguments[without:]),
    )
    if jit_decorator(node) is None:
        kernel.problems.append(f"{name} is not a @triton.jit function at module level")
        return kernel
    work = _Work(sources, kernel.problems)
    for parameter, function in heuristics_of(node).items():
        kernel.heuristics[parameter] = ast.unparse(function)
        for free in sorted(free_names(function)):
            work.follow(module, free, f"the heuristic of {parameter}")
    work.function(module, node)
    if not kernel.problems:
        kernel.text = "\n\n".join([*work.header(), *work.parts]) + "\n"
    return kernel


class _Work:
    """One extraction: parts in the order in which they have to stand."""

    def __init__(self, sources: Sources, problems: list[str]) -> None:
        self.sources, self.problems = sources, problems
        self.parts: list[str] = []
        self.imports: set[str] = {"triton", "tl"}
        self.done: dict[str, str] = {}  # name in the text -> file that it is from

    def header(self) -> list[str]:
        return ["\n".join(line for name, line in IMPORTS.items() if name in self.imports)]

    def follow(self, module: Module, name: str, wanted_by: str) -> None:
        if name in IMPORTS and name in module.imports:
            self.imports.add(name)
            return
        found = self.sources.find(module, name)
        if found is None:
            imported = module.imports.get(name)
            origin = f"from {'.' * imported.level}{imported.module}" if imported else "not defined at module level"
            self.problems.append(f"{wanted_by} uses {name}, {origin}: not followed")
            return
        home, real = found
        if self.done.get(name) == home.where:
            return
        if name in self.done:
            self.problems.append(f"{name} is one thing in {self.done[name]} and another in {home.where}")
        elif name != real:
            self.problems.append(f"{wanted_by} uses {name}, which is called {real} in {home.where}: not followed")
        elif real in home.doubtful:
            self.problems.append(f"{wanted_by} uses {name}, which {home.where} defines more than once")
        elif len(self.done) >= MAX_FUNCTIONS:
            self.problems.append(f"more than {MAX_FUNCTIONS} functions and constants")
        elif real in home.functions:
            self.function(home, home.functions[real])
        else:
            self.constant(home, real, wanted_by)

    def function(self, module: Module, node: ast.FunctionDef) -> None:
        decorator = jit_decorator(node)
        if decorator is None:
            self.problems.append(f"{node.name} ({module.where}:{node.lineno}) is no @triton.jit function")
            return
        self.done[node.name] = module.where
        plain = copy.deepcopy(node)
        plain.decorator_list = [_plain_jit(decorator)]
        plain.returns = None
        for argument in parameters(plain):
            if argument.annotation is not None and not _understood(argument.annotation):
                argument.annotation = None
        for name in sorted(free_names(plain)):
            self.follow(module, name, node.name)
        self.parts.append(ast.unparse(plain))

    def constant(self, module: Module, name: str, wanted_by: str) -> None:
        node = module.values[name]
        value = node.value
        if value is None or not _constant(value):
            self.problems.append(f"{wanted_by} uses {name}, which {module.where}:{node.lineno} computes")
            return
        self.done[name] = module.where
        for free in sorted(free_names(value)):
            self.follow(module, free, name)
        typed = isinstance(node, ast.AnnAssign) and "constexpr" in ast.unparse(node.annotation)
        self.parts.append(f"{name}{': tl.constexpr' if typed else ''} = {ast.unparse(value)}")


def _plain_jit(decorator: ast.expr) -> ast.expr:
    """Without repr and launch_metadata: names for a profiler."""
    jit = ast.parse("triton.jit", mode="eval").body
    if not isinstance(decorator, ast.Call):
        return jit
    kept = [k for k in decorator.keywords if k.arg in _KEPT_OPTIONS and not free_names(k.value)]
    return ast.Call(func=jit, args=[], keywords=kept) if kept else jit


def _understood(annotation: ast.expr) -> bool:
    return "constexpr" in ast.unparse(annotation) or free_names(annotation) <= {"tl"}


def _constant(value: ast.expr) -> bool:
    """Literals, names and arithmetic, and calls of triton.language or math on them: no function of the tree is run."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if not called.startswith(("tl.", "triton.language.", "math.", "float", "int")):
                return False
        elif isinstance(node, ast.Lambda | ast.Await | ast.Yield | ast.NamedExpr | ast.ListComp | ast.DictComp):
            return False
    return True
