"""AITER's fused MoE: whether vLLM uses it, what its CSV answers, and its Triton tables of three sizes."""

from __future__ import annotations

from pathlib import Path

from agents.research.dossier import Dossier
from agents.research.finding import Finding, Phase
from agents.research.model_shape import Experts
from agents.research.tables.gemm_csv import MOE_SHAPE, families, read_family
from agents.research.tables.quant_scheme import Scheme, expert_scheme
from agents.research.tables.steps import steps
from agents.research.tables.table_file import files_in, read_json, shown
from contracts import Evidence, Frozen

SIZES = ("small_M", "medium_M", "large_M")  # below 256 tokens, below 1024, the rest (moe_config_utils.py, e4048607)
TIERS = (32768, 131072)  # from here on a step's tokens count as the tier below (fused_moe.py, get_padded_M)
FROM_CDNA3 = ("gfx94", "gfx95")  # vLLM takes AITER there (is_aiter_found_and_supported, 0.30.0 to 0.33.0)
# What AITER serves for vLLM, and q_dtype_w and q_type as its rows spell them. int4 and int8 weights beside 16-bit
# activations stay with vLLM's own kernels and tables.
SERVED: dict[Scheme, tuple[str, str]] = {
    "bf16": ("torch.bfloat16", "QuantType.No"),
    "fp8_block": ("torch.float8_e4m3fn", "QuantType.per_1x128"),
    "fp8_token": ("torch.float8_e4m3fn", "QuantType.per_Token"),
    "mxfp4": ("torch.float4_e2m1fn_x2", "QuantType.per_1x32"),
}
UNTUNED = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"


class Answer(Frozen):
    """Of one phase. `untuned`: what a tuner's input file holds for it, header and row."""

    phase: Phase
    tokens: int  # as AITER counts them: the next power of two
    hit: bool
    source: str
    detail: str
    untuned: str = ""
    shape: dict[str, str] = {}  # cells, by column, that a row of this step has beside its tokens


def aiter_moe_serves(dossier: Dossier) -> bool:
    """By the engine's environment and the card: VLLM_ROCM_USE_AITER on, VLLM_ROCM_USE_AITER_MOE not off."""
    on, moe = (dossier.spec.env.get(f"VLLM_ROCM_USE_AITER{end}", "") for end in ("", "_MOE"))
    wanted = on.lower() in ("1", "true") and moe.lower() not in ("0", "false")
    served = dossier.model is not None and expert_scheme(dossier.model) in SERVED
    return wanted and served and dossier.card.arch.startswith(FROM_CDNA3)


def padded_tokens(m: int) -> int:
    """The next power of two; from 32768 on the greatest tier that is not above."""
    if m < TIERS[0]:
        return 1 << max(m - 1, 0).bit_length()
    return max(tier for tier in TIERS if tier <= m)


def csv_answer(dossier: Dossier, experts: Experts) -> list[Answer]:
    """Of each phase: the row of tuned_fmoe that answers, or what there is instead."""
    aiter, model = Path(dossier.aiter), dossier.model
    known = families(aiter).get("tuned_fmoe") if dossier.aiter else None
    if known is None or model is None:
        return []
    card = dossier.card
    table = read_family(aiter, "tuned_fmoe", known, dossier.spec.env, card.arch, card.compute_units)
    weights, kind = SERVED[expert_scheme(model)]
    word, found = weights.removeprefix("torch.").split("_")[0], []  # gfx94's 8-bit floats end in fnuz
    width = experts.intermediate // dossier.tensor_parallel
    rest = (str(model.hidden), str(width), str(experts.count), str(experts.top_k))
    kin = {row[0] for row in table.rows if row[1:5] == rest and word in row[5]}
    fnuz = "uz" if weights.endswith("e4m3fn") and card.arch.startswith("gfx94") else ""
    for phase in ("decode", "prefill"):
        tokens = padded_tokens(steps(dossier).of(phase)[0])
        asked = f"{', '.join(MOE_SHAPE[:5])} = {tokens}, {', '.join(rest)}; weights {word}"
        row = next((p for r, p in table.rows.items() if r[0] == str(tokens) and r[1:5] == rest and word in r[5]), None)
        there = ", ".join(sorted(kin, key=lambda t: (len(t), t))) or "none"
        found.append(
            Answer(
                phase="decode" if phase == "decode" else "prefill",
                tokens=tokens,
                hit=row is not None,
                source=str(row) if row else "aiter/configs/tuned_fmoe.csv",
                detail=f"{phase}: {asked}" if row else f"{phase}: no row for {asked}; rows of this shape: {there}",
                shape=dict(zip(MOE_SHAPE[1:5], rest, strict=True))
                | {"cu_num": str(card.compute_units), "q_dtype_w": weights + fnuz, "q_type": kind},
                untuned=f"{UNTUNED}\\n{tokens},{','.join(rest)},ActivationType.Silu,torch.bfloat16,"
                + ",".join((weights + fnuz, weights + fnuz, kind, "1", "0")),
            )
        )
    return found


def unsound_sizes(dossier: Dossier, reader: str) -> list[Finding]:
    """configs/moe/<arch>-MOE-<dtype>.json without one of its three sizes raises at the first step of that size."""
    if not dossier.aiter:
        return []
    aiter, rows = Path(dossier.aiter), []
    for path in files_in(aiter / "ops/triton/configs/moe", ".json"):
        if not path.name.startswith(f"{dossier.card.arch}-MOE-"):
            continue
        table, source = read_json(path), shown(path, aiter)
        if isinstance(table, str):
            rows.append(Evidence(source=source, detail=table))
        elif lacking := [size for size in SIZES if size not in table.value]:
            rows.append(Evidence(source=source, detail=f"has no {', '.join(lacking)}"))
    if not rows:
        return []
    title = f"{len(rows)} of AITER's Triton MoE tables of {dossier.card.arch} cannot answer every step"
    return [Finding(reader=reader, kind="trap", title=title, evidence=tuple(rows))]
