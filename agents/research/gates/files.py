"""The Python files of one project: found, bounded, and read as text; parsed only where somebody asks."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agents.research.gates.bindings import Bound, Function, collected, settled
from agents.research.gates.evaluate import UNKNOWN, Evaluator
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
    are parsed: whole files took three times as long (AITER, 3.6 MB: 4.6 s, 2-core x86 machine, 2026-11-30). Of a branch
    that `arch` surely does not take, nothing is there; of one that it may take, `unsure` has the names."""

    file: str
    rows: list[str]
    blocks: list[Block]
    arch: str = ""  # "": of no card, and no question about one is answered
    flags: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)  # module-level NAME = expression, line
    functions: dict[str, list[Function]] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # functions that may be another one, or imported, on this card
    problem: str = ""  # a block that Python cannot parse
    _bound: dict[str, list[Bound]] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)  # names whose bindings were looked for

    def line(self, number: int) -> str:
        return self.rows[number - 1].strip() if 0 < number <= len(self.rows) else ""

    def parse(self, wanted: re.Pattern[str], also: Callable[[str], bool] = bool) -> None:
        """Adds flags and functions of all blocks that hold `wanted` and of whose text `also` is true."""
        for block in self.blocks:
            if not block.parsed and wanted.search(block.text) and also(block.text):
                self._parse(block)

    def _parse(self, block: Block) -> None:
        block.parsed = True
        try:
            tree = ast.parse("\n" * (block.start - 1) + block.text)  # so that line numbers are the file's
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or block.start
            self.problem = f"{self.file}:{line}: Python cannot parse this part; not looked at"
            return
        changed: dict[str, bool] = {}
        for name, bound in collected(tree.body, self._truth):
            self._bound.setdefault(name, []).append(bound)
            changed[name] = changed.get(name, False) or bool(bound.doubts)
        for name, doubtful in changed.items():
            if doubtful:  # what else it may be
                self._look_for(name)
            self._settle(name)

    def _settle(self, name: str) -> None:
        held = settled(self._bound[name])
        self.flags.pop(name, None)
        self.functions.pop(name, None)
        if held.flag:
            self.flags[name] = held.flag
        if held.functions:
            self.functions[name] = held.functions
        (self.unsure.add if held.unsure else self.unsure.discard)(name)

    def _truth(self, test: ast.expr) -> bool | None:
        """Of a question at module level; None: both ways are possible."""
        return Evaluator(self.arch, self._own).truth(test) if self.arch else None

    def _own(self, name: str) -> object:
        """A flag of this module, wherever it is bound."""
        self._look_for(name)
        held = self.flags.get(name)
        return Evaluator(self.arch, self._own).value(held[0]) if held else UNKNOWN

    def _look_for(self, name: str) -> None:
        if name in self._asked:
            return
        self._asked.add(name)
        begins = re.compile(rf"{re.escape(name)}\b[^=\n]*=(?!=)")
        for block in self.blocks:
            if not block.parsed and begins.match(block.text):
                self._parse(block)


@dataclass
class Block:
    """One top-level statement: its first line's number and its text."""

    start: int
    text: str
    parsed: bool = False


@dataclass
class Files:
    """`texts`: relative path -> content as it is on disk. `warnings`: one line for what was left out."""

    root: Path
    texts: dict[str, bytes] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    arch: str = ""  # whose branches are followed; "": all
    _modules: dict[str, Module] = field(default_factory=dict)

    def module(self, file: str) -> Module:
        if file not in self._modules:
            text = self.texts[file].decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
            rows = text.split("\n")
            self._modules[file] = Module(file, rows, _blocks(rows), self.arch)
        return self._modules[file]

    def problems(self) -> list[str]:
        return self.warnings + [m.problem for m in self._modules.values() if m.problem]


def read_files(root: Path, arch: str = "") -> Files:
    """All .py files under `root`, and the kernel benchmarks that a checkout has beside it; tests left out, links to
    folders not followed. `arch`: only code that this card may reach counts. Never raises for what it finds."""
    found, total, todo = Files(root, arch=arch), 0, [(str(root), 0)]
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
