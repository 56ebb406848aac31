"""All gates of a project, what each answers for one arch, and where the answers are relied on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.research.gates.bindings import Function, mentions
from agents.research.gates.claims import mentioned, promises
from agents.research.gates.evaluate import UNKNOWN, Evaluator, Raises
from agents.research.gates.files import OTHER_CARDS, Files, Module
from agents.research.source_tree import last_name, short

MOST_ROUNDS = 5  # vLLM 0.33.0: a flag, on_gfx942(), get_cdna_version(), is_aiter_found_and_supported()
LITERAL = re.compile(r"""["']gfx[0-9a-fx]*["']""")
CAPABILITY = re.compile(r"device_capability|compute_capability|\.to_int\(|capability\.(major|minor)|capability\[")
# Capability numbers matter here only near words of a unit, so other files are not parsed.
NEAR = re.compile(rb"fp8|float8|bf16|bfloat16|mxfp|e4m3")
WINDOW = (300, 200)  # characters before and after
_LITERAL_B, _CAPABILITY_B = (re.compile(p.pattern.encode()) for p in (LITERAL, CAPABILITY))


@dataclass(frozen=True, eq=False)  # one gate is one place: compared by identity
class Gate:
    name: str  # bare: "on_cdna"
    title: str  # with its class: "RocmPlatform.supports_fp8"
    module: Module
    line: int
    node: ast.expr | ast.FunctionDef | ast.AsyncFunctionDef
    answer: Any  # True, False, another value, Raises, UNKNOWN
    promises: frozenset[str]
    asks: frozenset[str]  # names of other gates that it mentions

    @property
    def place(self) -> str:
        return f"{self.module.file}:{self.line}"

    @property
    def text(self) -> str:
        """The expression that decides, as the source has it, shortened."""
        if isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef):
            returns = [n for n in ast.walk(self.node) if isinstance(n, ast.Return) and n.value is not None]
            return f"def {self.name}: " + "; ".join(f"return {short(r.value, 100)}" for r in returns[:3])
        return f"{self.name} = {short(self.node, 120)}"


@dataclass
class Survey:
    """`gates` by name; a name may stand in several files."""

    files: Files
    arch: str
    modules: list[Module] = field(default_factory=list)
    gates: dict[str, list[Gate]] = field(default_factory=dict)
    _answers: dict[tuple[str, str], Any] = field(default_factory=dict)

    def evaluator(self, module: Module, **given: Any) -> Evaluator:
        return Evaluator(self.arch, lambda name: self.answer(name, module), given)

    def answer(self, name: str, module: Module) -> Any:
        """Of a module flag or function of this name; the module's own comes first, then one in a ROCm file."""
        key = (module.file, name)
        if key not in self._answers:
            self._answers[key] = UNKNOWN  # a name that needs itself
            own = [module] if name in module.flags or name in module.functions else []
            others = [m for m in self.modules if name in m.functions or (name in m.flags and name.isupper())]
            rocm = [m for m in others if re.search(r"rocm|amd|aiter|arch_info|chip_info", m.file)]
            held = [self._own_answer(name, m) for m in own or rocm or others]
            agreed = all(type(h) is type(held[0]) and h == held[0] for h in held)
            self._answers[key] = held[0] if held and agreed else UNKNOWN
        return self._answers[key]

    def _own_answer(self, name: str, module: Module) -> Any:
        if name in module.unsure:
            return UNKNOWN
        if name in module.functions:
            ends = [self.evaluator(module).function(f.node) for f in module.functions[name]]
            return ends[0] if len(ends) == 1 else UNKNOWN
        return self.evaluator(module).value(module.flags[name][0])

    def all(self) -> Iterator[Gate]:
        for found in self.gates.values():
            yield from found


def survey(files: Files, arch: str) -> Survey:
    found = Survey(files, arch)
    wanted = re.compile(f"{LITERAL.pattern}|{CAPABILITY.pattern}")
    for file, raw in files.texts.items():
        if (b"gfx" in raw and _LITERAL_B.search(raw)) or _near_capability(file, raw):
            module = files.module(file)
            module.parse(wanted, _worth_parsing)
            found.modules.append(module)
    names: set[str] = set()
    for _ in range(MOST_ROUNDS):
        before = len(names)
        names |= {name for module in found.modules for name in _gate_names(module, names)}
        if len(names) == before:
            break
        telling = sorted(n for n in names if _tells(n))
        known = re.compile(r"\b(" + "|".join(telling) + r")\b" if telling else r"(?!)")
        for module in found.modules:
            module.parse(known)
    for module in found.modules:
        for name in sorted(names):
            for gate in _gates(found, module, name, names):
                found.gates.setdefault(name, []).append(gate)
    return found


