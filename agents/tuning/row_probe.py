"""Did the engine's own process look up the changed row, and the incumbent's another one? Pure.

The watcher wrote each first answer to a distinct question: table, question, row, file and key. B must have resolved the
row of the change's key as the change says, and A must not have resolved it so: neither under that key nor as its
answer to the same question (where a file holds equal rows, the key alone would not tell).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal

from pydantic import JsonValue

from agents.tuning.seen import blind, of_kind, seen_in
from contracts import Change, Lever, PathEvidence, Probe
from engine.asked import plain

WHOLE = "*"  # of a key: a whole table
SHOWN = 6  # rows of one arm that are kept as data
Row = dict[str, Any]


def judge_rows(change: Change, probe: Probe, log_a: str, log_b: str) -> PathEvidence:
    def told(
        outcome: Literal["proven", "absent", "unknown"],
        reason: str,
        a: Sequence[Row] = (),
        b: Sequence[Row] = (),
    ) -> PathEvidence:
        return PathEvidence(
            outcome=outcome,
            probe=probe,
            reason=reason,
            a=_data(a),
            b=_data(b),
            seen_in_a=_words(a),
            seen_in_b=_words(b),
        )

    lines_a, lines_b = seen_in(log_a), seen_in(log_b)
    if dark := blind(lines_a, lines_b):
        return told("unknown", dark)
    rows_a, rows_b = _of_table(probe, lines_a), _of_table(probe, lines_b)
    row = change.key.rpartition("#")[2]
    # The arm that has the row as it is looked for, the other one, and what it is looked for as.
    removed = change.after is None
    wanted = change.before if removed else change.after
    mine, other, arm = (rows_a, rows_b, "A") if removed else (rows_b, rows_a, "B")
    placed = [r for r in mine if _placed(change, r)]
    good = [r for r in placed if _holds(r["row"], _part(wanted, row, r))]
    if not good:
        if placed:
            reason = f"arm {arm} resolves {row} as {placed[0]['row']}, not as {wanted}"
        elif mine:
            keys = ", ".join(sorted({k for r in mine for k in r.get("row_keys", [])})) or "none that is in a file"
            reason = f"arm {arm} never looked {row} up under this load; rows that it did use: {keys}"
        else:
            reason = f"arm {arm} looked nothing up in this table under this load"
        return told("absent", reason, rows_a, rows_b)
    if not other:
        side = "B" if removed else "A"
        return told(
            "unknown", f"arm {side} looked nothing up in this table yet: nothing to compare with", rows_a, rows_b
        )
    questions = [r["asked"] for r in good]
    alike = [r for r in other if r["asked"] in questions]
    also = [r for r in other if (_placed(change, r) or r in alike) and _holds(r["row"], _part(wanted, row, r))]
    if row == WHOLE:  # some of its rows may be what the other arm has as well, not all that were looked up
        unchanged = [g for g in good if any((r["asked"], r["row"]) == (g["asked"], g["row"]) for r in alike)]
        also = unchanged if len(unchanged) == len(good) else []
    picked = (alike or other, good) if not removed else (good, alike or other)
    if also:
        return told("absent", f"both arms resolve {row} as {also[0]['row']}", *picked)
    answer = f"{alike[0]['row']} to the same question" if alike else "never that row"
    side = "B" if removed else "A"
    return told("proven", f"arm {arm} resolves {row} as {good[0]['row']}; arm {side}: {answer}", *picked)


def _of_table(probe: Probe, lines: Any) -> list[Row]:
    named = re.compile(probe.pattern)
    return [r for r in of_kind(lines, "table_row") if named.search(str(r.get("table"))) and "asked" in r and "row" in r]


def _placed(change: Change, row: Row) -> bool:
    """Is this an answer from the row that the change's key names?"""
    file, _, wanted = change.key.rpartition("#")
    keys = row.get("row_keys", [])
    if change.lever is Lever.AITER_CSV:
        return _of_family(file, row.get("file")) and _shaped(wanted, row["asked"])
    if change.lever is Lever.KERNEL_TABLE:
        return file == row["table"] and wanted in keys
    return f"/{row.get('file')}".endswith(f"/{file}") and (wanted in keys or (wanted == WHOLE and bool(keys)))


def _of_family(family: str, file: str | None) -> bool:
    """Two families have rows of one shape. Where the file is not told, the shape decides."""
    return file is None or PurePath(file).stem.startswith(family.removesuffix("_tuned_gemm"))


def _shaped(wanted: str, asked: dict[str, Any]) -> bool:
    """A CSV's answer does not say its key. The question does, up to M and token, which AITER may have rounded up to
    those of the row; what else the question holds (dtypes) the key may spell in another way."""
    cells = dict(part.split("=", 1) for part in wanted.split(",") if "=" in part)
    exact = [name for name in ("B", "N", "K", "model_dim", "inter_dim", "expert", "topk") if name in asked]
    if not exact or any(str(asked[name]) != cells.get(name) for name in exact):
        return False
    rows = [(asked[name], cells.get(name, "")) for name in ("M", "token") if name in asked]
    return all(cell.isdigit() and isinstance(size, int) and size <= int(cell) for size, cell in rows)


def _part(wanted: JsonValue, key: str, row: Row) -> JsonValue:
    """Of a whole table, the row that this answer is from."""
    if key != WHOLE:
        return wanted
    for path in row.get("row_keys", []):
        part: JsonValue = wanted
        for name in str(path).split("/"):
            part = part.get(name) if isinstance(part, dict) else None
        if part is not None:
            return part
    return None


def _holds(row: Any, wanted: JsonValue) -> bool:
    """All that both say is the same, and they have something to say in common (a CSV's row has more columns)."""
    if not isinstance(wanted, dict) or not isinstance(row, dict):
        return bool(_one(row) == _one(wanted))
    common = wanted.keys() & row.keys()
    return bool(common) and all(bool(_one(row[key]) == _one(wanted[key])) for key in common)


def _one(value: Any) -> Any:
    return plain("", value) if isinstance(value, str | int | float | bool) else value


def _data(rows: Sequence[Row]) -> dict[str, JsonValue]:
    kept: list[JsonValue] = list(rows[:SHOWN])
    return {"rows": kept, "distinct": len(rows)} if rows else {}


def _words(rows: Sequence[Row]) -> str | None:
    if not rows:
        return None
    first = rows[0]
    return f"{first['table']} {', '.join(first.get('row_keys', [])) or 'no row of a file'}: {first['row']}"[:300]
