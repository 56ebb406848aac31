"""Does the installed AITER read a row of its JSON tables as it was meant? In one line why not; None where it does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import JsonValue

from agents.research.knobs import near
from agents.research.tables.attention import OPT_IN, has_schema, never_served, read_sections, slots_of
from agents.research.tables.gemm_json import CONFIGS, OWN_BOUNDS, TableFile, bounds_of, never_chosen
from agents.research.tables.lds import operand_bits
from agents.research.tables.table_file import files_in, read_json
from agents.tuning.table_rows import WHOLE, Row, lds_fault, numbers_fault, sheet_of, unknown_key

LARGE_KV = "LARGE_KV"  # inside a tile of unified attention: what else holds for a cache of 2^31 elements or more
_SUFFIX = re.compile(r"-(?=[A-Z][0-9]*=)")


def with_row(table: Mapping[str, Any], row: str, value: JsonValue) -> dict[str, Any]:
    """A copy of the table with the value at the row; its place in the file stays, a new row comes last."""
    if row == WHOLE:
        return dict(value) if isinstance(value, dict) else {}
    first, _, rest = row.partition("/")
    if not rest:
        return {**table, first: value}
    inner = table.get(first)
    return {**table, first: with_row(inner if isinstance(inner, dict) else {}, rest, value)}


def fault_in(aiter: Path, table: Mapping[str, Any], found: Row, value: JsonValue) -> str | None:
    if value is None:
        return None
    family, specialised = _family(found.file)
    if found.row == WHOLE:
        return _whole_fault(aiter, found.file, family, specialised, value)
    if not table:
        meant = near(found.file, _files(aiter, found.file))
        hint = f"; did you mean {meant}?" if meant else ""
        return f"AITER has no table {found.file}{hint}; a new one is given whole, as {found.file}#{WHOLE}"
    *sections, row = found.row.split("/")
    parent: Any = table
    for name in sections:
        parent = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(parent, dict):
        return f"{found.file} has no section {'/'.join(sections)}; it has {', '.join(table)}"[:300]
    siblings = {k: v for k, v in parent.items() if isinstance(v, dict) and k != "schema"}
    held = parent.get(row)
    if held is not None and not isinstance(held, dict):
        return f"{found.row} of {found.file} holds {held!r}, which is no tile"
    if held and not _is_tile(held):
        return f"{found.row} of {found.file} is a section; name a row inside it: {', '.join(held)}"[:300]
    tile = value if isinstance(value, dict) else {}
    if fault := _sibling_fault(tile, siblings, found):
        return fault
    if fault := lds_fault(tile, operand_bits(family), sheet_of(_arch(found.file))):
        return fault
    changed = with_row(table, found.row, value)
    if has_schema(table):
        return _attention_fault(table, changed, sections, row)
    return None if sections else _never(aiter, found.file, changed, row)


def _is_tile(row: Mapping[str, Any]) -> bool:
    """Not a section, whose rows are objects."""
    return not any(isinstance(value, dict) and name != LARGE_KV for name, value in row.items())


def _sibling_fault(tile: Mapping[str, JsonValue], siblings: Mapping[str, Mapping[str, Any]], found: Row) -> str | None:
    tiles = [t for t in siblings.values() if _is_tile(t)]
    if not tiles:
        return f"{found.row}: its section of {found.file} has no row to compare with"
    if fault := unknown_key(tile, {name for t in tiles for name in t}, f"no row of {found.file} near {found.row}"):
        return fault.replace(" knows no key", " has a key")
    if missing := [name for name in tiles[0] if all(name in t for t in tiles) and name not in tile]:
        return f"the row lacks {', '.join(missing)}, which every other row of {found.file} has"
    return next((fault for name in tile if (fault := _kind_fault(name, tile[name], tiles))), None)


def _kind_fault(name: str, value: JsonValue, tiles: list[Mapping[str, Any]]) -> str | None:
    """Where every other row has a whole number from 0 up, so has this one: Triton compiles another kernel for 2.0 and
    for true, and takes -1 without a word."""
    counts = all(type(tile[name]) is int and tile[name] >= 0 for tile in tiles if name in tile)
    if counts and not (type(value) is int and 0 <= value < 1 << 31):
        return f"{name} takes a whole number from 0 up, as in every other row, not {value!r}"[:200]
    return None


def _attention_fault(table: Mapping[str, Any], changed: Mapping[str, Any], sections: list[str], row: str) -> str | None:
    if len(sections) != 1:
        return None
    name = sections[0].removesuffix(OPT_IN)
    opt_in = name != sections[0]  # those rows join the section where the environment asks for them
    before, _ = read_sections(table, opt_in)
    after, problems = read_sections(changed, opt_in)
    told = next((p for p in problems if p.startswith(f"{name}:")), None)
    if told or name not in after:
        return told or f"the lookup has no section {name}"
    section = after[name]
    mine = slots_of(row, section.axes)
    if twin := next((k for k in section.entries if k != row and slots_of(k, section.axes) == mine), None):
        return f"{row} says the same as {twin}; write that key"
    never, never_before = never_served(section), never_served(before[name]) if name in before else []
    if never is None:
        return None
    if row in never:
        why = f"the axes count in the order {', '.join(section.axes)}, and the leftmost wins outright"
        return f"no call can reach {row}: other rows come first at every value ({why})"
    if taken := [key for key in never if key not in (never_before or [])]:
        return f"{row} takes every call from {', '.join(taken)}: change that row itself, so that one row changes"
    return None


def _never(aiter: Path, file: str, table: Mapping[str, Any], row: str) -> str | None:
    bounds = bounds_of(aiter)
    family, _ = _family(file)
    entries = {k: v for k, v in table.items() if isinstance(v, dict)}
    if bounds is None or "gemm" not in PurePosixPath(file).parts:
        return None  # this AITER's kernels choose each in their own code
    named = TableFile(source=file, family=family, suffix="", entries=entries)
    if not named.modern:
        like_others = re.fullmatch(r"M_(LEQ|GEQ)_\d+|any", row)
        return None if like_others else f"{row}: the lookup asks for M_LEQ_x, M_GEQ_x and any"
    never = dict(never_chosen(named, OWN_BOUNDS.get(family, bounds)))
    return f"no batch size reaches {row}: {never[row]}" if row in never else None


def _whole_fault(aiter: Path, file: str, family: str, specialised: bool, value: JsonValue) -> str | None:
    table = value if isinstance(value, dict) else {}
    tiles = {k: v for k, v in table.items() if isinstance(v, dict)}
    if set(tiles) != set(table):
        return f"{', '.join(sorted(set(table) - set(tiles)))}: a table's rows are objects"
    if has_schema(table):
        _, problems = read_sections(table)
        return problems[0] if problems else None
    if specialised and "any" not in tiles:
        return f'the table has no row "any": a batch size that no other row answers would raise in the engine ({file})'
    like = next((p for p in _beside(aiter, file) if _family(_below(aiter, p))[0] == family), None)
    rows = read_json(like) if like else None
    others = rows.value.values() if rows and not isinstance(rows, str) else ()
    known = {name for tile in others if isinstance(tile, dict) for name in tile}
    for row, tile in tiles.items():
        if not _is_tile(tile):
            continue
        fault = numbers_fault(tile) or lds_fault(tile, operand_bits(family), sheet_of(_arch(file)))
        fault = fault or (unknown_key(tile, known, f"no row of {like.name}") if like and known else None)
        if fault:
            return f"{row}: {fault}"
    if specialised and like is None:
        return f"AITER asks for no table of the name {file}: it has none of family {family} there"
    return None


# --- what a file's name says ---


def _family(file: str) -> tuple[str, bool]:
    """("GEMM-A16W16", whether it is a table of one shape). A nested DEFAULT.json has its folder's name."""
    path = PurePosixPath(file)
    stem = path.stem
    if len(path.parts) <= 3 and "-" in stem and not stem.startswith("DEFAULT"):
        flat = re.match(r"(gfx\w+|MI\d+\w*)-(.*)", stem)
        stem = flat[2] if flat else stem
    family, *suffix = _SUFFIX.split(stem, maxsplit=1)
    if family == "DEFAULT":
        family = path.parent.name.upper().replace("_", "-", 1)
    return family, bool(suffix)


def _arch(file: str) -> str:
    """The arch that a file is for, or the card that an older AITER (2025) writes there."""
    path = PurePosixPath(file)
    for name in (path.parts[0], path.stem):
        if found := re.match(r"(gfx[0-9a-f]+|MI\d+\w*)(-|$)", name):
            return found[1]
    return ""


def _files(aiter: Path, file: str) -> list[str]:
    return [_below(aiter, p) for p in _beside(aiter, file)]


def _below(aiter: Path, path: Path) -> str:
    return path.relative_to(aiter / CONFIGS).as_posix()


def _beside(aiter: Path, file: str) -> list[Path]:
    """The tables in the folder of `file`, of the same arch where names say it."""
    folder, arch = aiter / CONFIGS / PurePosixPath(file).parent, _arch(file)
    named = [
        p for p in files_in(folder, ".json") if not arch or _arch(p.relative_to(aiter / CONFIGS).as_posix()) == arch
    ]
    return sorted(named, key=lambda p: (bool(_SUFFIX.search(p.stem)), p.name))
