"""The rows of AITER's A16W16 GEMM table that a model's shapes reach, as compile jobs.

The lookup is AITER's: a file of the card's arch (or of the name that the tree's own arch_info.py gives it), one for the
very N and K before the default one; in it the first M_LEQ_x that M does not exceed, then M_GEQ_x downwards, then `any`.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from agents.research.compile.evidence import Job
from agents.research.compile.extract import Kernel, extract
from agents.research.compile.modules import Sources
from agents.research.regular_file import read_regular
from contracts import Frozen

KERNEL = "_gemm_a16_w16_kernel"
FILE = "gemm_a16w16.py"
CONFIG = "GEMM-A16W16"
OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
MAX_TABLE_BYTES = 1 << 20  # the largest of AITER's GEMM tables has under 20 KB


class Row(Frozen):
    """One entry of a table and the product that reaches it."""

    source: str  # "aiter/ops/triton/configs/gemm/gfx950-GEMM-A16W16.json#M_LEQ_64"
    key: str
    entry: dict[str, Any]
    m: int
    n: int
    k: int


def find_kernel(sources: Sources) -> Kernel | None:
    for path in sorted((sources.root / "ops" / "triton").rglob(FILE)):
        module = sources.module(path)
        if module is not None and KERNEL in module.functions:
            return extract(sources, module, KERNEL)
    return None


def device_names(sources: Sources, arch: str) -> list[str]:
    """How the tree's files call an arch: itself, and what a dictionary of arch_info.py says of it."""
    names = [arch]
    for path in sorted((sources.root / "ops" / "triton" / "utils").rglob("arch_info.py")):
        module = sources.module(path)
        for node in module.values.values() if module else ():
            try:
                table = ast.literal_eval(node.value) if node.value is not None else None
            except ValueError:
                continue
            if isinstance(table, dict) and isinstance(table.get(arch), str):
                names.append(table[arch])
    return names


def table_for(sources: Sources, arch: str, n: int, k: int) -> tuple[str, dict[str, Any]] | None:
    """(where, table) that a product of N and K uses. None where the arch has no table, or one that cannot be read."""
    configs = sources.root / "ops" / "triton" / "configs"
    nested = configs / arch / "triton" / "gemm" / CONFIG.lower().replace("-", "_")
    found: Path | None = None
    if (nested / "DEFAULT.json").is_file():
        special = nested / f"{CONFIG}-N={n}-K={k}.json"
        found = special if special.is_file() else nested / "DEFAULT.json"
    for name in device_names(sources, arch) if found is None else ():
        default = configs / "gemm" / f"{name}-{CONFIG}.json"
        if default.is_file():
            special = configs / "gemm" / f"{name}-{CONFIG}-N={n}-K={k}.json"
            found = special if special.is_file() else default
            break
    if found is None:
        return None
    try:
        table = json.loads(read_regular(found, MAX_TABLE_BYTES))
    except (OSError, ValueError) as error:
        sources.broken.append(f"{sources.where(found)} cannot be read: {str(error)[:100]}")
        return None
    rows = {key: value for key, value in table.items() if isinstance(value, dict)} if isinstance(table, dict) else {}
    return (sources.where(found), rows) if rows else None


def reached(where: str, table: dict[str, Any], n: int, k: int, most_tokens: int) -> list[Row]:
    """The rows that some M from 1 to `most_tokens` falls on, each with the largest such M."""
    found = []
    below = 0
    bounds = sorted((int(b.group(1)), key) for key in table if (b := re.fullmatch(r"M_LEQ_(\d+)", key)))
    for bound, key in bounds:
        if below < most_tokens:
            found.append((key, min(bound, most_tokens)))
        below = bound
    lower = sorted(((int(b.group(1)), key) for key in table if (b := re.fullmatch(r"M_GEQ_(\d+)", key))), reverse=True)
    top = most_tokens
    for bound, key in lower:
        if top > below and top >= bound:
            found.append((key, top))
            top = bound - 1
    if "any" in table and top > below:
        found.append(("any", top))
    return [Row(source=f"{where}#{key}", key=key, entry=table[key], m=m, n=n, k=k) for key, m in found]