_DEFINES = re.compile(r"^[ \t]*(?:async )?def (\w+)|^[ \t]*(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
_SIZE_OR_LIST = re.compile(r"lds|shmem|smem|vgpr|wave|warp|arch|supported|allowed|(^|_)map($|_)|_available$", re.I)


def _worth_parsing(block: str) -> bool:
    """It asks for a capability, or defines something that by its name sorts cards, lists them or holds a size. Most of
    AITER only chooses a tile by `arch == "gfx950"`."""
    names = {a or b for a, b in _DEFINES.findall(block)}
    return bool(CAPABILITY.search(block)) or any(_tells(n) or _SIZE_OR_LIST.search(n) for n in names)


def _near_capability(file: str, raw: bytes) -> bool:
    if b"capability" not in raw or OTHER_CARDS.search(file.lower()):
        return False
    low, high = WINDOW
    return any(NEAR.search(raw, max(0, m.start() - low), m.end() + high) for m in _CAPABILITY_B.finditer(raw))


def _gate_names(module: Module, known: set[str]) -> Iterator[str]:
    for name, (node, _) in module.flags.items():
        names, archs = mentions(node)
        if archs or (names & known and _tells(name)):
            yield name
    for name, functions in module.functions.items():
        if any(f.archs or (f.names & known and (_tells(name) or _short(f))) for f in functions):
            yield name


_TELLS = re.compile(r"_*(is_)?on_|.*(cdna|rdna|gfx|arch)_version$|.*aiter.*supported$|.*all_?reduce", re.IGNORECASE)


def _tells(name: str) -> bool:
    """By its name it sorts cards, or lets a part of the project in or out."""
    return bool(promises(name) or _TELLS.match(name))


def _short(function: Function) -> bool:
    """One statement besides its docstring and imports: a function that only passes a gate on."""
    body = [s for s in function.node.body if not isinstance(s, ast.Expr | ast.Import | ast.ImportFrom)]
    return len(body) == 1 and isinstance(body[0], ast.Return)


def _gates(survey: Survey, module: Module, name: str, names: set[str]) -> Iterator[Gate]:
    if name in module.flags:
        node, line = module.flags[name]
        asks = mentions(node)[0] & names - {name}
        answer = survey.evaluator(module).value(node)
        if isinstance(answer, tuple | dict) and promises(name):
            answer = survey.arch in answer  # a list of archs: FP8_ARCHS
        yield Gate(name, name, module, line, node, answer, promises(name), asks)
    for f in module.functions.get(name, []):
        unsure = name in module.unsure and not f.owner
        answer = UNKNOWN if unsure else survey.evaluator(module).function(f.node)
        yield Gate(name, f.title, module, f.node.lineno, f.node, answer, promises(name), f.names & names - {name})


# --- where answers are relied on ---


@dataclass(frozen=True)
class Live:
    """A piece of code that ROCm can reach: an `if`'s test or a whole statement, and the tests around it."""

    function: Function
    node: ast.expr | ast.stmt
    line: int
    around: tuple[str, ...]  # the tests that hold where it stands, as text
    env: dict[str, Any]


def live(function: Function, evaluator: Evaluator) -> Iterator[Live]:
    """What the function can reach on this card: not code behind `if is_cuda()` or after an answer that is certain."""
    try:
        pieces = _walk(function, list(function.node.body), evaluator, (), {})[0]
    except RecursionError:  # nested beyond what a person writes: not looked at
        return
    yield from pieces


def _walk(
    function: Function, body: list[ast.stmt], evaluator: Evaluator, around: tuple[str, ...], env: dict[str, Any]
) -> tuple[list[Live], bool]:
    """The live pieces, and whether the block certainly ends the function."""
    found: list[Live] = []
    for line in body:
        if isinstance(line, ast.If):
            truth = evaluator.truth(line.test, env)
            found.append(Live(function, line.test, line.lineno, around, dict(env)))
            ends = []
            for branch, taken in ((line.body, truth is not False), (line.orelse, truth is not True)):
                if not taken:
                    ends.append(True)
                    continue
                test = (*around, short(line.test, 200)) if branch is line.body else around
                more, ended = _walk(function, branch, evaluator, test, env if truth is not None else dict(env))
                found += more
                ends.append(ended)
            if all(ends):
                return found, True
        elif isinstance(line, ast.Try | ast.With | ast.AsyncWith | ast.For | ast.While):
            evaluator.assign(line, env)
            more, ended = _walk(function, line.body, evaluator, around, env)
            found += more
            if ended and isinstance(line, ast.With | ast.AsyncWith):
                return found, True
        elif not isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(Live(function, line, line.lineno, around, dict(env)))
            evaluator.assign(line, env)
            if isinstance(line, ast.Return | ast.Raise):
                return found, True
    return found, False


@dataclass(frozen=True)
class Use:
    place: str  # file:line
    where: str  # the function
    text: str
    depth: int  # 1: asks the gate; 2: calls a function that does


def uses(survey: Survey, names: frozenset[str]) -> list[Use]:
    """Where the gates' answer matters: expressions whose value changes with it, in code that ROCm reaches."""
    found: list[Use] = []
    callers: set[str] = set()
    for file, raw in sorted(survey.files.texts.items()):
        if OTHER_CARDS.search(file.lower()) or not any(name.encode() in raw for name in names):
            continue
        module = survey.files.module(file)
        module.parse(re.compile(r"\b(" + "|".join(sorted(names)) + r")\b"))
        for function in (f for fs in module.functions.values() for f in fs if f.names & names and f.name not in names):
            for piece in live(function, survey.evaluator(module)):
                if _matters(survey, module, piece, names):
                    row = short(piece.node, 120)
                    found.append(Use(f"{module.file}:{piece.line}", function.title, row, 1))
                    callers.add(function.name)
    return found + _callers(survey, callers)


def _matters(survey: Survey, module: Module, piece: Live, names: frozenset[str]) -> bool:
    if not any(last_name(n) in names for n in reachable(piece.node, survey.evaluator(module), piece.env)):
        return False
    node = piece.node
    value = node if isinstance(node, ast.expr) else getattr(node, "value", None)
    if not isinstance(value, ast.expr):
        return True
    yes, no = (
        survey.evaluator(module, **dict.fromkeys(names, given)).value(value, piece.env) for given in (True, False)
    )
    return yes is UNKNOWN or no is UNKNOWN or yes != no


MOST_NESTED = 100  # parts of an expression inside each other; deeper ones are not looked at


def reachable(node: ast.AST, evaluator: Evaluator, env: dict[str, Any], depth: int = 0) -> Iterator[ast.expr]:
    """The names, attributes and calls, comparisons of a piece of code, without what `and`, `or` and `x if y else z`
    certainly skip."""
    if depth > MOST_NESTED:
        return
    parts: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.BoolOp):
        stop = isinstance(node.op, ast.Or)
        stops = [v for v in node.values if evaluator.truth(v, env) is stop]
        parts = list(stops[:1] or node.values)
    elif isinstance(node, ast.IfExp) and (truth := evaluator.truth(node.test, env)) is not None:
        parts = [node.test, node.body if truth else node.orelse]
    if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Compare):
        yield node
    for part in parts:
        yield from reachable(part, evaluator, env, depth + 1)


