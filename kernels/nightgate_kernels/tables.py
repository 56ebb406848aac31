"""The tiles of the kernels here, and which of them serve inside vLLM: what a night may change, without a kernel's code.

NIGHTGATE_KERNEL_TABLES names a JSON file, {"<kernel>": {"<row>": {...}, "dispatch": true}}; what it says replaces the
row of that name, all else stays. It is read once, when the first kernel is imported. A kernel, a row or a key that is
not known here is refused with one line: a table that is silently ignored would be measured as if it had been used.

With such a file, the first time that a row is resolved in a process one line goes to standard error, for whoever has to
see that it was ("built in" for a row that the file does not change):

    nightgate_kernels: table row w4a16_linear 8 -> {"N": 16, "ROWS": 8, "WORDS": 64} (from /path/kernel_tables.json)

Nothing heavy is imported: the loop's process reads the rows here too.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

ENV = "NIGHTGATE_KERNEL_TABLES"
DISPATCH = "dispatch"

# A row's name is the largest size that it serves, rows of x or elements of a row.
#
# w4a16_linear, 4 warps throughout. Not tuned: chosen so that a program holds at most 8 * 8 * 64 sums, 16 registers for
# each of 256 lanes: with 8 rows gfx906 takes 96 of its 256 registers and spills none (compile_for_amd.py, Triton
# 3.9.0).
# add_rms_norm: 16 warps of 64 lanes are all that a block may have.
BUILT_IN: dict[str, dict[str, dict[str, int]]] = {
    "w4a16_linear": {
        "1": {"ROWS": 1, "N": 8, "WORDS": 64},
        "2": {"ROWS": 2, "N": 8, "WORDS": 64},
        "4": {"ROWS": 4, "N": 8, "WORDS": 64},
        "8": {"ROWS": 8, "N": 8, "WORDS": 64},
    },
    "add_rms_norm": {"2048": {"num_warps": 4}, "8192": {"num_warps": 8}, "16384": {"num_warps": 16}},
}
# Above as many rows w4a16_linear's weights are unpacked once instead of read again for every 8 rows: by bytes equal at
# 72 (0.5 a weight and pass, against 0.5 read, 2 written and 2 read), by a gfx906's published peaks at 67. Not measured.
W4A16_MOST_ROWS = 64
# Where each kernel can serve inside vLLM: serve_KERNEL.py.
SERVES = {
    "add_rms_norm": "vllm.ir.ops.fused_add_rms_norm",
    "w4a16_linear": "vllm.model_executor.kernels.linear",
}


class TableError(ValueError):
    """A table that cannot be used. One line with what to do."""


def check(told: object, where: str = ENV) -> None:
    """Raises TableError unless `told` is {"<kernel>": {"<row>": {<key>: whole number, a power of two}}}."""
    if not isinstance(told, dict):
        raise TableError(f"{where}: a table is an object of kernels: {', '.join(BUILT_IN)}")
    for kernel, rows in told.items():
        if kernel not in BUILT_IN:
            raise TableError(f"{where}: there is no kernel {kernel}; there are {', '.join(BUILT_IN)}")
        if not isinstance(rows, dict):
            raise TableError(f"{where}: {kernel} takes an object of rows")
        for row, value in rows.items():
            _check_row(kernel, row, value, where)


def _check_row(kernel: str, row: str, value: object, where: str) -> None:
    known = BUILT_IN[kernel]
    if row == DISPATCH:
        if not isinstance(value, bool):
            raise TableError(f"{where}: {kernel} {DISPATCH} is true or false, not {value!r}")
        return
    if row not in known:
        raise TableError(f"{where}: {kernel} has no row {row}; it has {', '.join(known)} and {DISPATCH}")
    if not isinstance(value, dict) or set(value) != set(known[row]):
        raise TableError(f"{where}: {kernel} {row} takes exactly the keys {', '.join(known[row])}")
    for key, number in value.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1 or number & (number - 1):
            raise TableError(f"{where}: {kernel} {row} {key} takes a power of two, not {number!r}")
    if value.get("num_warps", 1) > 16:
        raise TableError(f"{where}: {kernel} {row}: 16 warps of 64 lanes are all that a block may have")


@functools.cache
def _told() -> tuple[Mapping[str, Mapping[str, object]], str]:
    """(what the file says, its path); ({}, "") without one. Raises TableError."""
    path = os.environ.get(ENV)
    if not path:
        return {}, ""
    try:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise TableError(f"{ENV}={path} cannot be read ({problem}): name a JSON file, or unset it") from None
    check(told, path)
    return told, path


def rows_of(kernel: str) -> dict[str, dict[str, int]]:
    """All rows of a kernel, the smallest size first. Raises TableError."""
    told, _ = _told()
    changed = {row: value for row, value in told.get(kernel, {}).items() if isinstance(value, dict)}
    return {row: dict(changed.get(row, value)) for row, value in BUILT_IN[kernel].items()}


@functools.lru_cache(maxsize=4096)  # asked at every launch
def row_for(kernel: str, size: int) -> Mapping[str, int]:
    """The row that serves `size`: the first that is large enough, else the last."""
    rows = rows_of(kernel)
    row = next((name for name in rows if size <= int(name)), list(rows)[-1])
    _say(kernel, row)
    return rows[row]


def dispatched(kernel: str) -> bool:
    """Whether the kernel is to serve inside vLLM; not unless a table says so."""
    told, _ = _told()
    return told.get(kernel, {}).get(DISPATCH) is True


@functools.cache
def _say(kernel: str, row: str) -> None:
    told, path = _told()
    if not path:
        return
    where = f"from {path}" if row in told.get(kernel, {}) else "built in"
    value = json.dumps(rows_of(kernel)[row], sort_keys=True)
    print(f"nightgate_kernels: table row {kernel} {row} -> {value} ({where})", file=sys.stderr, flush=True)