def job(kernel: Kernel, row: Row, arch: str, dtype: str, entry: dict[str, Any] | None = None) -> Job:
    """The compile that a launch with this row would cause: x[M, K] row-major, w[N, K] transposed, no bias, no
    activation. `entry` in place of the row's own tries an alternative."""
    held = dict(row.entry if entry is None else entry)
    options = {name: held.pop(name) for name in OPTIONS if name in held}
    held.setdefault("NUM_KSPLIT", 1)
    held.setdefault("cache_modifier", None)
    splits = max(1, int(held["NUM_KSPLIT"]))
    held["SPLITK_BLOCK_SIZE"] = -(-row.k // splits)
    block = int(held.get("BLOCK_SIZE_K", 0))
    if block > held["SPLITK_BLOCK_SIZE"]:  # AITER halves it then; the largest power of two that fits
        held["BLOCK_SIZE_K"] = max(16, 1 << (held["SPLITK_BLOCK_SIZE"].bit_length() - 1))
    values: dict[str, Any] = {
        "a_ptr": {"pointer": dtype},
        "b_ptr": {"pointer": dtype},
        "bias_ptr": None,
        "c_ptr": {"pointer": dtype if splits == 1 else "float32"},
        **{"M": row.m, "N": row.n, "K": row.k, "stride_am": row.k, "stride_ak": 1, "stride_bk": 1, "stride_bn": row.k},
        **{"stride_ck": 0 if splits == 1 else row.m * row.n, "stride_cm": row.n, "stride_cn": 1},
        **{"activation": "", "use_activation": False, "ADD_BIAS": False, "SKIP_REDUCE": False},
    }
    launch = {name: values[name] for name in kernel.parameters if name in values} | held
    return Job(
        kind="compile",
        source=kernel.text,
        kernel=kernel.name,
        arch=arch,
        launches=(launch,),
        heuristics=kernel.heuristics,
        options=options,
    )


def smaller(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What holds less in LDS: one stage fewer, half the K block, both."""
    found = []
    stages, block = int(entry.get("num_stages", 2)), int(entry.get("BLOCK_SIZE_K", 0))
    if block >= 32:
        found.append({**entry, "BLOCK_SIZE_K": block // 2})
    if stages > 1:
        found.append({**entry, "num_stages": stages - 1})
    if block >= 32 and stages > 1:
        found.append({**entry, "BLOCK_SIZE_K": block // 2, "num_stages": stages - 1})
    return found


def vllm_routes(sources: Sources) -> tuple[str, set[tuple[int, int]]] | None:
    """(file:line, shapes as (N, K)) of use_aiter_triton_gemm: the products `(m == 5120 and k == 2880) or ...` that
    vLLM gives to AITER's Triton GEMM on gfx950. vLLM's m is AITER's N. None where this vLLM has no such function."""
    path = sources.root / "model_executor" / "layers" / "utils.py"
    module = sources.module(path) if path.is_file() else None
    node = module.functions.get("use_aiter_triton_gemm") if module else None
    if module is None or node is None:
        return None
    shapes = set()
    for both in ast.walk(node):
        if isinstance(both, ast.BoolOp) and isinstance(both.op, ast.And):
            held = {
                test.left.id: test.comparators[0].value
                for test in both.values
                if isinstance(test, ast.Compare)
                and isinstance(test.left, ast.Name)
                and isinstance(test.ops[0], ast.Eq)
                and isinstance(test.comparators[0], ast.Constant)
            }
            if isinstance(held.get("m"), int) and isinstance(held.get("k"), int):
                shapes.add((int(str(held["m"])), int(str(held["k"]))))
    return f"{module.where}:{node.lineno}", shapes
