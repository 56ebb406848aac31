"""Which attention back ends a vLLM has, and which can serve a layer. In which order its platform tries them is
attention_order.py's.

Read from two places of the source tree, as syntax trees: the registry's enum (name -> class path), and each class's own
statements of what it supports.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.research.regular_file import read_regular
from agents.research.three_valued import UNKNOWN, truth, worked_out
from contracts import Frozen

REGISTRY = "v1/attention/backends/registry.py"
OLD_REGISTRY = "attention/backends/registry.py"  # up to vLLM 0.12, of the same form
PLATFORM = "platforms/rocm.py"
PLATFORMS = {"amd": PLATFORM, "nvidia": "platforms/cuda.py", "cpu": "platforms/cpu.py"}  # by Card.kind
ENUM = "AttentionBackendEnum"
MOST_BYTES = 2_000_000  # of one source file: the largest of vLLM 0.33.0's here has 90 kB
MOST_BASES = 4  # classes up from a back end's own
FOREIGN = ("aiter", "flash_attn", "flashinfer", "flydsl")  # packages that a back end may import
AITER_FROM = 3  # CDNA generation from which vLLM uses AITER (get_cdna_version() > 2)


class BackendsError(ValueError):
    """The tree has no registry, or it cannot be read. One line."""


class Backend(Frozen):
    """One entry of the registry. `where` is relative to the folder that holds vllm."""

    name: str
    path: str  # class path; "" where somebody has to register one first
    where: str  # vllm/v1/attention/backends/registry.py:40


class Reading(Frozen):
    """What one class says of itself, as far as it can be worked out. None: not known."""

    file: str  # vllm/v1/attention/backends/rocm_attn.py, "" where it is not in the tree
    head_sizes: dict[int, bool | None]
    kv_dtypes: tuple[str, ...] | None
    dtypes: tuple[str, ...] | None = None  # "float16": of the model's activations
    blocks: tuple[int, ...] | None = None  # tokens of a block: a multiple of one of these
    window: bool | None  # does it take a sliding window?
    arch: bool | None  # supports_compute_capability and supports_combination on this card
    arch_words: str  # the condition that they name, "" where they name none
    imports: tuple[str, ...]  # of FOREIGN


def tree_of(path: str) -> ast.Module | None:
    """None where the file is not there, too large, or not Python."""
    try:
        now = Path(path).stat()
        return _parsed(path, now.st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=256)
def _parsed(path: str, _changed: int) -> ast.Module:
    """Parsed once for each state of the file."""
    return ast.parse(read_regular(path, MOST_BYTES))


def registered(package: Path) -> list[Backend]:
    """`package` is a folder named vllm. Raises BackendsError."""
    place = registry(package)
    tree = tree_of(str(package / place))
    if tree is None:
        raise BackendsError(f"{place} is not there or cannot be parsed")
    found = []
    for node in tree.body:
        if not (isinstance(node, ast.ClassDef) and node.name == ENUM):
            continue
        for item in node.body:
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                value = worked_out(item.value, {})
                path = value if isinstance(value, str) else ""
                where = f"vllm/{place}:{item.lineno}"
                found.append(Backend(name=item.targets[0].id, path=path, where=where))
    if not found:
        raise BackendsError(f"{place} has no class {ENUM}")
    return found


def registry(package: Path) -> str:
    """Where this vLLM keeps the enum, relative to its folder."""
    return OLD_REGISTRY if not (package / REGISTRY).is_file() and (package / OLD_REGISTRY).is_file() else REGISTRY


def generations(package: Path) -> dict[str, int]:
    """arch -> CDNA generation, from get_cdna_version(); an arch that it does not name is generation 0."""
    function = function_named(tree_of(str(package / PLATFORM)), "get_cdna_version")
    found = {}
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.If) and isinstance(node.test, ast.Call) and isinstance(node.body[0], ast.Return):
            asked, number = ast.unparse(node.test), node.body[0].value
            if asked.startswith("on_gfx") and isinstance(number, ast.Constant) and isinstance(number.value, int):
                found[asked.removeprefix("on_").removesuffix("()")] = number.value
    return found or {"gfx90a": 2, "gfx942": 3, "gfx950": 4}


def calls_aiter(package: Path, arch: str) -> bool:
    """Does the vLLM in `package` use AITER's kernels on this card at all?"""
    return generations(package).get(arch, 0) >= AITER_FROM