MOST_CALLERS = 4  # places shown of one function that relies on a gate
COMMON = {"is_supported", "can_implement", "supports_compute_capability", "process_weights_after_loading"}


def _callers(survey: Survey, names: set[str]) -> list[Use]:
    """Calls of the functions of depth 1, by text: only of names that one function alone has."""
    found = []
    for name in sorted(n for n in names if n not in COMMON and not n.startswith("__") and len(n) > 8):
        call, define = f"{name}(".encode(), f"def {name}(".encode()
        held = [(file, raw) for file, raw in sorted(survey.files.texts.items()) if call in raw]
        if sum(raw.count(define) for _, raw in held) != 1:
            continue
        places = [
            (f"{file}:{number}", row.strip())
            for file, raw in held
            for number, row in enumerate(raw.decode("utf-8", errors="replace").split("\n"), 1)
            if f"{name}(" in row and f"def {name}(" not in row and not row.lstrip().startswith("#") and "``" not in row
        ]
        found += [Use(place, f"calls {name}", row[:120], 2) for place, row in places[:MOST_CALLERS]]
    return found


def units_around(piece: Live) -> frozenset[str]:
    """Units that a piece of code is about: its own words, the tests around it, its function's name."""
    node = piece.node
    value = node if isinstance(node, ast.expr) else node.value if isinstance(node, ast.Return | ast.Assign) else None
    targets = [short(t) for t in node.targets] if isinstance(node, ast.Assign) else []
    own = " ".join((*targets, short(value, 2000)))
    return mentioned(" ".join((own, *piece.around, piece.function.name)))


def certain(value: Any) -> bool:
    return value is not UNKNOWN and not isinstance(value, Raises)
