"""For each dense layer and phase: which table answers, and with which row. vLLM's conditions (vllm_gates.py) first,
then AITER's own lookups (gemm_json.py, gemm_csv.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from agents.research.model_shape import Gemm
from agents.research.tables.gemm_csv import Family, find, padded
from agents.research.tables.gemm_json import Found, GemmTables, lookup
from agents.research.tables.quant_scheme import Scheme
from agents.research.tables.vllm_gates import Gate, Gates
from contracts import Frozen

PROBE = 128  # the m that vLLM's own question "is it tuned?" asks with (_triton_gemm_config_is_tuned)
ASSEMBLY_PROBES = (1024, 8192)  # is_asm_fp4_gemm_tuned
SKINNY_MOST = 5  # tokens that vLLM's own wvSplitK takes on gfx9
# What its wvSplitKrc takes on gfx950, before any other kernel is asked (rocm_unquantized_gemm_impl and
# wvsplitkrc_dispatch, model_executor/layers/utils.py:253 and 355 of 0.33.0; the same in 0.30.0 and 0.32.0).
REDUCED_SKINNY = range(10, 129)  # tokens
REDUCED_K_LEAST, REDUCED_N_STEP = 513, 16
TRITON_MOST = (2048, 512)  # use_aiter_triton_gemm leaves more tokens than this on more than 512 outputs to hipBLASLt


class Route(Frozen):
    """Where one product goes. row: "file#key" or "file:line", "" where nothing was found. state: tuned (a row for this
    shape), default (a row for any shape), miss (no row: the library's own heuristic), none (no table is asked)."""

    gemm: Gemm
    phase: Literal["prefill", "decode"]
    m: int
    table: str  # GEMM-AFP4WFP4, a4w4_blockscale_tuned_gemm, ""
    state: Literal["tuned", "default", "miss", "none"]
    row: str = ""
    found: Found | None = None
    why: str  # the condition that sent it there, and where that stands


def route(
    gemm: Gemm,
    phase: Literal["prefill", "decode"],
    m: int,
    scheme: Scheme,
    tables: GemmTables,
    csvs: Mapping[str, Family],
    gates: Gates,
    units: int,
    assembly_on: bool,
    skinny: bool = True,
) -> Route:
    """`assembly_on`: what an engine without a gate of its own does with 4-bit floats (by version or variable).
    `skinny`: VLLM_ROCM_USE_SKINNY_GEMM."""
    n, k = gemm.n, gemm.k
    odd_fp8 = tables.arch.startswith("gfx94")  # its 8-bit floats are the fnuz kind; vLLM takes no Triton GEMM there

    def none(why: str) -> Route:
        return Route(gemm=gemm, phase=phase, m=m, table="", state="none", why=why)

    def triton(family: str, why: str) -> Route:
        found = lookup(tables, family, m, n, k)
        if found is None or found.key is None:
            lack = f"there is no default file of {family}" if found is None else f"{found.source} has no entry for it"
            return Route(gemm=gemm, phase=phase, m=m, table=family, state="miss", found=found, why=f"{why}; {lack}")
        state: Literal["tuned", "default"] = "tuned" if found.tuned else "default"
        return Route(gemm=gemm, phase=phase, m=m, table=family, state=state, row=found.row, found=found, why=why)

    def rows(family: str, why: str) -> Route:
        held = csvs.get(family)
        place = find(held, m, n, k) if held else None
        if place is None:
            tried = ", ".join(map(str, dict.fromkeys(padded(m, n))))
            lack = f"{why}; no row for M {tried}, N {n}, K {k}" if held else f"{why}; there is no such table"
            return Route(gemm=gemm, phase=phase, m=m, table=family, state="miss", why=lack)
        return Route(gemm=gemm, phase=phase, m=m, table=family, state="tuned", row=str(place), why=why)

    if scheme == "bf16":
        if skinny and tables.arch == "gfx950" and reduced_skinny(m, n, k, units):
            return none(f"{m} tokens of this shape go to vLLM's own skinny kernel (wvSplitKrc)")
        gate = None if odd_fp8 else gates.bf16_triton
        if gate and (n, k) in gate.shapes and not (m > TRITON_MOST[0] and n > TRITON_MOST[1]):
            return triton("GEMM-A16W16", f"vLLM names this shape ({gate.source})")
        if gates.tuned_gemm is None:
            return none("vLLM asks no AITER table for 16-bit layers here: its own skinny kernels, then hipBLASLt")
        if skinny and m <= SKINNY_MOST:
            return none(f"up to {SKINNY_MOST} tokens go to vLLM's own skinny kernel")
        return rows("bf16_tuned_gemm", f"vLLM calls AITER's tuned_gemm ({gates.tuned_gemm})")
    if scheme == "fp8_block":
        gate = None if odd_fp8 else gates.fp8_triton
        if gate and passes(gate, tables, "GEMM-A8W8_BLOCKSCALE", n, k):
            return triton("GEMM-A8W8_BLOCKSCALE", f"vLLM takes Triton: {_reason(gate)}")
        not_triton = f"vLLM takes CK: not {_reason(gate)}" if gate else "vLLM takes CK"
        return rows("a8w8_blockscale_tuned_gemm", not_triton)
    if scheme == "mxfp4":
        if gates.fp4_assembly is not None:
            table = csvs.get("a4w4_blockscale_tuned_gemm")
            lacking = [p for p in ASSEMBLY_PROBES if table is None or find(table, p, n, k) is None]
            shuffled = gates.fp4_preshuffled is not None and passes(gates.fp4_preshuffled, tables, PRESHUFFLED, n, k)
            assembly = not lacking and shuffled
            told = "vLLM turns assembly on for a layer with CSV rows at m = 1024 and 8192 and a specialised Triton file"
            told += f" ({gates.fp4_assembly.source})"
            if not assembly:
                told += ": no CSV row at m = " + " and ".join(map(str, lacking)) if lacking else ": no such Triton file"
        else:
            assembly = assembly_on
            told = f"assembly is {'on' if assembly else 'off'} in this vLLM"
            shuffled = gates.fp4_preshuffled is not None and passes(gates.fp4_preshuffled, tables, PRESHUFFLED, n, k)
        if not assembly:
            return triton("GEMM-AFP4WFP4", told)
        return triton(PRESHUFFLED, told) if m <= 64 and shuffled else rows("a4w4_blockscale_tuned_gemm", told)
    if scheme == "fp8_token":
        for family in ("a8w8_bpreshuffle_tuned_gemm", "a8w8_tuned_gemm"):
            held = csvs.get(family)
            if held and any(shape[1:] == (str(n), str(k)) for shape in held.rows):
                return rows(family, f"{family} has rows of this N and K, so vLLM may take it")
        return none("no AITER table has a row of this N and K: torch's scaled_mm")
    return none(f"no AITER GEMM table is asked for {scheme} weights")


def reduced_skinny(m: int, n: int, k: int, units: int) -> bool:
    """Whether wvSplitKrc takes m tokens of weights [n, k]. It gives 64 outputs and 512 of k to a compute unit, and as
    many more units as up to four waves share the work of 16 tokens each; all must fit at once. The bound on its
    workspace needs no asking: what fits 768 units fits it."""
    if m not in REDUCED_SKINNY or k < REDUCED_K_LEAST or k % 8 or n % REDUCED_N_STEP:
        return False
    waves = min((1 << (m - 1).bit_length()) // 16, 4)
    return -(-n // 64) * -(-k // 512) * waves <= units


PRESHUFFLED = "GEMM-AFP4WFP4_PRESHUFFLED"


def passes(gate: Gate, tables: GemmTables, family: str, n: int, k: int) -> bool:
    """vLLM's question about a layer of weights [n, k], k in elements. What the layer passes for 4-bit floats is bytes,
    two elements each."""
    packed = k // 2 if "FP4" in family else k
    if gate.by == "list":
        return (n, packed) in gate.shapes
    found = lookup(tables, family, PROBE, n, packed * gate.k_factor)
    return found is not None and found.tuned


def _reason(gate: Gate) -> str:
    if gate.by == "file":
        return f"a specialised Triton file that answers at m = {PROBE} ({gate.source})"
    return f"one of the {len(gate.shapes)} shapes in its source ({gate.source})"
