"""Are AITER's GEMM tables sound? What a person should know of them whatever the model is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from agents.research.dossier import Dossier
from agents.research.finding import Finding, plural
from agents.research.tables.dense_route import Route
from agents.research.tables.gemm_csv import Family
from agents.research.tables.gemm_json import OWN_BOUNDS, GemmTables, never_chosen
from agents.research.tables.lds import LdsNeed, lds_need, not_powers_of_two, operand_bits
from agents.research.tables.table_file import Unreadable
from contracts import Evidence

READER = "gemm_tables"
MOST_NAMED = 8


def unreadable(problems: list[Unreadable]) -> list[Finding]:
    if not problems:
        return []
    return [
        plain(
            "trap",
            f"{plural(len(problems), 'GEMM table')} of AITER cannot be read, so a lookup there fails or falls back",
            [(p.path, p.why) for p in problems],
            fix="repair or remove the files; a broken JSON raises in the engine at the first lookup of its shape",
        )
    ]


def no_tables(tables: GemmTables, csvs: Mapping[str, Family]) -> Finding:
    others = sorted({card for csv in csvs.values() for card in csv.cards})
    return plain(
        "fact",
        f"AITER has no GEMM table for {tables.arch}: no JSON file, and no row in its {len(csvs)} CSV families",
        [
            ("aiter/ops/triton/configs", f"no file of {tables.arch}"),
            ("aiter/configs", f"rows for (arch, compute units): {', '.join(others) or 'none'}"),
        ],
        fix="nothing to tune in AITER for this card; vLLM serves it with hipBLASLt or rocBLAS and its own kernels",
    )


def repeats(csvs: Mapping[str, Family], then: str) -> list[Finding]:
    found = []
    for csv in csvs.values():
        if not (csv.merged and csv.repeated_count):
            continue
        rows = [(str(again), f"the same {', '.join(csv.keys)} as {first}") for first, again in csv.repeated]
        if then == "rewrites":
            title = (
                f"{csv.repeated_count} rows of {csv.name} repeat a shape: the first start rewrites the CSV files "
                "and fails"
            )
            fix = (
                "remove the repeated rows (keep the lowest us) before the night; else the first launch raises 'Please "
                "re-run', the second runs with files that were changed on disk, and arms differ"
            )
        else:
            title = (
                f"{csv.repeated_count} rows of {csv.name} repeat a shape and are dropped when AITER merges its files"
            )
            fix = (
                f"the merge keeps the lowest us of each {', '.join(csv.keys)}"
                + (", whatever card it was measured on" if "cu_num" not in csv.keys else "")
                + f"; name one file in {csv.env or 'the variable of this family'} to keep its rows"
            )
        found.append(plain("trap", title, rows, fix=fix, risk="medium", total=csv.repeated_count))
    return found


def bad_rows(csvs: Mapping[str, Family]) -> list[Finding]:
    rows = [(str(place), why) for csv in csvs.values() for place, why in csv.bad]
    total = sum(csv.bad_count for csv in csvs.values())
    if not total:
        return []
    return [
        plain(
            "trap",
            f"{total} CSV rows of this card have no usable time or more errors than AITER's tuner allows",
            rows,
            fix="tune these shapes again, or remove the rows: the tuner itself would not have written them",
            total=total,
        )
    ]


def other_cards(dossier: Dossier, csvs: Mapping[str, Family]) -> list[Finding]:
    """Families whose rows are of this arch, but none of this number of compute units."""
    arch, units = dossier.card.arch, dossier.card.compute_units
    rows = [
        (f"aiter/configs ({csv.name})", f"{arch} rows only for {', '.join(sorted(mine))} (arch, compute units)")
        for csv in csvs.values()
        if not csv.rows and (mine := {c for c in csv.cards if c.startswith(f"{arch} ")})
    ]
    if not rows:
        return []
    title = f"{len(rows)} CSV families have rows of {arch}, but none of a card with {units} compute units"
    fix = f"rows count only with cu_num {units}: tune on this card, or check that it is not partitioned"
    return [plain("trap", title, rows, fix=fix)]


def entries_that_cannot_run(dossier: Dossier, tables: GemmTables, routes: list[Route]) -> list[Finding]:
    """By an estimate; a compiled kernel's metadata.shared decides."""
    if dossier.sheet is None:
        return []
    limit, reached = int(dossier.sheet.lds_bytes.value), {r.row for r in routes}
    big: list[tuple[str, LdsNeed]] = []
    odd: list[tuple[str, str]] = []
    for table in tables.files.values():
        if "/gluon/" in table.source:
            continue  # Gluon kernels allot their buffers themselves
        bits, modern = operand_bits(table.family), table.modern  # looks at every key: asked once, not for each
        for key, entry in table.entries.items():
            need = lds_need(entry, bits) if bits and modern else None
            if need and need.bytes > limit:
                big.append((f"{table.source}#{key}", need))
            if modern and (sizes := not_powers_of_two(entry)):
                odd.append((f"{table.source}#{key}", ", ".join(sizes)))
    found = []
    if big:
        big.sort(key=lambda pair: (pair[0] not in reached, -pair[1].lean, -pair[1].bytes, pair[0]))
        hit, sure = sum(row in reached for row, _ in big), sum(need.lean > limit for _, need in big)
        rows = [(row, f"{n.tile}: {n.bytes} bytes, {n.lean} with one buffer fewer") for row, n in big]
        found.append(
            plain(
                "trap" if sure or hit else "fact",
                f"{entries(len(big))} of {tables.arch} may need more LDS than its {limit} bytes "
                f"(estimate; {sure} of them with one buffer fewer too; this workload reaches {hit})",
                rows,
                fix="compile these entries with the engine's Triton and read metadata.shared; too much of it is no "
                "compile error but OutOfResources at the first launch. Fewer num_stages or a smaller BLOCK_SIZE_K fits",
                risk="medium" if hit else "low",
            )
        )
    if odd:
        have = "has" if len(odd) == 1 else "have"
        found.append(plain("trap", f"{entries(len(odd))} of {tables.arch} {have} sizes that Triton refuses", odd))
    return found


def never(tables: GemmTables) -> list[Finding]:
    rows = []
    for table in tables.files.values():
        if tables.bounds_known:
            bounds = OWN_BOUNDS.get(table.family, tables.bounds)
            rows += [(f"{table.source}#{key}", why) for key, why in never_chosen(table, bounds)]
        rows += [(table.source, f"{key} stands twice in one object; the last one counts") for key in table.doubles]
    if not rows:
        return []
    title = f"{entries(len(rows))} of {tables.arch} can never be chosen"
    return [plain("fact", title, rows, fix="whoever tuned them gains nothing: move each to a key that the lookup asks")]


def entries(count: int) -> str:
    return f"{count} GEMM {'entry' if count == 1 else 'entries'}"


def plain(
    kind: Literal["trap", "fact"],
    title: str,
    rows: list[tuple[str, str]],
    fix: str = "",
    risk: Literal["low", "medium", "high"] = "low",
    total: int | None = None,
) -> Finding:
    """`total`: how many there are, where `rows` holds but the first of them."""
    shown = [Evidence(source=source, detail=detail) for source, detail in rows[:MOST_NAMED]]
    left = (len(rows) if total is None else total) - len(shown)
    return Finding(reader=READER, kind=kind, title=title, evidence=tuple(shown), unnamed=left, fix=fix, risk=risk)
