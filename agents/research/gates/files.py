"""The Python files of one project: found, bounded, and read as text; parsed only where somebody asks."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agents.research.regular_file import read_regular

MOST_FILES = 20_000  # vLLM 0.33.0 has 3,004, AITER 579
MOST_BYTES = 2 * 1024 * 1024  # of one file; the largest of vLLM 0.33.0 has 240 KB
MOST_BYTES_ALL = 256 * 1024 * 1024  # vLLM 0.33.0 has 45 MB
MOST_LEVELS = 16
LEFT_OUT = {"tests", "test", "op_tests", "op_benchmarks", "3rdparty", "third_party", "__pycache__", "node_modules"}
# Files that only ever run on another vendor's cards, by a part of their path.
OTHER_CARDS = re.compile(
    r"(^|[/_.])(cuda|nvidia|xpu|tpu|cpu|neuron|gaudi|hpu|cutlass|flashinfer|trtllm|flashmla|sm\d+|b12x|cutedsl|marlin"
    r"|deep_?gemm|machete|tokenspeed|hpc_attn|oink|humming|cute_dsl)([/_.]|$)"
)


@dataclass
class Module:
    """`file` is relative to the tree's parent: "vllm/platforms/rocm.py". Only the top-level blocks that somebody wants
    are parsed: whole files took three times as long (AITER, 3.6 MB: 4.6 s, 2-core x86 machine, 2026-11-30)."""

    file: str
    rows: list[str]
    blocks: list[Block]
    flags: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)  # module-level NAME = expression, line
    functions: dict[str, list[Function]] = field(default_factory=dict)
    problem: str = ""  # a block that Python cannot parse

    def line(self, number: int) -> str:
        return self.rows[number - 1].strip() if 0 < number <= len(self.rows) else ""

    def parse(self, wanted: re.Pattern[str], also: Callable[[str], bool] = bool) -> None:
        """Adds flags and functions of all blocks that hold `wanted` and of whose text `also` is true."""
        for block in self.blocks:
            if not block.parsed and wanted.search(block.text) and also(block.text):
                block.parsed = True
                try:
                    tree = ast.parse("\n" * (block.start - 1) + block.text)  # so that line numbers are the file's
                except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                    line = getattr(error, "lineno", None) or block.start
                    self.problem = f"{self.file}:{line}: Python cannot parse this part; not looked at"
                    continue
                _collect(self, tree.body, "")


@dataclass
class Block:
    """One top-level statement: its first line's number and its text."""

    start: int
    text: str
    parsed: bool = False


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


@dataclass
class Files:
    """`texts`: relative path -> content as it is on disk. `warnings`: one line for what was left out."""

    root: Path
    texts: dict[str, bytes] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _modules: dict[str, Module] = field(default_factory=dict)

    def module(self, file: str) -> Module:
        if file not in self._modules:
            text = self.texts[file].decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
            rows = text.split("\n")
            self._modules[file] = Module(file, rows, _blocks(rows))
        return self._modules[file]

    def problems(self) -> list[str]:
        return self.warnings + [m.problem for m in self._modules.values() if m.problem]


def read_files(root: Path) -> Files:
    """All .py files under `root`, and the kernel benchmarks that a checkout has beside it; tests left out, links to
    folders not followed. Never raises for what it finds."""
    found, total, todo = Files(root), 0, [(str(root), 0)]
    if (root.parent / "CMakeLists.txt").is_file() and (root.parent / "benchmarks" / "kernels").is_dir():
        todo.append((str(root.parent / "benchmarks" / "kernels"), 0))
    while todo:
        folder, level = todo.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda e: e.name)
        except OSError as error:
            found.warnings.append(f"{_relative(folder, root)}: cannot be listed ({error.strerror})")
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in LEFT_OUT and not entry.name.startswith(".") and level < MOST_LEVELS:
                    todo.append((entry.path, level + 1))
            elif entry.name.endswith(".py") and not entry.name.startswith("test_"):
                if len(found.texts) >= MOST_FILES or total >= MOST_BYTES_ALL:
                    limit = f"{MOST_FILES} files or {MOST_BYTES_ALL >> 20} MiB"
                    found.warnings.append(f"{root.name}: more than {limit}; the rest is not looked at")
                    return found
                raw = _read(entry.path, root, found)
                if raw is not None:
                    total += len(raw)
                    found.texts[_relative(entry.path, root)] = raw
    return found


def _read(path: str, root: Path, found: Files) -> bytes | None:
    if not os.path.isfile(path):  # a pipe, a device, a link to nowhere
        return None
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        found.warnings.append(f"{_relative(path, root)}: cannot be read ({error.strerror})")
        return None


def _relative(path: str, root: Path) -> str:
    return os.path.relpath(path, root.parent).replace(os.sep, "/")


def _collect(module: Module, body: list[ast.stmt], owner: str) -> None:
    """Module-level names and all functions, those of classes and under `if` and `try` included."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            _collect(module, [*node.body, *node.orelse], owner)
        elif isinstance(node, ast.ClassDef):
            _collect(module, node.body, node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            module.functions.setdefault(node.name, []).append(Function(node.name, owner, node, *mentions(node)))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            module.flags.setdefault(node.targets[0].id, (node.value, node.lineno))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            module.flags.setdefault(node.target.id, (node.value, node.lineno))


# A line that begins a top-level statement: a name or a decorator in column 0, unless it goes on with one before it.
_BEGINS = re.compile(r"(?!else\b|elif\b|except\b|finally\b)[A-Za-z_@]")
_QUOTES = re.compile(r"\"\"\"|'''")


def _blocks(rows: list[str]) -> list[Block]:
    """The file cut before each top-level statement; text in triple quotes is never cut."""
    starts, quoted, decorated = [0], "", False
    for number, row in enumerate(rows):
        if not quoted and _BEGINS.match(row):
            if not decorated:
                starts.append(number)
            decorated = row.startswith("@") or (decorated and not row.startswith(("def ", "class ", "async ")))
        if '"""' in row or "'''" in row:
            for mark in _QUOTES.findall(row):
                quoted = "" if quoted == mark else quoted or mark
    ends = [*starts[1:], len(rows)]
    return [Block(a + 1, "\n".join(rows[a:b]) + "\n") for a, b in zip(starts, ends, strict=True) if b > a]


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
