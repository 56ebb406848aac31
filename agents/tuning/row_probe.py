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
    placed = [r for r in mine if _placed(change, r, laid=True)]
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
    side = "B" if removed else "A"
    answers = [(g, [r for r in other if _same(g, r)]) for g in good]
    alike = [r for _, told_other in answers for r in told_other]
    changed = [  # one question, two answers
        (g, held) for g, held in answers if held and not any(_holds(r["row"], _part(wanted, row, g)) for r in held)
    ]
    shown = [r for _, held in changed for r in held] or alike or other
    picked = (shown, good) if not removed else (good, shown)
    if changed:
        one, held = changed[0]
        answer = f"{held[0]['row']} to the same question"
        return told("proven", f"arm {arm} resolves {row} as {one['row']}; arm {side}: {answer}", *picked)
    alone = [g for g, held in answers if not held]
    also = alike if not alone else []
    if row != WHOLE:  # of a whole table, some rows may be what the other arm has as well
        also = also or [r for r in other if _placed(change, r) and _holds(r["row"], wanted)]
    if also:
        return told("absent", f"both arms resolve {row} as {also[0]['row']}", *picked)
    # Equal rows of one file are told together, and then the key alone does not say which of them answered.
    clear = [g for g in alone if row == WHOLE or len(g.get("row_keys", [])) < 2]
    if not clear:
        keys = ", ".join(good[0]["row_keys"])
        why = f"arm {arm} resolves one of the equal rows {keys}, and arm {side} was not asked the same"
        return told("unknown", why, *picked)
    return told("proven", f"arm {arm} resolves {row} as {clear[0]['row']}; arm {side}: never that row", *picked)


def _same(one: Row, other: Row) -> bool:
    """The same question: two tables may be asked in the same words."""
    return (one.get("table"), one["asked"]) == (other.get("table"), other["asked"])


def _of_table(probe: Probe, lines: Any) -> list[Row]:
    named = re.compile(probe.pattern)
    return [r for r in of_kind(lines, "table_row") if named.search(str(r.get("table"))) and "asked" in r and "row" in r]


def _placed(change: Change, row: Row, laid: bool = False) -> bool:
    """Is this an answer from the row that the change's key names? `laid`: of the arm whose file is nightgate's own."""
    file, _, wanted = change.key.rpartition("#")
    keys = row.get("row_keys", [])
    if change.lever is Lever.AITER_CSV:
        return _of_family(file, row.get("file"), laid) and _shaped(wanted, row["asked"])
    if change.lever is Lever.KERNEL_TABLE:
        return file == row["table"] and wanted in keys
    return f"/{row.get('file')}".endswith(f"/{file}") and (wanted in keys or (wanted == WHOLE and bool(keys)))


def _of_family(family: str, file: str | None, laid: bool) -> bool:
    """Two families have rows of one shape, and the name of one may begin with the other's (a8w8, a8w8_bpreshuffle): a
    file that nightgate laid has its family's whole name. Where the file is not told, the shape decides."""
    stem = None if file is None else PurePath(file).stem
    return stem is None or stem == family or (not laid and stem.startswith(family.removesuffix("_tuned_gemm")))


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
