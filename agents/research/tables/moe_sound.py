"""Are the fused-MoE tables of this card sound, whatever model they are for? And is the model's own there under every
name that the card may have?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms, plural
from agents.research.tables.lds import lds_need, not_powers_of_two
from agents.research.tables.moe_json import BITS, MFMA_ONLY, Device, names_in, read_table, shown_table
from contracts import Change, Evidence

READER = "moe_tables"
MOST_NAMED = 8


def unsound(dossier: Dossier, vllm: Path, folders: list[Path], device: Device) -> list[Finding]:
    """Tables of this card, whatever model they are for."""
    broken, big, odd, matrix = [], [], [], []
    limit = int(dossier.sheet.lds_bytes.value) if dossier.sheet else 0
    no_mfma = no_matrix_cores(dossier)
    for folder in folders:
        for named in names_in(folder):
            if named.device not in device.names or named.backend:
                continue
            path = folder / named.file
            source, table = shown_table(path, vllm), read_table(path)
            if isinstance(table, str):
                broken.append(Evidence(source=source, detail=table))
                continue
            for size, entry in table.items():
                row = f"{source}#{size}"
                if told := too_big(dossier, entry, named.dtype):
                    big.append(Evidence(source=row, detail=told))
                if wrong := not_powers_of_two(entry):
                    odd.append(Evidence(source=row, detail=", ".join(wrong)))
                if no_mfma and (keys := [k for k in MFMA_ONLY if k in entry]):
                    matrix.append(Evidence(source=row, detail=", ".join(f"{k} {entry[k]}" for k in keys)))
    found = []
    if broken:
        fix = "repair or remove the file: the engine raises while it loads the model"
        title = f"{plural(len(broken), 'fused-MoE table')} of this card cannot be read"
        found.append(finding("trap", title, broken, fix))
    if big:
        title = f"{len(big)} fused-MoE entries of this card need more LDS than its {limit} bytes (estimate)"
        found.append(finding("trap", title, big, "fewer num_stages or a smaller BLOCK_SIZE_K"))
    if odd:
        found.append(finding("trap", f"{len(odd)} fused-MoE entries have sizes that are no powers of two", odd))
    if matrix:
        title = (
            f"{len(matrix)} fused-MoE entries name matrix-core settings, and {dossier.card.arch} has no matrix cores"
        )
        fix = "the settings do nothing here at best: the table was tuned on another card"
        found.append(finding("trap", title, matrix, fix))
    return found


def one_spelling(device: Device, wanted: list[str], there: list[tuple[str, Path]], vllm: Path) -> Finding:
    held, lacking = there[0][0], next(name for name in wanted if name not in {n for n, _ in there})
    rows = [
        Evidence(source=shown_table(there[0][1], vllm), detail="there"),
        Evidence(source=lacking, detail="not there, and the driver may call the card so"),
        Evidence(
            source=device.source, detail="vLLM's map of device ids has neither name: the driver's market name decides"
        ),
    ]
    fix = (
        "python -c 'from vllm.utils.platform_utils import get_device_name_as_file_name as n; print(n())' tells the "
        "name; "
        f"where it is the other one, copy the table to {lacking} in VLLM_TUNED_CONFIG_FOLDER"
    )
    title = f"the fused-MoE table of this card is there under one of its {len(wanted)} spellings only: {held}"
    return finding("trap", title, rows, fix)


def too_big(dossier: Dossier, entry: dict[str, Any], dtype: str) -> str:
    """The tile and its bytes where even the lean estimate is above the card's LDS, else ""."""
    need = lds_need(entry, BITS.get(dtype, (16, 16)))
    if dossier.sheet is None or need is None or need.lean <= dossier.sheet.lds_bytes.value:
        return ""
    return f"{need.tile}: {need.lean} to {need.bytes} bytes"


def no_matrix_cores(dossier: Dossier) -> bool:
    """Of an AMD card: what a table says for them means nothing there."""
    sheet = dossier.sheet
    amd = sheet is not None and sheet.kind == "amd"
    return amd and sheet is not None and ("mfma" in sheet.absent or "mfma" not in sheet.native)


def finding(
    kind: Literal["opportunity", "trap", "fact"],
    title: str,
    rows: list[Evidence],
    fix: str = "",
    terms: Terms | None = None,
    risk: Literal["low", "medium", "high"] = "low",
    change: Change | None = None,
) -> Finding:
    named, left = tuple(rows[:MOST_NAMED]), len(rows[MOST_NAMED:])
    held = {"fix": fix, "terms": terms, "risk": risk, "change": change}
    return Finding(reader=READER, kind=kind, title=title, evidence=named, unnamed=left, **held)
