"""Small trees for the tests of the attention tables: a table, a function, an engine's back ends; all of it our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.research.model_shape import AttentionKind, ModelShape
from cards.sheet import CardSheet, Number

FOLDER = "ops/triton/configs/gfx950/triton/attention/unified_attention"


def entry(rows: int, tile: int, **more: Any) -> dict[str, Any]:
    base = {"BLOCK_M": rows, "num_warps": 4, "num_stages": 1, "waves_per_eu": 2}
    return {**base, "TILE_SIZE_MIN": tile, "TILE_SIZE_MAX": tile, **more}


# Wide heads have an entry for decode and one for any number of rows; narrow ones also have one for long queries.
TABLE: dict[str, Any] = {
    "schema": {"attn_2d": ["D", "Q", "SW", "DT"], "reduce": []},
    "attn_2d": {
        "D_GEQ_512.Q_LEQ_1": entry(16, 64),
        "D_GEQ_512.DT_fp8_fp8": entry(16, 32, num_stages=2),
        "D_GEQ_256": entry(16, 32, num_warps=2),
        "D_LEQ_128.Q_GEQ_256.DT_fp8_fp8": entry(128, 64, NARROW_PATH=True),
        "Q_GEQ_256": entry(128, 64),
        "any": entry(16, 64),
    },
    "reduce": {"num_warps": 2},
}

FUNCTION = '''\
"""Docstring."""
import triton


def select_2d_config(block_size, head_size, all_decode, max_seqlen_q, num_queries_per_kv, q_dtype):
    arch = get_arch()
    BLOCK_M = 16 if num_queries_per_kv <= 16 else triton.next_power_of_2(num_queries_per_kv)
    TILE_SIZE = 16 if arch.is_rdna else 64
    budget = read_budget(arch)
    if not all_decode:
        if head_size >= 512 and not arch.is_rdna:
            TILE_SIZE, stages = 16, 2
        elif max_seqlen_q >= 256:
            BLOCK_M = 128
    return {"BLOCK_M": BLOCK_M, "TILE_SIZE": TILE_SIZE}
'''

LOADER = '_USE_OPT_IN = os.environ.get("AITER_OWN_SWITCH", "") == "1"\n'


def aiter(root: Path, table: Any = None, function: str = "", loader: str = "") -> str:
    """A folder named aiter. `table`: JSON, or text to be written as it is."""
    tree = root / "aiter"
    if table is not None:
        text = table if isinstance(table, str) else json.dumps(table)
        _write(tree / FOLDER / "DEFAULT.json", text)
    if function:
        _write(tree / "ops/triton/attention/unified_attention.py", function)
    if loader:
        _write(tree / "ops/triton/utils/unified_attention_utils.py", loader)
    return str(tree)


def vllm(root: Path) -> str:
    """A folder named vllm with two back ends: WHOLE calls the kernel for everything, PART for decode alone."""
    backends = root / "vllm/v1/attention/backends"
    whole = "from aiter.ops.triton.unified_attention import unified_attention\n"
    _write(backends / "whole.py", whole + "self.supports_quant_query_input = not on_gfx11()\n")
    _write(backends / "part.py", whole + "from aiter import varlen\n")
    _write(
        backends / "registry.py",
        'WHOLE = "vllm.v1.attention.backends.whole.W"\nPART = (\n    "vllm.v1.attention.backends.part.P"\n)\n'
        'OTHER = "vllm.v1.attention.backends.other.O"\n',
    )
    return str(root / "vllm")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def model() -> ModelShape:
    """Ten layers that see everything with heads of 512, fifty with a window and heads of 256."""
    return ModelShape(
        architecture="Own",
        hidden=4096,
        layers=60,
        vocabulary=32000,
        attention=(
            AttentionKind(layers=10, heads=32, kv_heads=4, head_size=512),
            AttentionKind(layers=50, heads=32, kv_heads=16, head_size=256, window=1024),
        ),
        intermediate=16384,
        dense_layers=60,
    )


def sheet() -> CardSheet:
    def number(value: float) -> Number:
        return Number(value=value, source="a test")

    return CardSheet(
        arch="gfx950",
        name="a card",
        kind="amd",
        wavefront=64,
        compute_units=number(256),
        memory_gib=number(288),
        bandwidth_gb_s=number(8000),
        tflops={},
        lds_bytes=number(160 * 1024),
        vgprs=number(512),
    )
