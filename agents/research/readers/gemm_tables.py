"""Which rows of AITER's GEMM tables do this model's linear layers reach, and are the tables sound?

Speed-up of a tuned row. Claimed by AITER's draft pull request 5928 for 4-bit rows on gfx950: 1.03 to 1.82 times, 1.078
over 66 shapes. The mean is taken as the speed-up of the product alone, whatever its arithmetic: judged, not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms
from agents.research.model_shape import Gemm
from agents.research.row_change import Candidate, changes
from agents.research.shares import share
from agents.research.tables.csv_rows import Families, csv_rows
from agents.research.tables.dense_route import Route, route
from agents.research.tables.gemm_csv import Family, Known, families, on_repeat, padded, read_family, sizes
from agents.research.tables.gemm_json import GemmTables, read_gemm_tables
from agents.research.tables.gemm_rows import json_rows
from agents.research.tables.gemm_sound import (
    bad_rows,
    entries_that_cannot_run,
    never,
    no_tables,
    other_cards,
    plain,
    repeats,
    unreadable,
)
from agents.research.tables.gemm_tuners import how_to_tune, switches_kernel
from agents.research.tables.quant_scheme import dense_scheme
from agents.research.tables.steps import steps
from agents.research.tables.table_file import is_folder
from agents.research.tables.vllm_gates import Gates, read_gates
from contracts import Evidence

NAME = "gemm_tables"
FOR_NIGHTS = True
ASSEMBLY = "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM"
SKINNY = "VLLM_ROCM_USE_SKINNY_GEMM"  # on by default (envs.py of 0.30.0 to 0.33.0)
HEAD = "lm head"  # as ModelShape.gemms() calls it
SPEEDUP = 1.078
SPEEDUP_FROM = "judged: AITER's draft pull request 5928 claims 1.03 to 1.82, 1.078 over 66 shapes of 4-bit rows"
# A default row was still chosen by somebody for some shape; a miss leaves the library's own heuristic, which is often
# good; a row of "any" is the row of every size that nobody looked at.
PROBABILITY = {"default": 0.35, "miss": 0.3}
# Of a row that was tuned for another size or shape; and how many of them of one shape and phase, for a model has some
# ten such places. Judged.
COPIED, MOST_OF_A_SHAPE = 0.2, 2
# Cells of the 16-bit family that a plain linear layer without a bias asks with.
PLAIN_LAYER = {"bias": "False", "scaleAB": "False"}
BF16 = {"dtype": "torch.bfloat16", "outdtype": "torch.bfloat16"}
# Of all time, where no profile and no estimate says it: all dense products together.
JUDGED_SHARE = {"prefill": 0.15, "decode": 0.25}
TUNER_S = 600.0  # card time to tune one shape at one m, judged: some hundred configurations, compiled and timed

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")


def look(dossier: Dossier) -> list[Finding]:
    if not dossier.aiter or dossier.card.kind != "amd":
        return []
    aiter, arch = Path(dossier.aiter), dossier.card.arch
    tables = read_gemm_tables(aiter, arch)
    known = families(aiter)
    csvs = {
        name: read_family(aiter, name, one, dossier.spec.env, arch, dossier.card.compute_units)
        for name, one in known.items()
    }
    found = unreadable([*tables.problems, *(p for csv in csvs.values() for p in csv.problems)])
    if not tables.files and not any(csv.rows for csv in csvs.values()):
        return [*found, no_tables(tables, csvs)] if known or is_folder(aiter / "ops") else found
    found += repeats(csvs, on_repeat(aiter))
    gates = read_gates(Path(dossier.knobs.path), arch) if dossier.knobs.path else Gates()
    routes = _routes(dossier, tables, csvs, gates)
    return [
        *found,
        *entries_that_cannot_run(dossier, tables, routes),
        *never(tables),
        *bad_rows(csvs),
        *other_cards(dossier, csvs),
        *_wrong_question(dossier, gates),
        *_shapes(dossier, aiter, tables, known, csvs, routes),
    ]


def _routes(dossier: Dossier, tables: GemmTables, csvs: Mapping[str, Family], gates: Gates) -> list[Route]:
    if dossier.model is None:
        return []
    sized, scheme = steps(dossier), dense_scheme(dossier.model)
    on, skinny = _assembly(dossier), dossier.spec.env.get(SKINNY, "1").lower() in ("1", "true")
    return [
        route(
            gemm,
            phase,
            sized.decode if gemm.name == HEAD else sized.of(phase)[0],  # logits of the last token only
            "bf16" if gemm.name == HEAD else scheme,  # vLLM leaves the head in 16 bits unless told otherwise
            tables,
            csvs,
            gates,
            dossier.card.compute_units,
            on,
            skinny,
        )
        for gemm in _merged(dossier.model.gemms(dossier.tensor_parallel))
        for phase in PHASES
        if gemm.name != HEAD or phase == "decode"
    ]


def _assembly(dossier: Dossier) -> bool:
    """Whether a vLLM without a condition of its own multiplies 4-bit floats in assembly."""
    held = dossier.spec.env.get(ASSEMBLY)
    if held is not None:
        return held.lower() in ("1", "true")
    return ASSEMBLY not in dossier.knobs.env and dossier.card.arch == "gfx950"  # 0.30.0: always, where the card can


def _wrong_question(dossier: Dossier, gates: Gates) -> list[Finding]:
    """vLLM 0.32.0 asks AITER for 4 x the bytes of a row, where the files are named by elements, 2 x the bytes."""
    gate, model = gates.fp4_preshuffled, dossier.model
    if gate is None or gate.by != "file" or gate.k_factor == 2 or model is None or dense_scheme(model) != "mxfp4":
        return []
    if gates.fp4_assembly is None and not _assembly(dossier):
        return []
    title = f"vLLM asks for tables of K = {gate.k_factor} x the bytes of a row, AITER names them by 2 x: it misses them"
    detail = f"{gate.k_factor} * k_bytes; AITER's own lookup doubles the bytes once (two 4-bit floats in each)"
    fix = (
        "up to 64 tokens then take assembly where a tuned Triton table lies ready: correct the factor, or compare both"
    )
    return [plain("trap", title, [(gate.source, detail)], fix=fix)]


def _merged(gemms: tuple[Gemm, ...]) -> list[Gemm]:
    """One for each shape: layers of several kinds may share one. The head stays alone: its arithmetic is its own."""
    by_shape: dict[tuple[int, int, bool], Gemm] = {}
    for gemm in gemms:
        key = (gemm.n, gemm.k, gemm.name == HEAD)
        held = by_shape.get(key)
        names = gemm.name if held is None or held.name == gemm.name else f"{held.name}, {gemm.name}"
        layers = gemm.layers + (held.layers if held else 0)
        by_shape[key] = gemm.model_copy(update={"name": names, "layers": layers})
    return list(by_shape.values())


def _shapes(
    dossier: Dossier,
    aiter: Path,
    tables: GemmTables,
    known: Mapping[str, Known],
    csvs: Mapping[str, Family],
    routes: list[Route],
) -> list[Finding]:
    merged = Families(aiter, known, dossier.spec.env)
    if not routes or dossier.model is None:
        return []
    found, scheme = [], dense_scheme(dossier.model)
    on = dossier.spec.env.get("VLLM_ROCM_USE_AITER", "")
    rows = [(_where(r), _told(r)) for r in routes]
    counts = {s: sum(r.state == s for r in routes) for s in ("tuned", "default", "miss", "none")}
    title = (
        f"of {len(routes)} lookups for this model's dense layers ({scheme}), {counts['tuned']} find a row of their "
        f"shape, {counts['default']} a row for any shape, {counts['miss']} none; {counts['none']} ask no AITER table"
    )
    off = "" if on.lower() in ("1", "true") or scheme == "mxfp4" else "VLLM_ROCM_USE_AITER is not 1: AITER is not asked"
    found.append(plain("fact", title, rows, fix=off and f"{off} until it is"))
    if on.lower() in ("0", "false") and scheme != "mxfp4":
        return found
    total = {phase: sum(_work(r) for r in routes if r.phase == phase) for phase in PHASES}
    for one in routes:
        if one.state in ("default", "miss"):
            part = _work(one) / total[one.phase]
            found += _opportunities(dossier, aiter, tables, known, csvs, merged, one, part, off)
    return found


def _where(one: Route) -> str:
    """The row; else the table that has none; else what the engine asks instead."""
    if one.row or not one.table:
        return one.row or "vLLM's own kernels"
    return f"aiter/configs/{one.table}.csv" if one.table.endswith("_gemm") else f"aiter/ops/triton/configs: {one.table}"


def _work(one: Route) -> float:
    return float(one.gemm.n * one.gemm.k * one.gemm.layers * one.m)


def _told(one: Route) -> str:
    answer = {"tuned": "a row of its shape", "default": "a row for any shape", "miss": "no row", "none": "no table"}
    return f"{one.phase} {one.gemm.name}, M {one.m} N {one.gemm.n} K {one.gemm.k}: {answer[one.state]}; {one.why}"


def _opportunities(
    dossier: Dossier,
    aiter: Path,
    tables: GemmTables,
    known: Mapping[str, Known],
    csvs: Mapping[str, Family],
    merged: Families,
    one: Route,
    part: float,
    off: str,
) -> list[Finding]:
    """The rows that a night can try, each a finding; where there is none, what a tuner could find."""
    whole = share(dossier, one.phase, "gemm")
    if whole is None:
        value, words = JUDGED_SHARE[one.phase], f"judged: dense products are {JUDGED_SHARE[one.phase]:.0%} of all time"
    else:
        value, words = whole.value, whole.words
    size = f"M {one.m}, N {one.gemm.n}, K {one.gemm.k}"
    if one.state == "default":
        title = f"{one.gemm.name} in {one.phase} ({size}) runs on a tile that {one.table} has for any shape"
    else:
        title = f"{one.gemm.name} in {one.phase} ({size}) has no row in {one.table}"
    tile = ", ".join(f"{k} {v}" for k, v in one.found.config.items()) if one.found else ""
    csv = csvs.get(one.table)
    if csv is not None:
        there = sizes(csv, one.gemm.n, one.gemm.k)
        tile = f"rows of this N and K: {'M ' + ', '.join(map(str, there[-12:])) if there else 'none'}"
    evidence = (
        Evidence(source=_where(one), detail=tile or one.why),
        Evidence(source="the lookup", detail=one.why),
        Evidence(source="tokens of a step", detail=steps(dossier).of(one.phase)[1]),
    )
    fix = how_to_tune(one, tables, aiter, known[one.table].env if one.table in known else "")
    gate = switches_kernel(Path(dossier.knobs.path)) if one.table == "a8w8_blockscale_tuned_gemm" else None
    if gate:
        fix += f"\nNo Triton file for this shape meanwhile: with one, vLLM leaves this table for Triton ({gate})."
    terms = Terms(
        phase=one.phase,
        share=value * part,
        share_from=f"{words}; {part:.0%} of it by operations",
        speedup=SPEEDUP,
        speedup_from=SPEEDUP_FROM,
        probability=PROBABILITY[one.state],
        cost_s=dossier.cost_s() + TUNER_S,
    )
    tuned = Finding(
        reader=NAME,
        kind="opportunity",
        title=title,
        evidence=evidence,
        fix=f"{off}.\n{fix}" if off else fix,
        terms=terms,
    )
    # Where AITER is not asked, no row of its tables is in use.
    tried = [] if off else changes(dossier, _candidates(dossier, aiter, tables, merged, one), COPIED, MOST_OF_A_SHAPE)
    return [
        tuned.model_copy(
            update={
                "title": f"{title}; {row.words} can be tried there ({number} of {len(tried)})",
                "evidence": (*evidence, Evidence(source=row.source, detail=f"proposed as {row.key}: {row.row}")),
                "terms": terms.model_copy(update={"probability": likely, "cost_s": dossier.cost_s()}),
                "change": change,
                "risk": "medium",
            }
        )
        for number, (row, change, likely) in enumerate(tried, 1)
    ] or [tuned]


def _candidates(dossier: Dossier, aiter: Path, tables: GemmTables, merged: Families, one: Route) -> list[Candidate]:
    """A row for this size, or a table for this shape, that somebody tuned for a near one."""
    if one.state == "default":
        return json_rows(aiter, tables, one)
    shape = {"N": str(one.gemm.n), "K": str(one.gemm.k), "gfx": dossier.card.arch, **PLAIN_LAYER}
    shape["cu_num"] = str(dossier.card.compute_units)
    # Under the size that all of a grid step's sizes are rounded up to.
    return csv_rows(merged, one.table, ("M", padded(one.m, one.gemm.n)[1]), shape, BF16)
