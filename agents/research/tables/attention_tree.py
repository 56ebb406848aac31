"""What an AITER tree and a vLLM tree hold of unified attention: the table or the function that picks tiles, the
variable that admits opt-in entries, and the engine's back ends that call the kernel. Read as text; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.research.tables.attention import OPT_IN
from agents.research.tables.attention_source import find_function
from agents.research.tables.reading import read_json, read_text, relative

CONFIGS = "ops/triton/configs/{arch}/{backend}/attention/unified_attention"
LOADER = "ops/triton/utils/unified_attention_utils.py"
SOURCES = ("ops/triton/attention/unified_attention.py", "ops/triton/unified_attention.py")  # newer, older
OPT_IN_VARIABLE = "AITER_TRITON_UA_FAST_PATH"  # where the loader cannot be read; ROCm/aiter, autumn 2026
MAX_BACKENDS = 200  # files of vLLM's back ends that are looked into; 0.33.0 has 31


@dataclass(frozen=True)
class AttentionTree:
    """Paths are relative to the tree's parent. `problem`: why the table cannot be used, "" if it can or is absent."""

    table_path: str
    table: Any = None
    problem: str = ""
    loader: str = ""  # path of the code that reads the table, "" in older trees
    variable: str = OPT_IN_VARIABLE
    variable_source: str = ""
    gluon_path: str = ""  # a second table, for kernels that are not Triton's
    special: tuple[str, ...] = ()  # tables of single shapes beside the default one
    function: ast.FunctionDef | None = None
    function_path: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def opt_in_sections(self) -> tuple[str, ...]:
        return tuple(n for n in self.table if n.endswith(OPT_IN)) if isinstance(self.table, dict) else ()


def read_tree(aiter: Path, arch: str) -> AttentionTree:
    folder = aiter / CONFIGS.format(arch=arch, backend="triton")
    gluon = aiter / CONFIGS.format(arch=arch, backend="gluon") / "DEFAULT.json"
    table, problem = read_json(folder / "DEFAULT.json")
    loader, loader_problem = read_text(aiter / LOADER)
    variable, line = _opt_in_variable(loader or "")
    function, function_path, function_problem = _function(aiter)
    return AttentionTree(
        table_path=relative(folder / "DEFAULT.json", aiter),
        table=table,
        problem=problem,
        loader=relative(aiter / LOADER, aiter) if loader is not None else "",
        variable=variable,
        variable_source=f"{relative(aiter / LOADER, aiter)}:{line}" if line else "",
        gluon_path=relative(gluon, aiter) if _there(gluon) else "",
        special=_special(folder),
        function=function,
        function_path=function_path,
        warnings=tuple(
            f"{relative(aiter / path, aiter)} {words}"
            for path, words in ((LOADER, loader_problem), (function_path or SOURCES[0], function_problem))
            if words
        ),
    )


def _there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _special(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(p.name for p in folder.glob("UNIFIED-ATTENTION-D=*.json")))[:20]
    except OSError:
        return ()


def _function(aiter: Path) -> tuple[ast.FunctionDef | None, str, str]:
    for path in SOURCES:
        text, problem = read_text(aiter / path)
        if text is None and not problem:
            continue
        where = relative(aiter / path, aiter)
        return (find_function(text) if text else None), where, problem
    return None, "", ""


def _opt_in_variable(loader: str) -> tuple[str, int]:
    """The environment variable that admits opt-in entries, and the line that reads it; line 0 where none does."""
    try:
        tree = ast.parse(loader)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return OPT_IN_VARIABLE, 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "OPT_IN" in ast.unparse(node.targets[0]):
            for inner in ast.walk(node.value):
                name = inner.value if isinstance(inner, ast.Constant) else None
                if isinstance(name, str) and re.fullmatch(r"AITER_[A-Z0-9_]+", name):
                    return name, node.lineno
    return OPT_IN_VARIABLE, 0


@dataclass(frozen=True)
class KernelUser:
    """A back end of the engine that calls the kernel. `whole`: for prompts too (one that also has the variable-length
    kernels keeps this one for decode). `fp8_query`: it takes the query in fp8 where the KV cache is fp8."""

    name: str
    source: str  # file:line of the import
    whole: bool
    fp8_query: bool
    fp8_source: str = ""


def kernel_users(vllm: Path, arch: str) -> list[KernelUser]:
    """In the order of their files; [] where the tree has none or cannot be read."""
    users: list[KernelUser] = []
    try:
        paths = sorted((vllm / "v1" / "attention" / "backends").glob("*.py"))[:MAX_BACKENDS]
    except OSError:
        return []
    names = _flag_names(vllm)
    for path in paths:
        text, _ = read_text(path)
        imported = re.search(r"^\s*from aiter\.ops\.triton\S*unified_attention import", text or "", re.MULTILINE)
        name = names.get(path.stem)
        if text is None or imported is None or name is None:
            continue
        where = relative(path, vllm)
        quant = re.search(r"supports_quant_query_input\s*(?::\s*bool\s*)?=\s*(?P<value>[^\n]+)", text)
        # "not on_gfx11()" is the form seen (0.32.0, 0.33.0): true on every arch but the one that it names.
        excluded = re.findall(r"not on_(gfx\w+)\(\)", quant["value"]) if quant else []
        yes = quant is not None and "False" not in quant["value"] and not any(arch.startswith(e) for e in excluded)
        users.append(
            KernelUser(
                name=name,
                source=f"{where}:{_line(text, imported.end())}",
                whole="varlen" not in text,
                fp8_query=yes,
                fp8_source=f"{where}:{_line(text, quant.start('value'))}" if quant else where,
            )
        )
    return users


def _flag_names(vllm: Path) -> dict[str, str]:
    """Module of a back end -> its name on the command line, from the registry's list of class paths."""
    text, _ = read_text(vllm / "v1" / "attention" / "backends" / "registry.py")
    found = re.findall(r"(\w+)\s*=\s*\(?\s*[\"']vllm\.v1\.attention\.backends\.(\w+)\.", text or "")
    return {module: name for name, module in reversed(found)}


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
