"""Which row of a fused-MoE table does this model reach, in vLLM's JSON or in AITER's CSV, and is the table sound?

Speed-up of a table of its own against vLLM's default tile: nobody published it for these cards. 1.10 of the expert
layers is judged; 1.05 where a table exists and the nearest key is far from the step's tokens.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from agents.research.dossier import Dossier
from agents.research.finding import Finding, Phase, Terms
from agents.research.model_shape import Experts
from agents.research.shares import share
from agents.research.tables.aiter_moe import aiter_moe_serves, csv_answer, unsound_sizes
from agents.research.tables.moe_json import (
    DTYPE_WORDS,
    Device,
    MoeName,
    devices,
    distance,
    file_name,
    names_in,
    nearest,
    parse_name,
    read_table,
    shipped_folder,
    shown_table,
)
from agents.research.tables.moe_sound import finding, no_matrix_cores, one_spelling, too_big, unsound
from agents.research.tables.quant_scheme import block_shape, expert_scheme, group_size
from agents.research.tables.steps import steps
from agents.research.tables.table_file import is_file, is_folder, read_source
from contracts import Change, Evidence, Lever

NAME = "moe_tables"
FOR_NIGHTS = True
FLAG = "kernel-config"
SPEEDUP_NEW, SPEEDUP_NEARER = 1.10, 1.05
PROBABILITY_NEW, PROBABILITY_BORROWED, PROBABILITY_NEARER = 0.4, 0.3, 0.25
FAR = 2.0  # a key this many times the step's tokens, or fewer, was tuned for other work
JUDGED_SHARE: dict[Phase, float] = {"prefill": 0.15, "decode": 0.25}
# Card time of benchmark_moe.py for one batch size, judged: it compiles some thousand tiles after pruning.
TUNER_S = 1200.0
PHASES: tuple[Phase, ...] = ("decode", "prefill")


def look(dossier: Dossier) -> list[Finding]:
    model = dossier.model
    if model is None or model.experts is None or dossier.card.kind != "amd":
        return []
    found = unsound_sizes(dossier, NAME)
    if aiter_moe_serves(dossier):
        return [*found, *_aiter(dossier, model.experts)]
    return [*found, *_vllm(dossier, model.experts)] if dossier.knobs.path else found


# --- AITER's fused MoE: tuned_fmoe.csv ---


def _aiter(dossier: Dossier, experts: Experts) -> list[Finding]:
    answers = csv_answer(dossier, experts)
    rows = [Evidence(source=a.source, detail=a.detail) for a in answers]
    title = f"AITER's fused MoE serves the experts: {sum(a.hit for a in answers)} of {len(answers)} lookups find a row"
    if not answers:
        title = "AITER's fused MoE serves the experts; there is no tuned_fmoe table to look at"
    fact = "VLLM_ROCM_USE_AITER is 1: vLLM's own fused-MoE JSON tables are not asked"
    found = [finding("fact", title, [*rows, Evidence(source="tonight's engine configuration", detail=fact)])]
    for answer in answers:
        if not answer.hit:
            fix = (
                f"printf '{answer.untuned}\\n' > untuned.csv\n"
                "python3 csrc/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py -i untuned.csv -o tuned_fmoe_more.csv\n"
                "then name tuned_fmoe.csv, the model_configs that are to count and this file in AITER_CONFIG_FMOE"
            )
            title = f"experts in {answer.phase} ({answer.tokens} tokens) have no row in AITER's tuned_fmoe"
            terms = _terms(dossier, answer.phase, SPEEDUP_NEW, PROBABILITY_NEW, TUNER_S)
            found.append(
                finding("opportunity", title, [Evidence(source=answer.source, detail=answer.detail)], fix, terms)
            )
    return found


# --- vLLM's own: fused_moe/configs ---


def _vllm(dossier: Dossier, experts: Experts) -> list[Finding]:
    if dossier.model is None:
        return []
    vllm, scheme = Path(dossier.knobs.path), expert_scheme(dossier.model)
    word = DTYPE_WORDS.get(scheme)
    folder = shipped_folder(vllm)
    if word is None or folder is None:
        why = f"{scheme} experts ask for no table" if word is None else "no folder of fused-MoE tables was found"
        return [finding("fact", f"vLLM's fused-MoE tables do not matter: {why}", [Evidence(source="vllm", detail=why)])]
    count, width = _split(dossier, experts)
    block = (block_shape(dossier.model) or (128, 128)) if scheme == "fp8_block" else ()
    device = devices(vllm, dossier.card.name)
    own = dossier.spec.env.get("VLLM_TUNED_CONFIG_FOLDER")
    folders = [*([Path(own)] if own else []), folder]
    wanted = [file_name(count, width, name, word, block) for name in device.names]
    shipped = names_in(folder)
    found = unsound(dossier, vllm, folders, device)
    there = [(name, path) for name in wanted if (path := _first(folders, name)) is not None]
    if own and not is_folder(Path(own)):
        detail = "VLLM_TUNED_CONFIG_FOLDER names no folder: vLLM falls back to its own tables without a word"
        found.append(finding("trap", detail, [Evidence(source="tonight's engine configuration", detail=own)]))
    if there and len(there) < len(wanted):
        found.append(one_spelling(device, wanted, there, vllm))
    found += _flydsl(dossier, vllm, folder, count, width, device)
    if not there:
        return [*found, *_missing(dossier, vllm, folder, device, wanted, shipped, word)]
    table = read_table(there[0][1])
    if isinstance(table, str):
        return found  # unsound() told it
    return [*found, *_keys(dossier, shown_table(there[0][1], vllm), table, word, count, width)]


def _flydsl(dossier: Dossier, vllm: Path, folder: Path, count: int, width: int, device: Device) -> list[Finding]:
    """vLLM's other kernel for 4-bit experts has tables of its own, and is taken only when asked for by name
    (compressed_tensors_moe.py, 0.33.0: groups of 32, gfx950, no LoRA)."""
    source = vllm / "model_executor/layers/quantization/compressed_tensors/compressed_tensors_moe"
    place = source / "compressed_tensors_moe.py"
    gate, model = read_source(place), dossier.model
    names = [file_name(count, width, name, DTYPE_WORDS["int4"], backend="flydsl") for name in device.names]
    there = next((folder / name for name in names if is_file(folder / name)), None)
    held = dossier.spec.flags.get(FLAG)
    held = held if isinstance(held, dict) else {}
    if there is None or model is None or expert_scheme(model) != "int4" or 'moe_backend == "flydsl"' not in gate:
        return []
    if model.quantization != "compressed-tensors" or group_size(model) != 32 or held.get("moe_backend") == "flydsl":
        return []
    if f"on_{dossier.card.arch}()" not in gate:
        return []
    line = gate.count("\n", 0, gate.index('moe_backend == "flydsl"')) + 1
    known = "moe_backend" in dossier.knobs.flag_keys.get(FLAG, ())
    before = dossier.spec.flags.get(FLAG)
    change = Change(lever=Lever.ENGINE_FLAG, key=FLAG, before=before, after={**held, "moe_backend": "flydsl"})
    return [
        Finding(
            reader=NAME,
            kind="opportunity",
            title=f"vLLM ships a FlyDSL table for these experts (E={count}, N={width}) that is not asked for",
            evidence=(
                Evidence(
                    source=shown_table(there, vllm), detail="a tuned table of this card for AITER's FlyDSL kernel"
                ),
                Evidence(source=f"{shown_table(place, vllm)}:{line}", detail="taken only with moe_backend flydsl"),
            ),
            fix='--kernel-config \'{"moe_backend": "flydsl"}\'',
            change=change if known else None,
            terms=_terms(dossier, "decode", SPEEDUP_NEW, PROBABILITY_NEW, 0.0),
            risk="medium",  # another kernel computes the experts
        )
    ]


def _split(dossier: Dossier, experts: Experts) -> tuple[int, int]:
    """(E, N) of a rank: the experts' width is cut, or with expert parallelism their number."""
    ranks = dossier.tensor_parallel
    if dossier.spec.flags.get("enable-expert-parallel") is True:
        return experts.count // ranks, experts.intermediate
    return experts.count, experts.intermediate // ranks


