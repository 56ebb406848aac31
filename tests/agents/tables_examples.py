"""Small trees of tables that the readers' tests write for themselves, a sheet and two models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.research.model_shape import ModelShape, model_shape
from cards.sheet import CardSheet, Number

TILE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "num_warps": 4, "num_stages": 2}
HUGE = {**TILE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256, "num_stages": 3}
CORE = """
A = os.getenv("AITER_CONFIG_GEMM_A4W4", f"{AITER_ROOT_DIR}/aiter/configs/a4w4_blockscale_tuned_gemm.csv")
B = os.getenv("AITER_CONFIG_FMOE", f"{AITER_ROOT_DIR}/aiter/configs/tuned_fmoe.csv")
get_config_file("AITER_CONFIG_GEMM_A4W4", A, "a4w4_blockscale_tuned_gemm")
get_config_file("AITER_CONFIG_FMOE", B, "tuned_fmoe")
raise RuntimeError("Please re-run")
"""
OPS = """
class ops:
    @staticmethod
    def is_triton_gemm_w8a8_tuned(n: int, k: int) -> bool:
        return _triton_gemm_config_is_tuned("GEMM-A8W8_BLOCKSCALE", n, k)

    @staticmethod
    def is_triton_gemm_afp4wfp4_presh_ws_tuned(
        n: int, k_bytes: int
    ) -> bool:
        return _triton_gemm_config_is_tuned("GEMM-AFP4WFP4_PRESHUFFLED", n, 2 * k_bytes)

    @staticmethod
    def is_asm_fp4_gemm_tuned(n: int, k_bytes: int) -> bool:
        return True

    def is_tgemm_enabled(cls) -> bool:
        from vllm.platforms.rocm import on_gfx950

        return cls.is_linear_enabled() and on_gfx950()
"""
ROCM = """
_ROCM_DEVICE_ID_NAME_MAP: dict[str, str] = {
    "0x74a1": "AMD_Instinct_MI300X",
}
"""

FP4 = "ops/triton/configs/gfx950/triton/gemm/gemm_afp4wfp4"
ROWS = "gfx,cu_num,M,N,K,kernelId,us,kernelName,errRatio"
FAMILY = "a4w4_blockscale_tuned_gemm"


def write(path: Path, text: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def sheet(arch: str = "gfx950", lds: int = 160 << 10, mfma: bool = True) -> CardSheet:
    def number(value: float) -> Number:
        return Number(value=value, source="made up for a test")

    return CardSheet(
        arch=arch,
        name="AMD Instinct MI355X" if arch == "gfx950" else "AMD Instinct MI50/MI60",
        also=("AMD Instinct MI350X",) if arch == "gfx950" else (),
        kind="amd",
        wavefront=64,
        compute_units=number(256 if arch == "gfx950" else 60),
        memory_gib=number(288 if arch == "gfx950" else 32),
        bandwidth_gb_s=number(1000),
        tflops={},
        lds_bytes=number(lds),
        vgprs=number(512),
        native=("mfma",) if mfma else ("dot2",),
        absent=() if mfma else ("mfma",),
    )


def dense(**more: Any) -> ModelShape:
    return model_shape({**_BASE, **more})


def with_experts(**more: Any) -> ModelShape:
    return model_shape({**_BASE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768, **more})


_BASE: dict[str, Any] = {
    "architectures": ["Any"],
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 2048,
    "vocab_size": 4096,
    "torch_dtype": "bfloat16",
}
MXFP4 = {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}
FP8_BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128]}
INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}},
}


def gemm_tree(root: Path) -> Path:
    """aiter/: both layouts, one merged CSV family; vllm/ beside it."""
    aiter = root / "aiter"
    write(aiter / FP4 / "DEFAULT.json", {"M_LEQ_16": TILE, "M_LEQ_256": TILE, "any": TILE})
    write(aiter / FP4 / "GEMM-AFP4WFP4-N=1024-K=1024.json", {"M_LEQ_64": TILE, "any": TILE})
    flat = aiter / "ops/triton/configs/gemm"
    write(flat / "gfx950-GEMM-A8W8_BLOCKSCALE.json", {"any": TILE})
    write(flat / "gfx950-GEMM-A8W8_BLOCKSCALE-N=3072-K=1024.json", {"M_LEQ_128": TILE, "M_GEQ_256": TILE, "any": TILE})
    write(aiter / "jit/core.py", CORE)
    write(aiter / "configs/a4w4_blockscale_untuned_gemm.csv", "M,N,K\n1, 2, 3\n")
    write(aiter / "configs/a4w4_blockscale_tuned_gemm.csv", f"{ROWS}\ngfx950,256,64,3072,1024,1,5.0,k,0.0\n")
    write(root / "vllm/_aiter_ops.py", OPS)
    return aiter