def aiter_may_serve(vllm: str, arch: str) -> bool:
    """May an AITER tree matter on this AMD card? `vllm` is a folder named vllm, "" where none is known. On RDNA cards
    newer versions take a part of it."""
    return arch.startswith("gfx1") or calls_aiter(Path(vllm or os.devnull), arch)


def arch_facts(arch: str, generation: int, aiter: bool | None) -> dict[str, Any]:
    """What the source's questions about the card answer on it. `aiter`: is it installed; None: not known."""
    rdna = arch.startswith("gfx1") and generation == 0
    names = ("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1250")
    usable: Any = False if generation < AITER_FROM or rdna else (UNKNOWN if aiter is None else aiter)
    return {
        **{f"on_{name}()": arch == name for name in names},
        "get_cdna_version()": generation,
        "get_rdna_version()": UNKNOWN if rdna else 0,
        "on_gfx9()": arch in ("gfx90a", "gfx942", "gfx950"),
        "on_mi3xx()": arch in ("gfx942", "gfx950"),
        "on_cdna()": arch.startswith("gfx9") or arch == "gfx1250",
        "on_gfx1x()": rdna,
        "on_gfx12x()": rdna and arch.startswith("gfx12"),
        "is_rdna()": rdna,
        "current_platform.is_rocm()": True,
        "current_platform.is_cuda()": False,
        "is_aiter_found_and_supported()": usable,
        "rocm_aiter_ops.is_rdna_aiter_enabled()": UNKNOWN if rdna else False,
    }


def cuda_facts(arch: str) -> dict[str, Any]:
    """The same for an NVIDIA card, "sm_90": capabilities are pairs, as the source compares them."""
    digits = arch.removeprefix("sm_")
    major, minor = (int(digits[:-1]), int(digits[-1])) if digits.isdigit() and len(digits) > 1 else (0, 0)
    pairs = {f"DeviceCapability({a}, {b})": (a, b) for a in range(5, 16) for b in range(10)}
    known = {"capability": (major, minor), "device_capability": (major, minor)}
    parts = {f"{name}.{part}": n for name in known for part, n in (("major", major), ("minor", minor))}
    return {
        **pairs,
        **(known | parts if major else {}),
        "get_cdna_version()": 0,
        "current_platform.is_rocm()": False,
        "current_platform.is_cuda()": True,
        "current_platform.is_xpu()": False,
        "use_non_causal": False,
    }


def reading(package: Path, backend: Backend, head_sizes: tuple[int, ...], facts: Mapping[str, Any]) -> Reading:
    """What the class says, its bases included."""
    module, _, name = backend.path.rpartition(".")
    line = _lineage(package, module, name)
    if not line:
        unknown = dict.fromkeys(head_sizes)
        return Reading(file="", head_sizes=unknown, kv_dtypes=None, window=None, arch=None, arch_words="", imports=())
    slides = _returned(_method(line, "supports_sliding_window", with_root=True))
    on_card, words = _on_this_card(line, facts)
    return Reading(
        file=_file(module),
        head_sizes={size: _takes_head(line, size, facts) for size in head_sizes},
        kv_dtypes=_listed(line, "supported_kv_cache_dtypes"),
        dtypes=_listed(line, "supported_dtypes"),
        blocks=_blocks(line),
        window=truth(slides, facts) if slides is not None else None,
        arch=on_card,
        arch_words=words,
        imports=_imports(package, module),
    )


