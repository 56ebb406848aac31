"""A small, safe evaluator: what does this expression, or this function, answer on a card of architecture X?

It knows strings, numbers, tuples, dictionaries, comparisons, any/all, a few string methods and re.match; the platform's
is_rocm()/is_cuda(); the card's arch and compute capability under the names that code gives them. Everything else is
UNKNOWN, and and/or/not are three-valued over it. It never calls anything but the few methods listed here, on strings
of an architecture's length.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.research.source_tree import last_name
from agents.research.three_valued import COMPARE

MOST_DEPTH = 40  # of nested expressions; a deeper one is UNKNOWN
MOST_FORKS = 6  # unknown `if`s of which both sides are followed, before a function is UNKNOWN
LONGEST = 200  # characters of a string that is worked on


class Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


class Capability(NamedTuple):
    """As HIP reports it: gfx906 is (9, 0), gfx950 is (9, 5). The same numbers mean other things for CUDA."""

    major: int
    minor: int


@dataclass(frozen=True)
class Raises:
    """The function ends in a `raise`."""

    line: int


# What a platform object says on ROCm.
PLATFORM = {
    "is_rocm": True,
    "is_cuda_alike": True,
    "is_cuda": False,
    "is_xpu": False,
    "is_cpu": False,
    "is_tpu": False,
    "is_out_of_tree": False,
}
ARCH_NAMES = re.compile(r"_*(gfx|gfx_arch|gcn_?arch(_?name)?|(gpu|device|hip|rocm|cur)?_?arch(_?name|_id|_l|_base)?)_*")
ARCH_CALLS = re.compile(r"_*(get|current|detect)_(gfx|(gcn_|rocm_|hip_|gpu_|device_)?arch)(_runtime|_name)?")
STRING_METHODS = {"startswith", "endswith", "lower", "upper", "strip", "split", "removeprefix", "removesuffix"}


def capability_of(arch: str) -> Capability | None:
    """gfx906 -> (9, 0), gfx90a -> (9, 0), gfx950 -> (9, 5), gfx1201 -> (12, 0): the last character is the stepping."""
    found = re.fullmatch(r"gfx(\d{1,2})(\d)[0-9a-f]", arch)
    return Capability(int(found[1]), int(found[2])) if found else None


@dataclass
class Evaluator:
    """`resolve` answers a project's own names (module flags, functions), or UNKNOWN; `given` overrides any name."""

    arch: str
    resolve: Callable[[str], Any] = lambda _name: UNKNOWN
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def capability(self) -> Any:
        return capability_of(self.arch) or UNKNOWN

    def value(self, node: ast.expr | None, env: dict[str, Any] | None = None, depth: int = 0) -> Any:
        if node is None or depth > MOST_DEPTH:
            return UNKNOWN
        work = getattr(self, "_" + type(node).__name__.lower(), None)
        try:
            return UNKNOWN if work is None else work(node, env or {}, depth + 1)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, re.error, RecursionError):
            return UNKNOWN

    def truth(self, node: ast.expr | None, env: dict[str, Any] | None = None) -> bool | None:
        """True, False, or None where it cannot be told."""
        return _truth(self.value(node, env))

    # --- expressions ---

    def _constant(self, node: ast.Constant, _env: dict[str, Any], _depth: int) -> Any:
        return node.value

    def _name(self, node: ast.Name, env: dict[str, Any], _depth: int) -> Any:
        if node.id in self.given:
            return self.given[node.id]
        if node.id in env:
            return env[node.id]
        if ARCH_NAMES.fullmatch(node.id.lower()):
            return self.arch
        return self._capability_name(node.id) or self.resolve(node.id)

    def _capability_name(self, name: str) -> Any:
        """`compute_capability` is an integer throughout vLLM (90), the other names are pairs."""
        if name == "compute_capability" and isinstance(self.capability, Capability):
            return self.capability.major * 10 + self.capability.minor
        return self.capability if name in ("capability", "device_capability") else None

    def _attribute(self, node: ast.Attribute, env: dict[str, Any], depth: int) -> Any:
        if node.attr in self.given:
            return self.given[node.attr]
        inner = self.value(node.value, env, depth)
        if isinstance(inner, Capability) and node.attr in ("major", "minor"):
            return getattr(inner, node.attr)
        if inner == self.arch and node.attr == "name":
            return self.arch
        return self.arch if ARCH_NAMES.fullmatch(node.attr.lower()) else self.resolve(node.attr)

    def _tuple(self, node: ast.Tuple | ast.List | ast.Set, env: dict[str, Any], depth: int) -> Any:
        return tuple(self.value(e, env, depth) for e in node.elts)

    _list = _set = _tuple

    def _dict(self, node: ast.Dict, env: dict[str, Any], depth: int) -> Any:
        keys = [self.value(k, env, depth) for k in node.keys]
        return dict(zip(keys, (self.value(v, env, depth) for v in node.values), strict=True))

    def _boolop(self, node: ast.BoolOp, env: dict[str, Any], depth: int) -> Any:
        stop = isinstance(node.op, ast.Or)
        held = [self.value(v, env, depth) for v in node.values]
        seen = [_truth(v) for v in held]
        if stop in seen:
            first = seen.index(stop)
            return held[first] if None not in seen[:first] else stop
        return UNKNOWN if None in seen else held[-1]

    def _unaryop(self, node: ast.UnaryOp, env: dict[str, Any], depth: int) -> Any:
        inner = self.value(node.operand, env, depth)
        if isinstance(node.op, ast.Not):
            truth = _truth(inner)
            return UNKNOWN if truth is None else not truth
        return -inner if isinstance(node.op, ast.USub) and isinstance(inner, int | float) else UNKNOWN

    def _binop(self, node: ast.BinOp, env: dict[str, Any], depth: int) -> Any:
        a, b = self.value(node.left, env, depth), self.value(node.right, env, depth)
        work = {ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv}
        if type(node.op) not in work or not all(isinstance(v, int) and abs(v) < 2**40 for v in (a, b)):
            return UNKNOWN
        return work[type(node.op)](a, b)

    def _ifexp(self, node: ast.IfExp, env: dict[str, Any], depth: int) -> Any:
        truth = _truth(self.value(node.test, env, depth))
        return UNKNOWN if truth is None else self.value(node.body if truth else node.orelse, env, depth)

    def _compare(self, node: ast.Compare, env: dict[str, Any], depth: int) -> Any:
        sides = [self.value(s, env, depth) for s in (node.left, *node.comparators)]
        results: list[bool | None] = []
        for op, a, b in zip(node.ops, sides[:-1], sides[1:], strict=True):
            known = not (a is UNKNOWN or b is UNKNOWN or (isinstance(b, tuple) and UNKNOWN in b and a not in b))
            results.append(bool(COMPARE[type(op)](a, b)) if known else None)
        return False if False in results else UNKNOWN if None in results else True

    def _subscript(self, node: ast.Subscript, env: dict[str, Any], depth: int) -> Any:
        inner = self.value(node.value, env, depth)
        if isinstance(node.slice, ast.Slice):
            parts = [None if p is None else self.value(p, env, depth) for p in (node.slice.lower, node.slice.upper)]
            return UNKNOWN if inner is UNKNOWN or UNKNOWN in parts else inner[slice(*parts)]
        index = self.value(node.slice, env, depth)
        return UNKNOWN if inner is UNKNOWN or index is UNKNOWN else inner[index]

    def _call(self, node: ast.Call, env: dict[str, Any], depth: int) -> Any:
        name = last_name(node.func)
        if name in self.given:
            return self.given[name]
        if name in PLATFORM:
            return PLATFORM[name]
        if name in ("any", "all") and len(node.args) == 1:
            return self._any_all(name, node.args[0], env, depth)
        if ARCH_CALLS.fullmatch(name):
            return self.arch
        args = [self.value(a, env, depth) for a in node.args]
        if name == "getattr" and len(args) > 1 and isinstance(args[1], str):
            return self.arch if ARCH_NAMES.fullmatch(args[1].lower()) else UNKNOWN
        if "device_capability" in name or name == "to_int":
            return self._capability_call(name, node, args, env, depth)
        if isinstance(node.func, ast.Attribute):
            inner = self.value(node.func.value, env, depth)
            known = UNKNOWN not in args and not node.keywords
            if isinstance(inner, str) and name in STRING_METHODS and known and len(inner) <= LONGEST:
                result = getattr(inner, name)(*args)
                return tuple(result) if isinstance(result, list) else result
            if isinstance(inner, dict) and name == "get" and args[0] is not UNKNOWN:
                return inner.get(args[0], args[1] if len(args) > 1 else None)
            if isinstance(inner, re.Match) and name == "group" and known:
                return inner.group(*args)
            if last_name(node.func.value) in ("re", "regex") and name in ("match", "fullmatch", "search") and known:
                # A repeated group could take for ever on a pattern that was made to; none is needed for an arch.
                safe = len(args) == 2 and len(args[1]) <= LONGEST and not re.search(r"\)[*+{]", args[0])
                return getattr(re, name)(*args) if safe else UNKNOWN
        elif name in ("str", "int", "float", "len", "bool", "tuple", "list", "set", "frozenset") and len(args) == 1:
            if args[0] is UNKNOWN:
                return UNKNOWN
            plain: dict[str, Callable[[Any], Any]] = {"str": str, "int": int, "float": float, "len": len, "bool": bool}
            return plain.get(name, tuple)(args[0])
        return self.resolve(name)

    def _any_all(self, name: str, node: ast.expr, env: dict[str, Any], depth: int) -> Any:
        items: list[bool | None]
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp) and len(node.generators) == 1:
            loop = node.generators[0]
            over = self.value(loop.iter, env, depth)
            if not isinstance(over, tuple | dict) or loop.ifs or not isinstance(loop.target, ast.Name):
                return UNKNOWN
            items = [_truth(self.value(node.elt, {**env, loop.target.id: v}, depth)) for v in over]
        else:
            held = self.value(node, env, depth)
            if not isinstance(held, tuple):
                return UNKNOWN
            items = [_truth(v) for v in held]
        stop = name == "any"
        return stop if stop in items else UNKNOWN if None in items else not stop

    def _capability_call(self, name: str, node: ast.Call, args: list[Any], env: dict[str, Any], depth: int) -> Any:
        have = self.capability
        if name == "get_device_capability" or have is UNKNOWN:
            return have
        number = have.major * 10 + have.minor
        if name == "to_int" and isinstance(node.func, ast.Attribute):
            return number if isinstance(self.value(node.func.value, env, depth), Capability) else UNKNOWN
        if not args or args[0] is UNKNOWN:
            return UNKNOWN
        asked = args[0][0] * 10 + args[0][1] if isinstance(args[0], tuple) else args[0]
        if name == "has_device_capability":
            return number >= asked
        if name == "is_device_capability":
            return number == asked
        return number // 10 == asked // 10 if name == "is_device_capability_family" else UNKNOWN

    # --- functions ---

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, env: dict[str, Any] | None = None) -> Any:
        """What it returns; None where it falls off its end; Raises; UNKNOWN."""
        arguments = node.args
        free = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        known = {a: UNKNOWN for a in free if not ARCH_NAMES.fullmatch(a.lower()) and not self._capability_name(a)}
        try:
            outcome = self._run(list(node.body), {**known, **(env or {})}, 0)
        except RecursionError:
            return UNKNOWN
        return None if outcome is _FALLS else outcome

    def _run(self, body: list[ast.stmt], env: dict[str, Any], forks: int) -> Any:
        for place, line in enumerate(body):
            if isinstance(line, ast.Return):
                return None if line.value is None else self.value(line.value, env)
            if isinstance(line, ast.Raise):
                return Raises(line.lineno)
            if isinstance(line, ast.If):
                rest, truth = body[place + 1 :], self.truth(line.test, env)
                if truth is not None:
                    return self._run([*(line.body if truth else line.orelse), *rest], env, forks)
                if forks >= MOST_FORKS:
                    return UNKNOWN
                ends = [self._run([*branch, *rest], dict(env), forks + 1) for branch in (line.body, line.orelse)]
                return ends[0] if type(ends[0]) is type(ends[1]) and ends[0] == ends[1] else UNKNOWN
            if isinstance(line, ast.Try | ast.With | ast.AsyncWith):
                return self._run([*line.body, *body[place + 1 :]], env, forks)
            self.assign(line, env)
            if isinstance(line, ast.For | ast.While | ast.Match) and any(
                isinstance(n, ast.Return | ast.Raise) for n in ast.walk(line)
            ):
                return UNKNOWN
        return _FALLS

    def assign(self, line: ast.stmt, env: dict[str, Any]) -> None:
        """Notes in `env` what a statement binds: the value of `name = expression` and `a, b = pair`, else UNKNOWN."""
        if isinstance(line, ast.Assign) and len(line.targets) == 1 and isinstance(line.targets[0], ast.Name):
            name, held = line.targets[0].id, self.value(line.value, env)
            if held is not UNKNOWN or not ARCH_NAMES.fullmatch(name.lower()):
                env[name] = held
            return
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value:
            env[line.target.id] = self.value(line.value, env)
            return
        if isinstance(line, ast.Assign) and len(line.targets) == 1 and isinstance(line.targets[0], ast.Tuple):
            names, held = line.targets[0].elts, self.value(line.value, env)
            if isinstance(held, tuple) and len(held) == len(names) and all(isinstance(n, ast.Name) for n in names):
                env.update(zip((n.id for n in names if isinstance(n, ast.Name)), held, strict=True))
                return
        if isinstance(line, ast.Assign | ast.AugAssign | ast.For | ast.While):
            for node in ast.walk(line):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    env[node.id] = UNKNOWN


_FALLS = object()


def _truth(value: Any) -> bool | None:
    if value is UNKNOWN or isinstance(value, Raises):
        return None
    return bool(value)
