"""Do the rows of AITER's 16-bit GEMM table fit the card, with the compiler that the engine has?

Each row that the model's shapes reach is cross-compiled by the engine's own Triton. LDS beyond the card's limit is no
error of the compiler: it shows when the kernel is first launched, in the middle of serving. Needs an interpreter with
Triton (the engine's), the AITER tree, the model's shapes and an AMD card that the compiler knows; without one of them
nothing is said, and `dropped` says why. The compiled text is the audited tree's; agents/research/compile/evidence.py
says how it is run.
"""

from __future__ import annotations

import json
from pathlib import Path

from agents.research.attention_backends import aiter_may_serve
from agents.research.batch_defaults import limit
from agents.research.compile import gemm_rows
from agents.research.compile.amdgcn import ARCHS, KernelEvidence
from agents.research.compile.evidence import Result, Toolchain, find_toolchain, run_jobs
from agents.research.compile.extract import Kernel
from agents.research.compile.gemm_rows import Row
from agents.research.compile.modules import Sources
from agents.research.dossier import Dossier
from agents.research.finding import Finding, plural
from agents.research.model_shape import Gemm
from agents.research.remembered import default_cache
from contracts import Evidence

NAME = "compile_evidence"
MAX_COMPILES = 24  # 1 to 2 s of one processor each for this kernel
EACH_S = 8.0  # of a processor; one that takes longer is told as a hang


def look(dossier: Dossier, cache: Path | None = None) -> list[Finding]:
    """`cache`: where results are remembered, the user's cache folder by default."""
    toolchain = find_toolchain(dossier.spec.python)
    if toolchain is None or _lacks(dossier):
        return []
    sources = Sources(Path(dossier.aiter))
    kernel = gemm_rows.find_kernel(sources)
    if kernel is None:
        return []
    if not kernel.text:
        return [_not_compiled(kernel, dossier.card.arch)]
    rows = _rows(dossier, sources)
    return _findings(dossier, toolchain, kernel, rows, cache or default_cache("compile")) if rows else []


def dropped(dossier: Dossier) -> list[str]:
    """How many rows were compiled, or why none was; and what could not be read. Nothing in a night, which does not
    `look` and has no sheet."""
    if dossier.card.kind != "amd" or dossier.sheet is None:
        return []
    why, rows, broken = _nothing_to_compile(dossier)
    said = f"compiled 0 kernels for {dossier.card.arch}: {why}"
    if not why:
        again = "; results that the compiler would give again are remembered"
        said = f"compiled {plural(len(rows), 'row')} of the A16W16 GEMM table for {dossier.card.arch}{again}"
    return [f"{NAME}: {line}" for line in (said, *sorted(set(broken)))]


def _nothing_to_compile(dossier: Dossier) -> tuple[str, list[Row], list[str]]:
    """(why nothing, or empty; the rows; what could not be read)."""
    python, arch = dossier.spec.python, dossier.card.arch
    lacks = _lacks(dossier)
    if not lacks and find_toolchain(python) is None:
        who = f"{python} is no interpreter" if python else "no interpreter was named (--python)"
        lacks = f"{who} with Triton"
    if lacks:
        return lacks, [], []
    sources = Sources(Path(dossier.aiter))
    kernel = gemm_rows.find_kernel(sources)
    if kernel is None:
        return f"this AITER has no {gemm_rows.KERNEL}", [], []
    if not kernel.text:
        return f"{kernel.name} could not be taken out of its tree", [], []
    rows = _rows(dossier, sources)
    if not _sixteen_bit(dossier):
        return "no product of this quantised model is in 16 bits", [], sources.broken
    if not rows:
        return f"this AITER has no table {gemm_rows.CONFIG} for {arch} that this model reaches", [], sources.broken
    return "", rows, sources.broken


def _lacks(dossier: Dossier) -> str:
    if dossier.card.kind != "amd" or dossier.card.arch not in ARCHS:
        return f"{dossier.card.arch} is not among {', '.join(ARCHS)}"
    if not dossier.aiter:
        asked = aiter_may_serve(dossier.knobs.path, dossier.card.arch)
        return "no AITER tree was given (--aiter)" if asked else "vLLM uses no AITER kernel there"
    if dossier.model is None:
        return "the model's shapes are not known (--model)"
    if dossier.model.dtype not in ("bfloat16", "float16"):
        return f"the model computes in {dossier.model.dtype}; the table is for 16 bits"
    return ""


def _rows(dossier: Dossier, sources: Sources) -> list[Row]:
    """One for each table entry that is reached, with the largest product that reaches it; K that its block divides and
    K that it does not are compiled apart, because the kernel is."""
    assert dossier.model is not None
    most = limit(dossier, "tokens").value
    largest: dict[tuple[str, bool], tuple[int, Row]] = {}
    for gemm in _sixteen_bit(dossier):
        found = gemm_rows.table_for(sources, dossier.card.arch, gemm.n, gemm.k)
        for row in gemm_rows.reached(*found, gemm.n, gemm.k, most) if found else ():
            block = row.entry.get("BLOCK_SIZE_K")
            even = isinstance(block, int) and block > 0 and gemm.k % block == 0
            work = gemm.n * gemm.k * gemm.layers
            if work > largest.get((row.source, even), (0, row))[0]:
                largest[row.source, even] = (work, row)
    return [row for _, row in largest.values()][:MAX_COMPILES]


def _sixteen_bit(dossier: Dossier) -> tuple[Gemm, ...]:
    """Of a quantised model only the last product is in 16 bits."""
    assert dossier.model is not None
    gemms = dossier.model.gemms(dossier.tensor_parallel)
    return gemms if dossier.model.quantization is None else tuple(g for g in gemms if g.name == "lm head")