def _first(folders: list[Path], name: str) -> Path | None:
    return next((f / name for f in folders if is_file(f / name)), None)


def _keys(
    dossier: Dossier, source: str, table: dict[int, dict[str, Any]], word: str, count: int, width: int
) -> list[Finding]:
    sizes, rows, far = steps(dossier), [], []
    for phase in PHASES:
        m, why = sizes.of(phase)
        key = nearest(table, m)
        ratio = distance(key, m)
        tile = ", ".join(f"{k} {v}" for k, v in table[key].items())
        rows.append(Evidence(source=f"{source}#{key}", detail=f"{phase}, {m} tokens ({why}): {tile}"))
        if ratio >= FAR:
            far.append((phase, m, key, ratio, rows[-1]))
    found = [
        finding("fact", f"vLLM has a fused-MoE table for this model: E={count}, N={width}, {len(table)} sizes", rows)
    ]
    for phase, m, key, ratio, row in far:
        title = (
            f"experts in {phase} ({m} tokens) take the row of {key} tokens, {ratio:.1f} times off: the nearest there is"
        )
        terms = _terms(dossier, phase, SPEEDUP_NEARER, PROBABILITY_NEARER, TUNER_S)
        fix = f"add a row {m} to a copy of the table.\n{_tune(dossier, word, [m])}"
        found.append(finding("opportunity", title, [row], fix, terms))
    return found