def _file(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _lineage(package: Path, module: str, name: str, depth: int = 0) -> list[ast.ClassDef]:
    """The class and its bases as far as they stand in the tree, nearest first."""
    tree = tree_of(str(package.parent / _file(module))) if module.startswith("vllm.") else None
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None) if tree else None
    if tree is None or node is None:
        return []
    found = [node]
    for base in node.bases if depth < MOST_BASES else ():
        wanted = ast.unparse(base)
        home = next(
            (n.module for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names if a.name == wanted), None
        )
        found += _lineage(package, home or module, wanted, depth + 1)
    return found


def _method(line: list[ast.ClassDef], name: str, with_root: bool = False) -> ast.FunctionDef | None:
    """The nearest. Of heads and cards the root class allows all in its own way, which need not be read."""
    for node in line:
        for item in node.body if with_root or node.name != "AttentionBackend" else ():
            if isinstance(item, ast.FunctionDef) and item.name == name:
                return item
    return None


def _returned(function: ast.FunctionDef | None) -> ast.expr | None:
    """The expression of the one return statement that a function has."""
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)] if function else []
    return returns[0].value if len(returns) == 1 else None


def _takes_head(line: list[ast.ClassDef], size: int, facts: Mapping[str, Any]) -> bool | None:
    own = _method(line, "supports_head_size")
    if own is not None:
        said = _returned(own)
        return truth(said, {**facts, "head_size": size}) if said is not None else None
    listed = _method(line, "get_supported_head_sizes")
    if listed is None:
        return True
    said = _returned(listed)
    sizes = worked_out(said, facts) if said is not None else UNKNOWN
    return (not sizes or size in sizes) if isinstance(sizes, tuple) else None


def _listed(line: list[ast.ClassDef], name: str) -> tuple[str, ...] | None:
    """A list of the class, its members as text: "fp8", "float16" for torch.float16."""
    for node in line:
        for item in node.body:
            if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == name):
                continue
            if not isinstance(item.value, ast.List | ast.Tuple):
                return None
            held = [e.value if isinstance(e, ast.Constant) else ast.unparse(e) for e in item.value.elts]
            return tuple(str(word).removeprefix("torch.") for word in held)
    return None


def _blocks(line: list[ast.ClassDef]) -> tuple[int, ...] | None:
    """[16, 32], [MultipleOf(16)]. The platform splits a block that is a multiple of one of them."""
    said = _returned(_method(line, "get_supported_kernel_block_sizes"))
    found = []
    for node in said.elts if isinstance(said, ast.List) else ():
        inner = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else node
        if not (isinstance(inner, ast.Constant) and isinstance(inner.value, int)):
            return None
        found.append(inner.value)
    return tuple(found) or None


def _on_this_card(line: list[ast.ClassDef], facts: Mapping[str, Any]) -> tuple[bool | None, str]:
    """(does it say that it runs here, the condition). No statement is a yes."""
    said = _returned(_method(line, "supports_compute_capability"))
    holds, words = (True, "") if said is None else (truth(said, facts), ast.unparse(said))
    refuses = _method(line, "supports_combination")
    for node in refuses.body if refuses else ():
        inner = node.body[0] if isinstance(node, ast.If) else None
        if isinstance(node, ast.If) and isinstance(inner, ast.Return) and truth(node.test, facts):
            return False, ast.unparse(inner.value or node.test)
    return holds, "" if words == "True" else words


def _imports(package: Path, module: str) -> tuple[str, ...]:
    tree = tree_of(str(package.parent / _file(module)))
    seen = set()
    for node in ast.walk(tree) if tree else ():
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        seen |= {name.split(".")[0] for name in names}
    return tuple(name for name in FOREIGN if name in seen)


def function_named(tree: ast.Module | None, name: str) -> ast.FunctionDef | None:
    return next(_functions(tree, name), None) if tree else None


def _functions(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    return (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
