"""Which GEMM kernel vLLM sends a linear layer to on ROCm, as far as tables decide it. Read from its source's text: the
conditions moved with every version, so a version that is not understood gives None and no claim.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from agents.research.tables.table_file import function_text, read_source
from contracts import Frozen

OPS, UTILS = "_aiter_ops.py", "model_executor/layers/utils.py"


class Gate(Frozen):
    """A condition on a layer's weights [n, k]. by "file": AITER has a specialised table that answers at m = 128;
    by "list": the shapes stand in vLLM's own source."""

    by: Literal["file", "list"]
    shapes: frozenset[tuple[int, int]] = frozenset()
    k_factor: int = 1  # "file": k of the file name = this x what the layer passes
    source: str  # vllm/_aiter_ops.py:3223


class Gates(Frozen):
    """None: this vLLM has no such function."""

    bf16_triton: Gate | None = None
    fp8_triton: Gate | None = None
    fp4_preshuffled: Gate | None = None
    fp4_assembly: Gate | None = None  # decided by CSV rows at m = 1024 and 8192
    tuned_gemm: str | None = None  # where the call into AITER's CSV table of 16-bit GEMMs is decided


def read_gates(vllm: Path, arch: str) -> Gates:
    """From a folder named vllm; all None without it."""
    ops, utils = read_source(vllm / OPS), read_source(vllm / UTILS)
    dense, tgemm = function_text(utils, "use_aiter_triton_gemm"), function_text(ops, "is_tgemm_enabled")
    bf16 = None
    if dense:
        pairs = re.findall(r"m == (\d+) and k == (\d+)", dense[1])
        shapes = frozenset((int(n), int(k)) for n, k in pairs)
        bf16 = Gate(by="list", shapes=shapes, source=f"vllm/{UTILS}:{dense[0]}")
    on_this = tgemm is not None and (f"on_{arch}" in tgemm[1] or "on_gfx" not in tgemm[1])
    assembly = function_text(ops, "is_asm_fp4_gemm_tuned")
    return Gates(
        bf16_triton=bf16,
        fp8_triton=_gate(ops, "is_triton_gemm_w8a8_tuned", arch),
        fp4_preshuffled=_gate(ops, "is_triton_gemm_afp4wfp4_presh_ws_tuned", arch),
        fp4_assembly=Gate(by="file", source=f"vllm/{OPS}:{assembly[0]}") if assembly else None,
        tuned_gemm=f"vllm/{OPS}:{tgemm[0]}" if tgemm and on_this else None,
    )


def _gate(text: str, name: str, arch: str) -> Gate | None:
    held = function_text(text, name)
    if held is None:
        return None
    line, body = held
    source = f"vllm/{OPS}:{line}"
    if "gemm_config_is_tuned" in body or "get_gemm_config" in body:
        factor = re.search(r"\b(\d+) \* k_bytes", body)
        return Gate(by="file", k_factor=int(factor[1]) if factor else 1, source=source)
    own = re.search(rf"{re.escape(arch)}_tuned = \{{(.*?)\}}", body, re.DOTALL)
    if own is None and "_tuned = {" in body:
        return Gate(by="list", source=source)  # lists of other archs only
    pairs = re.findall(r"\((\d+), (\d+)\)", own[1] if own else body)
    return Gate(by="list", shapes=frozenset((int(n), int(k)) for n, k in pairs), source=source)
