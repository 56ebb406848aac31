"""Which row of a fused-MoE table does this model reach, in vLLM's JSON or in AITER's CSV, and is the table sound?

Speed-up of a table of its own against vLLM's default tile: nobody published it for these cards. 1.10 of the expert
layers is judged; 1.05 where a table exists and the nearest key is far from the step's tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agents.research.dossier import Dossier
from agents.research.finding import Finding, Phase, Terms
from agents.research.model_shape import Experts
from agents.research.row_change import Candidate, changes
from agents.research.shares import share
from agents.research.tables.aiter_moe import aiter_moe_serves, csv_answer, unsound_sizes
from agents.research.tables.csv_rows import Families, csv_rows
from agents.research.tables.gemm_csv import families
from agents.research.tables.moe_json import (
    DTYPE_WORDS,
    Device,
    MoeName,
    devices,
    distance,
    file_name,
    names_in,
    nearest,
    read_table,
    shipped_folder,
    shown_table,
)
from agents.research.tables.moe_logged import asked_for
from agents.research.tables.moe_rows import Lent, lenders, rows_for, tables_for
from agents.research.tables.moe_sound import finding, no_matrix_cores, one_spelling, unsound
from agents.research.tables.quant_scheme import block_shape, expert_scheme, group_size
from agents.research.tables.steps import steps
from agents.research.tables.table_file import is_file, is_folder, read_source
from contracts import Change, Evidence, Lever

NAME = "moe_tables"
FOR_NIGHTS = True
FLAG = "kernel-config"
SPEEDUP_NEW, SPEEDUP_NEARER = 1.10, 1.05
PROBABILITY_NEW, PROBABILITY_BORROWED, PROBABILITY_NEARER = 0.4, 0.3, 0.25
PROBABILITY_COPIED = 0.15  # of a row that nobody tuned for this size or this card; judged
SILU = {"act_type": "ActivationType.Silu", "dtype": "torch.bfloat16", "use_g1u1": "1", "doweight_stage1": "0"}
# Of the probability, where the engine's log names no table: vLLM warns of one that it does not find. Judged.
NOT_ASKED = 0.3
FAR = 2.0  # a key this many times the step's tokens, or fewer, was tuned for other work
JUDGED_SHARE: dict[Phase, float] = {"prefill": 0.15, "decode": 0.25, "all": 0.4}
# Card time of benchmark_moe.py for one batch size, judged: it compiles some thousand tiles after pruning.
TUNER_S = 1200.0
MOST_WORDS = 400  # characters of a tile in a finding: a damaged table holds anything
PHASES: tuple[Phase, ...] = ("decode", "prefill")


def look(dossier: Dossier) -> list[Finding]:
    model = dossier.model
    if model is None or model.experts is None or dossier.card.kind not in ("amd", "nvidia"):
        return []
    found = unsound_sizes(dossier, NAME) if dossier.card.kind == "amd" else []
    if aiter_moe_serves(dossier):
        return [*found, *_aiter(dossier, model.experts)]
    return [*found, *_vllm(dossier, model.experts)] if dossier.knobs.path else found


# --- AITER's fused MoE: tuned_fmoe.csv ---


def _aiter(dossier: Dossier, experts: Experts) -> list[Finding]:
    answers = csv_answer(dossier, experts)
    tables = Families(Path(dossier.aiter), families(Path(dossier.aiter)) if dossier.aiter else {}, dossier.spec.env)
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
            asked = Evidence(source=answer.source, detail=answer.detail)
            near = csv_rows(tables, "tuned_fmoe", ("token", answer.tokens), answer.shape, SILU)
            tried = changes(dossier, near, PROBABILITY_COPIED)
            for number, (one, change, likely) in enumerate(tried, 1):
                words = f"{title}; {one.words} can be tried there ({number} of {len(tried)})"
                told = [asked, Evidence(source=one.source, detail=f"proposed for {answer.tokens} tokens: {one.row}")]
                terms = _terms(dossier, answer.phase, SPEEDUP_NEARER, likely, 0.0)
                found.append(finding("opportunity", words, told, fix, terms, risk="medium", change=change))
            if not tried:
                terms = _terms(dossier, answer.phase, SPEEDUP_NEW, PROBABILITY_NEW, TUNER_S)
                found.append(finding("opportunity", title, [asked], fix, terms))
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
    device = _device(dossier, vllm, MoeName(experts=count, width=width, device="", dtype=word, block=tuple(block)))
    own = dossier.spec.env.get("VLLM_TUNED_CONFIG_FOLDER")
    folders = [*([Path(own)] if own else []), folder]
    names = [MoeName(experts=count, width=width, device=d, dtype=word, block=tuple(block)) for d in device.names]
    wanted = [name.file for name in names]
    shipped = names_in(folder)
    found = unsound(dossier, vllm, folders, device)
    there = [(name, path) for name in wanted if (path := _first(folders, name)) is not None]
    if own and not is_folder(Path(own)):
        detail = "VLLM_TUNED_CONFIG_FOLDER names no folder: vLLM falls back to its own tables without a word"
        found.append(finding("trap", detail, [Evidence(source="tonight's engine configuration", detail=own)]))
    if there and len(there) < len(wanted):
        found.append(one_spelling(device, wanted, there, vllm))
    found += _flydsl(dossier, vllm, folder, count, width, device)
    asked = names[wanted.index(there[0][0])] if there else names[0]
    usable = not own or is_folder(Path(own))  # else the lever has no base to lay a row over
    lent = lenders(dossier, folder, asked, shipped) if usable else []
    if not there:
        return [*found, *_missing(dossier, vllm, folder, device, names, shipped, word, lent)]
    table = read_table(there[0][1])
    if isinstance(table, str):
        return found  # unsound() told it
    source = shown_table(folder / "x", vllm).rsplit("/", 1)[0]

    def candidates(m: int) -> list[Candidate]:
        return rows_for(dossier, asked, table, m, lent, source, vllm) if usable else []

    return [*found, *_keys(dossier, shown_table(there[0][1], vllm), table, word, count, width, candidates)]


def _device(dossier: Dossier, vllm: Path, shape: MoeName) -> Device:
    """As the engine's own log calls the card, where it has asked for a table of this shape; else by the card's name."""
    logged = asked_for(dossier.engine_logs)
    mine = [name for name in logged if name.model_copy(update={"device": ""}) == shape]
    if not mine:
        return devices(vllm, dossier.card.name)
    return Device(names=(mine[0].device,), sure=True, source=logged[mine[0]])


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
    dossier: Dossier,
    source: str,
    table: dict[int, dict[str, Any]],
    word: str,
    count: int,
    width: int,
    candidates: Callable[[int], list[Candidate]],
) -> list[Finding]:
    sizes, rows, far = steps(dossier), [], []
    for phase in PHASES:
        m, why = sizes.of(phase)
        key = nearest(table, m)
        ratio = distance(key, m)
        detail = f"{phase}, {m} tokens ({why}): {_tile(table[key])}"
        rows.append(Evidence(source=f"{source}#{key}", detail=detail))
        if ratio >= FAR:
            far.append((phase, m, key, ratio, rows[-1]))
    found = [
        finding("fact", f"vLLM has a fused-MoE table for this model: E={count}, N={width}, {len(table)} sizes", rows)
    ]
    for phase, m, key, ratio, row in far:
        title = (
            f"experts in {phase} ({m} tokens) take the row of {key} tokens, {ratio:.1f} times off: the nearest there is"
        )
        fix = f"add a row {m} to a copy of the table.\n{_tune(dossier, word, [m])}"
        tried = changes(dossier, candidates(m), PROBABILITY_COPIED)
        for number, (one, change, likely) in enumerate(tried, 1):
            words = f"{title}; {one.words} can be tried there ({number} of {len(tried)})"
            rows = [row, Evidence(source=one.source, detail=f"proposed for {m} tokens: {one.words}; {_tile(one.row)}")]
            terms = _terms(dossier, phase, SPEEDUP_NEARER, likely, 0.0)
            found.append(finding("opportunity", words, rows, fix, terms, change=change))
        if not tried:
            terms = _terms(dossier, phase, SPEEDUP_NEARER, PROBABILITY_NEARER, TUNER_S)
            found.append(finding("opportunity", title, [row], fix, terms))
    return found


def _tile(row: JsonValue) -> str:
    words = ", ".join(f"{name} {value}" for name, value in row.items()) if isinstance(row, dict) else ""
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]} ..."


def _missing(
    dossier: Dossier,
    vllm: Path,
    folder: Path,
    device: Device,
    names: list[MoeName],
    shipped: list[MoeName],
    word: str,
    lent: list[Lent],
) -> list[Finding]:
    wanted = [name.file for name in names]
    from_here, sizes = shown_table(folder / "x", vllm).rsplit("/", 1)[0], steps(dossier)
    mine = sorted({n.file for n in shipped if n.device in device.names})
    maker = "NVIDIA" if dossier.card.kind == "nvidia" else "AMD"
    makers = sorted({n.device for n in shipped if n.device.startswith(maker)})
    asked = Evidence(source=from_here, detail=f"asked for {' or '.join(wanted)}: not there ({device.source})")
    rows = [
        asked,
        Evidence(source=from_here, detail=f"{len(mine)} tables of this card: {', '.join(mine[:4]) or 'none'}"),
        Evidence(source=from_here, detail=f"{maker} devices with tables: {', '.join(makers) or 'none'}"),
    ]
    found = []
    for phase in PHASES:
        m, why = sizes.of(phase)
        title = f"experts in {phase} ({m} tokens) run on vLLM's default tile: no fused-MoE table for {wanted[0]}"
        terms = _terms(dossier, phase, SPEEDUP_NEW, PROBABILITY_NEW, TUNER_S)
        more = Evidence(source="tokens of a step", detail=why)
        found.append(finding("opportunity", title, [*rows, more], _tune(dossier, word, [m]), terms))
    return [*found, *_borrowed(dossier, from_here, device, names, lent)]


def _borrowed(dossier: Dossier, folder: str, device: Device, asked: list[MoeName], lent: list[Lent]) -> list[Finding]:
    """Whole tables of others, each a change of its own: which of them suits this card is for a night to find out."""
    wanted, found = asked[0].file, []
    base = PROBABILITY_BORROWED * (0.3 if no_matrix_cores(dossier) else 1.0)
    silent = bool(dossier.engine_logs) and not asked_for(dossier.engine_logs)
    base *= NOT_ASKED if silent else 1.0
    tried = changes(dossier, tables_for(asked, lent, folder), base)
    for number, (one, change, probability) in enumerate(tried, 1):
        title = (
            f"experts run on vLLM's default tile, without a table {wanted}: {one.words} can be tried before any tuning "
            f"({number} of {len(tried)})"
        )
        target = one.key.removesuffix("#*")
        fix = f"mkdir tuned && cp '{one.source}' 'tuned/{target}'\nstart the engine with VLLM_TUNED_CONFIG_FOLDER=tuned"
        rows = [
            Evidence(source=one.source, detail=f"{one.words}; nobody tuned it for this card"),
            Evidence(source=device.source, detail=f"the card may be called {' or '.join(device.names)}"),
        ]
        if silent:
            told = "names no fused-MoE table, found or not: another kernel may serve the experts"
            rows.append(Evidence(source=Path(dossier.engine_logs[0]).name, detail=told))
        terms = _terms(dossier, "all", SPEEDUP_NEARER, probability, 0.0)
        found.append(finding("opportunity", title, rows, fix, terms, risk="medium", change=change))
    return found


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
