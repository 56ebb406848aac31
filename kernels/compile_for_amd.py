"""Compiles every kernel here for AMD cards, on a machine that has none, and prints what the compiler says of it.

    ENGINE/bin/python kernels/compile_for_amd.py [gfx906 gfx950 ...]

Needs Triton 3.8 or newer (3.5 to 3.7.1 refuse gfx906) and torch; no GPU. It shows that a kernel compiles, what
registers and LDS it takes and whether it spills: nothing about speed. Ends with 1 when a kernel does not compile,
spills, or needs more LDS than the card has (which is no compile error).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import triton
from nightgate_kernels import add_rms_norm, tables, w4a16_linear  # type: ignore[import-not-found]  # on the path above
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LDS_BYTES = {"gfx906": 64 << 10, "gfx90a": 64 << 10, "gfx942": 64 << 10, "gfx950": 160 << 10}
WAVEFRONT = 64


def variants(dtype: str) -> list[tuple[str, Any, dict[str, str], dict[str, int], int]]:
    """(name, kernel, signature, constants, warps) of what serving launches; rows of 4096 and 8192."""
    pointer = f"*{dtype}"
    found: list[tuple[str, Any, dict[str, str], dict[str, int], int]] = []
    strides = ("x_stride", "residual_stride", "out_stride", "residual_out_stride", "cols")
    for cols in (4096, 8192):
        signature = dict.fromkeys(("x", "residual", "weight", "out", "residual_out"), pointer)
        signature |= dict.fromkeys(strides, "i32") | {"epsilon": "fp32", "BLOCK": "constexpr"}
        warps = tables.row_for("add_rms_norm", cols)["num_warps"]
        found.append((f"add_rms_norm {cols}", add_rms_norm._add_rms_norm, signature, {"BLOCK": cols}, warps))
    for rows, constants in tables.rows_of("w4a16_linear").items():
        signature = {"x": pointer, "packed": "*i32", "scales": pointer, "zeros": pointer, "out": pointer}
        numbers = ("x_stride", "packed_stride", "scales_stride", "zeros_stride", "out_stride")
        signature |= dict.fromkeys((*numbers, "rows", "n", "words", "words_per_group"), "i32")
        signature |= dict.fromkeys(("ZEROS", "ROWS", "N", "WORDS"), "constexpr")
        for zeros in (False, True):
            name = f"w4a16_linear {rows} rows{', zeros' if zeros else ''}"
            found.append((name, w4a16_linear._w4a16_linear, signature, constants | {"ZEROS": zeros}, 4))
    signature = {"packed": "*i32", "scales": pointer, "zeros": pointer, "out": pointer}
    sizes = ("packed_stride", "scales_stride", "zeros_stride", "out_stride", "n", "k", "group")
    signature |= dict.fromkeys(sizes, "i32") | dict.fromkeys(("ZEROS", "N", "K"), "constexpr")
    for zeros in (False, True):
        constants = {"ZEROS": zeros, "N": 8, "K": 512}
        found.append((f"w4a16 unpack{', zeros' if zeros else ''}", w4a16_linear._unpack, signature, constants, 4))
    return found


def said(assembly: str, what: str) -> int:
    """A number of the kernel's metadata, -1 where it is not there."""
    match = re.search(rf"\.{what}:\s*(\d+)", assembly)
    return int(match.group(1)) if match else -1


def main() -> int:
    arches = sys.argv[1:] or ["gfx906", "gfx950"]
    bad = 0
    print(f"Triton {triton.__version__}\n")
    print("| arch | dtype | kernel | warps | VGPRs | SGPRs | spilled | scratch, bytes a lane | LDS, bytes | fits |")
    print("|" + "---|" * 10)
    for arch in arches:
        for dtype in ("fp16", "bf16"):
            for name, kernel, signature, constants, warps in variants(dtype):
                source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
                try:
                    target, options = GPUTarget("hip", arch, WAVEFRONT), {"num_warps": warps}
                    made = triton.compile(source, target=target, options=options)
                except Exception as problem:  # whatever the compiler raises
                    why = " ".join(str(problem).split())[-120:]
                    print(f"| {arch} | {dtype} | {name} | {warps} | does not compile: {why} |")
                    bad += 1
                    continue
                text, lds = made.asm["amdgcn"], made.metadata.shared
                spilled, scratch = said(text, "vgpr_spill_count"), said(text, "private_segment_fixed_size")
                fits = spilled == 0 and scratch == 0 and lds <= LDS_BYTES.get(arch, 64 << 10)
                bad += not fits
                print(
                    f"| {arch} | {dtype} | {name} | {warps} | {said(text, 'vgpr_count')} | {said(text, 'sgpr_count')} "
                    f"| {spilled} | {scratch} | {lds} | {'yes' if fits else 'no'} |"
                )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