def _findings(dossier: Dossier, toolchain: Toolchain, kernel: Kernel, rows: list[Row], cache: Path) -> list[Finding]:
    assert dossier.model is not None
    arch, dtype = dossier.card.arch, dossier.model.dtype
    routes = gemm_rows.vllm_routes(Sources(Path(dossier.knobs.path)))
    results = run_jobs(toolchain, [gemm_rows.job(kernel, row, arch, dtype) for row in rows], cache, EACH_S)
    found, fine = [], []
    for row, result in zip(rows, results, strict=True):
        evidence, others = _evidence(row, kernel, result, toolchain, arch), ""
        if routes is not None:
            evidence = (*evidence, _routed(row, *routes))
            if (row.n, row.k) not in routes[1]:
                others = "; only other callers of AITER's gemm_a16w16 reach this row, no linear layer of vLLM"
        one = result.kernel
        if one is None:
            found.append(
                Finding(
                    reader=NAME,
                    kind="trap" if result.outcome == "refused" else "fact",
                    title=f"The A16W16 GEMM row {row.key} does not compile for {arch}: {result.reason}{others}",
                    evidence=evidence,
                )
            )
        elif not one.fits:
            found.append(_too_much_lds(dossier, toolchain, kernel, row, one, evidence, others, cache))
        elif one.vgpr_spills:
            found.append(
                Finding(
                    reader=NAME,
                    kind="fact",
                    title=f"The A16W16 GEMM row {row.key} spills {one.vgpr_spills} registers to memory on {arch} "
                    f"({one.scratch_bytes} bytes a lane){others}",
                    evidence=evidence,
                    fix="Try a smaller tile or a lower waves_per_eu in this row; a spill costs memory traffic in the "
                    "inner loop, how much is only known on the card.",
                )
            )
        else:
            fine.append((row, one))
    if fine:
        found.append(_fine(fine, kernel, toolchain, arch))
    return found


def _evidence(row: Row, kernel: Kernel, result: Result, toolchain: Toolchain, arch: str) -> tuple[Evidence, ...]:
    said = result.kernel.words() if result.kernel else f"{result.outcome}: {result.reason}"
    return (
        Evidence(source=row.source, detail=json.dumps(row.entry)),
        Evidence(source=kernel.where, detail=f"{kernel.name}, M={row.m}, N={row.n}, K={row.k}"),
        Evidence(source=f"compiled with Triton {toolchain.triton} for {arch}", detail=said),
    )


def _routed(row: Row, where: str, shapes: set[tuple[int, int]]) -> Evidence:
    """Who calls the kernel at all: vLLM's linear layers do so for a list of shapes only."""
    listed = (row.n, row.k) in shapes
    said = "are among" if listed else "are not among"
    more = "" if listed else ", so only other callers of AITER's gemm_a16w16 reach this row"
    return Evidence(
        source=where,
        detail=f"N={row.n}, K={row.k} {said} the {len(shapes)} shapes for which vLLM takes this kernel{more}",
    )


def _too_much_lds(
    dossier: Dossier,
    toolchain: Toolchain,
    kernel: Kernel,
    row: Row,
    one: KernelEvidence,
    evidence: tuple[Evidence, ...],
    others: str,
    cache: Path,
) -> Finding:
    assert dossier.model is not None
    tries = gemm_rows.smaller(row.entry)
    jobs = [gemm_rows.job(kernel, row, one.arch, dossier.model.dtype, entry) for entry in tries]
    results = run_jobs(toolchain, jobs, cache, EACH_S)
    fitting = [(e, r.kernel) for e, r in zip(tries, results, strict=True) if r.kernel is not None and r.kernel.fits]
    fitting.sort(key=lambda pair: pair[1].vgpr_spills)  # stable: the smallest change first
    fix = f"Give {row.key} a smaller BLOCK_SIZE_K or num_stages; none of the {len(tries)} tried fits."
    if fitting:
        entry, other = fitting[0]
        fix = f"{json.dumps({row.key: entry}, indent=2)}\nThis fits: {other.words()}. Its speed has to be measured."
    return Finding(
        reader=NAME,
        kind="trap",
        title=f"The A16W16 GEMM row {row.key} needs {one.lds_bytes:,} bytes of LDS under Triton {toolchain.triton}, "
        f"{one.arch} has {one.lds_limit:,}: the kernel cannot be launched{others}",
        evidence=evidence,
        fix=fix,
        risk="low",
    )


def _fine(fine: list[tuple[Row, KernelEvidence]], kernel: Kernel, toolchain: Toolchain, arch: str) -> Finding:
    most = max(one.lds_bytes for _, one in fine)
    rows = "1 row of the A16W16 GEMM table fits" if len(fine) == 1 else f"{len(fine)} rows of the A16W16 GEMM table fit"
    return Finding(
        reader=NAME,
        kind="fact",
        title=f"{rows} {arch} without spills under Triton {toolchain.triton} "
        f"(LDS at most {most:,} of {fine[0][1].lds_limit:,} bytes)",
        evidence=tuple(
            Evidence(source=row.source, detail=f"{kernel.name}, N={row.n}, K={row.k}: {one.words()}")
            for row, one in fine
        ),
    )


def _not_compiled(kernel: Kernel, arch: str) -> Finding:
    return Finding(
        reader=NAME,
        kind="fact",
        title=f"{kernel.name} could not be taken out of its tree to be compiled for {arch}: {kernel.problems[0]}",
        evidence=tuple(Evidence(source=kernel.where, detail=problem) for problem in kernel.problems[:8]),
    )
