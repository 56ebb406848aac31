"""Lever: one row of the tables of nightgate's own kernels, or whether a kernel serves inside vLLM.

    key  "w4a16_linear#8"           {"ROWS": 8, "N": 16, "WORDS": 64}: the row for up to 8 rows of x
    key  "add_rms_norm#dispatch"    true: it is asked before vLLM's own fused_add_rms_norm
    key  "w4a16_linear#dispatch"    true: it is asked before vLLM's own kernels for 4-bit linear layers

The tables and what they may hold are in kernels/nightgate_kernels/tables.py. What changes is written as one JSON file,
which NIGHTGATE_KERNEL_TABLES names; the kernels' folder goes on the engine's path, with the entry point that vLLM's
plugin loader looks for. All other rows are the built-in ones.

Evidence: the engine's process writes, once a row, when a launch resolves it,
"nightgate_kernels: table row KERNEL ROW -> {...} (from PATH)", and nothing without a table. Of a kernel that serves,
each call from vLLM's layers is counted. A row of a kernel that does not serve is never resolved, so its change is seen
to do nothing. Nothing here has been run inside an engine on a card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from agents.research.knobs import Knobs, near
from agents.tuning.levers import in_overlay
from agents.tuning.placed import Placed, PlacementError, write_whole
from agents.tuning.table_rows import split
from contracts import Lever, content_hash
from kernels.nightgate_kernels.tables import BUILT_IN, DISPATCH, ENV, SERVES, TableError, check

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
ENTRY = "[vllm.general_plugins]\nnightgate_kernels = nightgate_kernels.plugin:register\n"
METADATA = "Metadata-Version: 2.1\nName: nightgate-kernels\nVersion: 0.1.0\n"

# What vLLM must have for a kernel to serve: one of these files below its folder, and what stands in it.
WHERE = {
    "add_rms_norm": (("ir/ops/layernorm.py",), "def fused_add_rms_norm("),
    "w4a16_linear": (
        (
            "model_executor/kernels/linear/__init__.py",
            "model_executor/layers/quantization/kernels/mixed_precision/__init__.py",  # 0.16 and before
        ),
        "_POSSIBLE_KERNELS: ",
    ),
}

keys = partial(in_overlay.keys, Lever.KERNEL_TABLE)
read = partial(in_overlay.read, Lever.KERNEL_TABLE)
write = partial(in_overlay.write, Lever.KERNEL_TABLE)


def normalise(key: str) -> str:
    found = split(key)
    return f"{found.file}#{found.row}" if found else key.strip()


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    if fault := _fault(key, value):
        return fault
    found = split(key)
    if found is None or found.row != DISPATCH or value is not True or not knobs.path:
        return None
    files, line = WHERE[found.file]
    sources = [Path(knobs.path) / file for file in files]
    texts = [source.read_text(encoding="utf-8", errors="replace") for source in sources if source.is_file()]
    there = any(line in text for text in texts)
    return None if there else f"{knobs.named} has no {SERVES[found.file]}, so nothing would change"


def place(entries: Mapping[str, JsonValue], python: str, folder: Path, env: Mapping[str, str]) -> Placed:
    """Writes the table and the plugin's entry point below `folder`. Raises PlacementError."""
    if not entries:
        return Placed()
    table: dict[str, dict[str, JsonValue]] = {}
    for key, value in entries.items():
        found = split(key)
        if (fault := _fault(key, value)) or found is None:
            raise PlacementError(f"{key}: {fault}")
        table.setdefault(found.file, {})[found.row] = value
    path = folder / f"kernel_tables-{content_hash(dict(entries))}.json"
    plugin = folder / "plugin"
    entry = plugin / "nightgate_kernels-0.1.0.dist-info"
    write_whole(entry / "entry_points.txt", ENTRY.encode())
    write_whole(entry / "METADATA", METADATA.encode())
    write_whole(path, (json.dumps(table, indent=2, sort_keys=True) + "\n").encode())
    return Placed(env={ENV: str(path)}, python_path=(str(plugin), str(KERNELS)))


def _fault(key: str, value: JsonValue) -> str | None:
    found = split(key)
    if found is None:
        return f"{key[:80]!r} names no row: write KERNEL#ROW or KERNEL#{DISPATCH}"
    if found.file not in BUILT_IN:
        meant = near(found.file, BUILT_IN)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(BUILT_IN)}"
        return f"nightgate has no kernel {found.file}; {hint}"
    if value is None:
        return None
    try:
        check({found.file: {found.row: value}}, "kernel table")
    except TableError as error:
        return str(error)
    return None
