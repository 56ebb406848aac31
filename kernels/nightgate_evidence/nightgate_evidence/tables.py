"""The lookups of tuned tables that are watched, by module, and how their answers are told.

Read in vLLM 0.30.0 to 0.33.0, the wheel amd-aiter 0.1.7, and ROCm/aiter e4048607 and 010d7018. vLLM's were run here;
AITER's were never run on an AMD card. A name that an installed version does not have is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import rows
from .hooks import after_import, after_import_below
from .say import line, plain
from .watch import outside, wrap

MOST_LINES = 400  # of one table in one process
MOST_OF_ROW = 12  # questions that one row answered: a table must not be hidden behind the many lengths of prompts

_VLLM_MOE = "vllm.model_executor.layers.fused_moe.fused_moe"
_AITER_JSON = "aiter.ops.triton.utils"
# Module -> (function, table, attribute of aiter's AITER_CONFIGS that holds the path of its CSV).
_AITER_CSV: dict[str, tuple[tuple[str, str, str], ...]] = {
    "aiter.ops.gemm_op_a4w4": (("get_GEMM_config", "aiter_csv_a4w4", "AITER_CONFIG_GEMM_A4W4_FILE"),),
    "aiter.ops.gemm_op_a8w8": (
        ("get_CKGEMM_config", "aiter_csv_a8w8", "AITER_CONFIG_GEMM_A8W8_FILE"),
        ("get_GEMM_config_with_quant_type", "aiter_csv_a8w8_bpreshuffle", "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE_FILE"),
    ),
    "aiter.ops.batched_gemm_op_a8w8": (
        ("get_CKBatchedGEMM_config", "aiter_csv_batched_a8w8", "AITER_CONFIG_A8W8_BATCHED_GEMM_FILE"),
    ),
    "aiter.ops.batched_gemm_op_bf16": (
        ("get_CKBatchedGEMM_config", "aiter_csv_batched_bf16", "AITER_CONFIG_BF16_BATCHED_GEMM_FILE"),
    ),
    "aiter.tuned_gemm": (("get_GEMM_A16W16_config", "aiter_csv_bf16", "AITER_CONFIG_GEMM_BF16_FILE"),),
    "aiter.fused_moe": (("get_2stage_cfgs", "aiter_csv_fmoe", "AITER_CONFIG_FMOE_FILE"),),
}
# Module -> (function, table). The first of a module's functions that exists is watched for each table.
_AITER_TILES: dict[str, tuple[tuple[str, str], ...]] = {
    f"{_AITER_JSON}.gemm_config_utils": (
        ("_get_gemm_config_cached", "aiter_json_gemm"),
        ("get_gemm_config", "aiter_json_gemm"),
    ),
    f"{_AITER_JSON}.unified_attention_utils": (
        ("_get_unified_attention_config_cached", "aiter_json_attention"),
        ("get_unified_attention_config", "aiter_json_attention"),
    ),
    f"{_AITER_JSON}.moe_config_utils": (("get_optimal_moe_config", "aiter_json_moe"),),
    # Versions that choose their attention tiles in Python.
    "aiter.ops.triton.attention.unified_attention": (
        ("select_2d_config", "aiter_code_attention_2d"),
        ("select_3d_config", "aiter_code_attention_3d"),
    ),
}
_told: dict[str, int] = {}
_told_of_row: dict[str, int] = {}


def watch_all() -> None:
    after_import(_VLLM_MOE, _vllm_moe)
    after_import("vllm.model_executor.layers.quantization.utils.fp8_utils", _vllm_blocks)
    for module in (f"{_AITER_JSON}.core", f"{_AITER_JSON}.config_utils"):
        after_import(module, _aiter_files)
    for module, functions in _AITER_TILES.items():
        after_import(module, _tiles(functions))
    for module, columns in _AITER_CSV.items():
        after_import(module, _csv(columns))
    after_import_below("aiter.ops.triton.", _own_tiles)


def resolved(table: str, row_key: str | None, row: Any, asked: dict[str, Any], file: str | None = None) -> None:
    """For tables of our own: kernels call it where they have looked up a row, once for each distinct question.
    `row_key` None: no row fits, and `row` is the kernel's own default."""
    _tell(table, asked, row, {"file": file, "row_keys": [] if row_key is None else [row_key]})


def _tell(table: str, asked: dict[str, Any], row: Any, where: dict[str, Any]) -> None:
    if os.environ.get("NIGHTGATE_EVIDENCE") != "1":
        return
    data = {"table": table, "asked": plain(asked), "row": plain(row), **where}
    same_row = f"{table} {data['file']} {data['row_keys'] or data['row']}"
    told_of_row = _told_of_row[same_row] = _told_of_row.get(same_row, 0) + 1
    if told_of_row > MOST_OF_ROW:
        return
    told = _told[table] = _told.get(table, 0) + 1
    if told <= MOST_LINES:
        line("table_row", data)
    elif told == MOST_LINES + 1:
        line("table_full", {"table": table, "lines": MOST_LINES})