def _missing(
    dossier: Dossier,
    vllm: Path,
    folder: Path,
    device: Device,
    wanted: list[str],
    shipped: list[MoeName],
    word: str,
) -> list[Finding]:
    from_here, sizes = shown_table(folder / "x", vllm).rsplit("/", 1)[0], steps(dossier)
    mine = sorted({n.file for n in shipped if n.device in device.names})
    amd = sorted({n.device for n in shipped if n.device.startswith("AMD")})
    asked = Evidence(source=from_here, detail=f"asked for {' or '.join(wanted)}: not there ({device.source})")
    kin = _kin(dossier, folder, wanted[0], shipped)
    rows = [
        asked,
        Evidence(source=from_here, detail=f"{len(mine)} tables of this card: {', '.join(mine[:4]) or 'none'}"),
        Evidence(source=from_here, detail=f"AMD devices with tables: {', '.join(amd) or 'none'}"),
    ]
    found = []
    for phase in PHASES:
        m, why = sizes.of(phase)
        title = f"experts in {phase} ({m} tokens) run on vLLM's default tile: no fused-MoE table for {wanted[0]}"
        terms = _terms(dossier, phase, SPEEDUP_NEW, PROBABILITY_NEW, TUNER_S)
        more = Evidence(source="tokens of a step", detail=why)
        found.append(finding("opportunity", title, [*rows, more], _tune(dossier, word, [m]), terms))
    if kin:
        title = (
            f"{len(kin)} other AMD device names have a fused-MoE table of this shape: {kin[0].device}'s can be tried "
            "before any tuning"
        )
        fix = (
            f"mkdir tuned && cp '{from_here}/{kin[0].file}' 'tuned/{wanted[0]}'\n"
            "start the engine with VLLM_TUNED_CONFIG_FOLDER=tuned"
        )
        borrowed = PROBABILITY_BORROWED * (0.3 if no_matrix_cores(dossier) else 1.0)
        terms = _terms(dossier, "decode", SPEEDUP_NEARER, borrowed, 0.0)
        names = [Evidence(source=f"{from_here}/{n.file}", detail="the same experts, width and dtype") for n in kin]
        found.append(finding("opportunity", title, names, fix, terms, risk="medium"))
    return found


def _kin(dossier: Dossier, folder: Path, wanted: str, shipped: list[MoeName]) -> list[MoeName]:
    """AMD tables that differ from the wanted file in the device only and whose tiles fit this card's LDS, the device
    whose name is most alike first."""
    asked = parse_name(wanted)
    if asked is None:
        return []
    found = []
    for named in shipped:
        if named.device.startswith("AMD") and named.model_copy(update={"device": asked.device}) == asked:
            table = read_table(folder / named.file)
            if not isinstance(table, str) and not any(too_big(dossier, e, named.dtype) for e in table.values()):
                found.append(named)
    return sorted(found, key=lambda n: -SequenceMatcher(None, n.device, asked.device).ratio())


def _tune(dossier: Dossier, word: str, sizes: list[int]) -> str:
    dtype = word if word in ("fp8_w8a8", "int8_w8a16", "int4_w4a16") else "auto"
    ranks = dossier.tensor_parallel
    return (
        f"python3 benchmarks/kernels/benchmark_moe.py --model <model> --tp-size {ranks} --dtype {dtype} "
        f"--batch-size {' '.join(map(str, sizes))} --tune --save-dir tuned   # from a vLLM checkout\n"
        "start the engine with VLLM_TUNED_CONFIG_FOLDER=tuned (searched before vLLM's own tables)"
    )


def _terms(dossier: Dossier, phase: Phase, speedup: float, probability: float, tuner_s: float) -> Terms:
    held = share(dossier, phase, "moe")
    value = JUDGED_SHARE[phase] if held is None else held.value
    return Terms(
        phase=phase,
        share=value,
        share_from=f"judged: the experts take {value:.0%} of all time in {phase}" if held is None else held.words,
        share_measured=held is not None and held.measured,
        speedup=speedup,
        speedup_from="judged: nobody published what a table of its own gains on these cards",
        probability=probability,
        cost_s=dossier.cost_s() + tuner_s,
    )
