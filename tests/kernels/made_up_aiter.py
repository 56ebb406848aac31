"""A made-up package called aiter, for tests of the watcher: our own few lines under the names that the real one has,
with the same habits (results under lru_cache, a deep copy outside it, rows kept on the function itself). Not AITER's
code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILES = {
    "aiter/__init__.py": "",
    "aiter/ops/__init__.py": "",
    "aiter/ops/triton/__init__.py": "",
    "aiter/ops/triton/utils/__init__.py": "",
    "aiter/ops/triton/utils/core.py": '''
import functools, json, os
FOLDER = os.path.join(os.path.dirname(__file__), "configs")

@functools.lru_cache(maxsize=8)
def load_config_json(path, required=True):
    return json.load(open(path)) if os.path.exists(path) else None
''',
    "aiter/ops/triton/utils/gemm_config_utils.py": '''
import copy, functools
from aiter.ops.triton.utils.core import FOLDER, load_config_json

@functools.lru_cache(maxsize=16)
def _get_gemm_config_cached(name, M, N=None, K=None):
    table = load_config_json(f"{FOLDER}/gemm/gfx950-{name}.json")
    for bound in (1, 64, 128):
        if M <= bound and f"M_LEQ_{bound}" in table:
            return dict(table[f"M_LEQ_{bound}"]), False
    return dict(table["any"]), False

def get_gemm_config(name, M, N=None, K=None):
    config, tuned = _get_gemm_config_cached(name, M, N, K)
    return copy.deepcopy(config), tuned
''',
    "aiter/ops/triton/gemm_a8w8.py": '''
import functools, json, os
FOLDER = os.path.join(os.path.dirname(__file__), "utils", "configs")

@functools.lru_cache(maxsize=16)
def _get_config(M, N, K):
    if not hasattr(_get_config, "_config_dict"):
        with open(f"{FOLDER}/gemm/MI350X-GEMM-A8W8.json") as file:
            _get_config._config_dict = json.load(file)
    return _get_config._config_dict["small" if M < 512 else "large"]
''',
    "aiter/ops/gemm_op_a4w4.py": '''
import functools, types
AITER_CONFIGS = types.SimpleNamespace(AITER_CONFIG_GEMM_A4W4_FILE="/tables/a4w4.csv")

@functools.lru_cache(maxsize=4)
def get_GEMM_config(M, N, K):
    if not hasattr(get_GEMM_config, "gemm_dict"):
        get_GEMM_config.gemm_dict = {(16, 512, 7168): {"kernelId": 20, "splitK": 1, "kernelName": "f4gemm"}}
    return get_GEMM_config.gemm_dict.get((M, N, K))
''',
}  # fmt: skip
GEMM: dict[str, dict[str, Any]] = {
    "M_LEQ_64": {"BLOCK_SIZE_M": 16, "num_warps": 4},
    "M_LEQ_128": {"BLOCK_SIZE_M": 16, "num_warps": 4},  # equal to the row before it
    "any": {"BLOCK_SIZE_M": 128, "num_warps": 8},
}


def write(folder: Path, gemm: dict[str, dict[str, Any]] = GEMM) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    table = folder / "aiter/ops/triton/utils/configs/gemm/gfx950-GEMM-A16W16.json"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(json.dumps(gemm))
    older = {"small": GEMM["M_LEQ_64"], "large": GEMM["any"]}  # tiles that the other file has as well
    (table.parent / "MI350X-GEMM-A8W8.json").write_text(json.dumps(older))
    return folder