# --- vLLM ---------------------------------------------------------------------------------------------------------


def _vllm_moe(module: ModuleType) -> None:
    wrap(module, "get_moe_configs", _vllm_moe_file)
    wrap(module, "try_get_optimal_moe_config", _vllm_moe_row)


def _vllm_moe_file(module: ModuleType, asked: dict[str, Any], answer: Any) -> None:
    held = None if answer is None else {"batch_sizes": sorted(answer)}
    _tell("vllm_moe_file", asked, held, {"file": _vllm_path(module, asked, answer), "row_keys": []})


def _vllm_moe_row(module: ModuleType, asked: dict[str, Any], answer: Any) -> None:
    """The row is the one of the nearest batch size, unless a caller has put a tile of its own above the table."""
    experts, _, size = asked["w2_shape"]
    size = size * 2 if asked["dtype"] == "int4_w4a16" else size
    block = asked.get("block_shape") or [0, 0]
    question = {"E": experts, "N": size, "dtype": asked["dtype"], "block_n": block[0], "block_k": block[1]}
    held = module.get_moe_configs(*question.values()) or {}
    nearest = min(held, key=lambda rows: abs(rows - asked["M"]), default=None)
    fits = nearest is not None and held[nearest] == answer
    where = {
        "file": _vllm_path(module, question, held) if fits else None,
        "row_keys": [str(nearest)] if fits else [],
    }
    _tell("vllm_moe", {**question, "M": asked["M"], "top_k": asked.get("top_k")}, answer, where)


def _vllm_path(module: ModuleType, asked: dict[str, Any], answer: Any) -> str | None:
    """Where get_moe_configs found it: the tuned folder first, then its own."""
    if not answer:
        return None
    block = [asked["block_n"], asked["block_k"]] if asked.get("block_n") and asked.get("block_k") else None
    name = module.get_config_file_name(asked["E"], asked["N"], asked["dtype"], block)
    own = os.path.join(os.path.dirname(os.path.realpath(module.__file__ or "")), "configs")
    for folder in (os.environ.get("VLLM_TUNED_CONFIG_FOLDER"), own):
        if folder and os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return None


def _vllm_blocks(module: ModuleType) -> None:
    def tell(_: ModuleType, asked: dict[str, Any], answer: Any) -> None:
        held = None if answer is None else {"batch_sizes": sorted(answer)}
        _tell("vllm_w8a8_block_file", asked, held, {"file": None, "row_keys": []})

    wrap(module, "get_w8a8_block_fp8_configs", tell)


# --- AITER --------------------------------------------------------------------------------------------------------


def _aiter_files(module: ModuleType) -> None:
    if getattr(getattr(module, "load_config_json", None), "__module__", None) == module.__name__:
        outside(module, "load_config_json", rows.heard)


def _tiles(functions: tuple[tuple[str, str], ...]) -> Callable[[ModuleType], None]:
    def watch(module: ModuleType) -> None:
        taken: set[str] = set()
        for name, table in functions:
            if table not in taken and wrap(module, name, _tile(table), rows.trail):
                taken.add(table)

    return watch


def _own_tiles(module: ModuleType) -> None:
    """AITER 0.1.7: each GEMM's module has a lookup of its own, `_get_config`, which opens the file. In later ones it
    asks gemm_config_utils, which is watched."""
    lookup = getattr(module, "_get_config", None)
    if getattr(lookup, "__module__", None) == module.__name__ and not hasattr(module, "get_gemm_config"):
        wrap(module, "_get_config", _tile("aiter_json_gemm"), rows.opening(module))


def _tile(table: str) -> Callable[[ModuleType, dict[str, Any], Any], None]:
    def tell(_: ModuleType, asked: dict[str, Any], answer: Any) -> None:
        tile = answer[0] if isinstance(answer, tuple) and answer and isinstance(answer[0], dict) else answer
        _tell(table, asked, tile, rows.origin(tile, asked))

    return tell


def _csv(columns: tuple[tuple[str, str, str], ...]) -> Callable[[ModuleType], None]:
    def watch(module: ModuleType) -> None:
        for name, table, attribute in columns:
            wrap(module, name, _row(table, attribute))

    return watch


def _row(table: str, attribute: str) -> Callable[[ModuleType, dict[str, Any], Any], None]:
    def tell(module: ModuleType, asked: dict[str, Any], answer: Any) -> None:
        named = asked.get("tuned_file") or asked.get("config_file")
        file = named or getattr(getattr(module, "AITER_CONFIGS", None), attribute, None)
        _tell(table, asked, answer, {"file": plain(file), "row_keys": []})

    return tell
