"""The Python files of a tree as syntax trees, and which file defines a name that another imports. Nothing is imported
or run; a file that cannot be read or parsed is left out and named in `broken`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agents.research.regular_file import read_regular
from agents.research.walk import python_files

MAX_BYTES = 2 << 20  # the largest Triton file of vLLM 0.33.0 and AITER has under 300 KB
MAX_FILES = 4000  # vLLM 0.33.0 has about 2,200 Python files, AITER's Triton folder 324
MAX_HOPS = 5  # of one name through re-exports


@dataclass(frozen=True)
class Imported:
    module: str  # "aiter.ops.triton.utils", "" for `from . import x`
    name: str | None  # None: `import module`
    level: int


@dataclass
class Module:
    """One file. Names at module level, those under `if` and `try` included; a name given twice is in `doubtful`."""

    path: Path
    where: str  # relative to the tree's parent
    text: str
    tree: ast.Module
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    values: dict[str, ast.Assign | ast.AnnAssign] = field(default_factory=dict)
    imports: dict[str, Imported] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)


@dataclass
class Sources:
    """A package's files. `root` is its folder, named as the package is."""

    root: Path
    broken: list[str] = field(default_factory=list)
    _modules: dict[Path, Module | None] = field(default_factory=dict)

    def module(self, path: Path) -> Module | None:
        if path not in self._modules:
            self._modules[path] = self._parse(path)
        return self._modules[path]

    def files(self, word: bytes) -> Iterator[tuple[Path, bytes]]:
        """Python files that hold `word`, and their text, sorted; links to folders are not followed."""
        for count, path in enumerate(map(Path, python_files(self.root))):
            if count >= MAX_FILES:
                self.broken.append(f"more than {MAX_FILES} Python files: the rest was not read")
                return
            raw = self._bytes(path)
            if raw is not None and word in raw:
                yield path, raw

    def where(self, path: Path) -> str:
        return path.relative_to(self.root.parent).as_posix()

    def find(self, module: Module, name: str) -> tuple[Module, str] | None:
        """(file, name there) of what `name` is in `module`, through imports within this tree. None: from elsewhere."""
        here: Module | None = module
        for _ in range(MAX_HOPS):
            if here is None:
                return None
            if name in here.functions or name in here.values:
                return here, name
            imported = here.imports.get(name)
            if imported is None or imported.name is None:
                return None
            here, name = self._file_of(here, imported), imported.name
        return None

    def _file_of(self, module: Module, imported: Imported) -> Module | None:
        parts = imported.module.split(".") if imported.module else []
        if imported.level:
            base = module.path.parent
            for _ in range(imported.level - 1):
                base = base.parent
        elif parts and parts[0] == self.root.name:
            base, parts = self.root, parts[1:]
        else:
            return None
        target = base.joinpath(*parts)
        for path in (target.with_suffix(".py"), target / "__init__.py"):
            if path.is_relative_to(self.root) and path.is_file():
                return self.module(path)
        return None

    def _bytes(self, path: Path) -> bytes | None:
        try:
            return read_regular(path, MAX_BYTES)
        except OSError as error:
            self.broken.append(f"{self.where(path)} cannot be read: {error.strerror or error}")
            return None

    def _parse(self, path: Path) -> Module | None:
        raw = self._bytes(path)
        if raw is None:
            return None
        try:
            text = raw.decode("utf-8")
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.broken.append(f"{self.where(path)} cannot be parsed: {str(error)[:100]}")
            return None
        module = Module(path, self.where(path), text, tree)
        _index(module, tree.body)
        return module


def _index(module: Module, body: list[ast.stmt]) -> None:
    for node in body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef):
            names = [node.name]
            module.functions.setdefault(node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [t.id for t in targets if isinstance(t, ast.Name)]
            for name in names:
                module.values.setdefault(name, node)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module.imports.setdefault(
                    alias.asname or alias.name, Imported(node.module or "", alias.name, node.level)
                )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                module.imports.setdefault(alias.asname or alias.name.split(".")[0], Imported(alias.name, None, 0))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                _index(module, getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                _index(module, handler.body)
        seen = {*module.functions} & {*names} and any(
            isinstance(node, ast.FunctionDef) and module.functions[n] is not node or n in module.values
            for n in names
            if n in module.functions
        )
        if seen or any(n in module.values and module.values[n] is not node for n in names):
            module.doubtful.update(names)
