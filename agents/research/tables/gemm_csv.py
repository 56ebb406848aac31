"""AITER's CSV tables of tuned kernels (CK, assembly, FlyDSL, hipBLASLt): aiter/configs/<family>.csv, merged at start
with aiter/configs/model_configs/*<family>*.csv, or with the files of an environment variable. Read as e4048607's
jit/core.py merges them (update_config_files), line by line: together they have some 70,000 rows.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from agents.research.regular_file import open_regular
from agents.research.tables.table_file import MOST_CSV_BYTES, Unreadable, files_in, is_file, read_source, shown
from contracts import Frozen

ERROR_MOST = 0.05  # --errRatio of AITER's tuners: what they write has at most this share of elements off
# jit/utils/chip_info.py: rows of tables from before the gfx column.
GFX_OF_UNITS = {"256": "gfx950", "80": "gfx942", "304": "gfx942"}
FILLED = {"xbf16": "0", "run_1stage": "0", "ksplit": "0"}  # every other absent column becomes 0 as well
MOE_SHAPE = ("token", "model_dim", "inter_dim", "expert", "topk", "q_dtype_w")
MOST_DIGITS = 15  # of a size
MOST_NAMED = 8  # rows that a finding names


class Place(NamedTuple):
    """A row: which file (as findings name it) and which line."""

    source: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


class Family(Frozen):
    """One merged table, as far as an audit needs it. `rows`: of the card in question only."""

    name: str
    env: str  # the variable that replaces its files
    sources: tuple[str, ...] = ()
    problems: tuple[Unreadable, ...] = ()
    keys: tuple[str, ...] = ()  # columns that make a row one of its kind
    rows: dict[tuple[str, ...], Place] = {}  # shape columns' cells -> first row
    shape_columns: tuple[str, ...] = ()
    repeated: tuple[tuple[Place, Place], ...] = ()  # (first, again)
    repeated_count: int = 0
    merged: bool = False
    bad: tuple[tuple[Place, str], ...] = ()  # rows of this card that no tuner should have kept
    bad_count: int = 0
    cards: dict[str, int] = {}  # "gfx950 256" -> rows


class Known(NamedTuple):
    """A family as jit/core.py knows it."""

    env: str  # the variable that names other files; "" where it is not known
    own: str  # its own file in aiter/configs, without .csv


def families(aiter: Path) -> dict[str, Known]:
    """Merge name -> the family, from jit/core.py; without that file, from the folder."""
    text = read_source(aiter / "jit/core.py")
    own = dict(re.findall(r"\"(AITER_CONFIG_\w+)\",\s*f\"\{AITER_ROOT_DIR\}/aiter/configs/(\w+)\.csv\"", text))
    found = re.findall(r"get_config_file\(\s*\"(AITER_CONFIG_\w+)\",\s*\w+,\s*\"(\w+)\"", text)
    if found:
        return {name: Known(env, own.get(env, name)) for env, name in found}
    stems = [p.stem for p in files_in(aiter / "configs", ".csv")]
    return {stem: Known("", stem) for stem in stems if "tuned" in stem and "untuned" not in stem}


def on_repeat(aiter: Path) -> Literal["rewrites", "drops"]:
    """What merging does where a shape stands twice. rewrites: the source files lose the slower rows and the start fails
    ("Please re-run", e4048607). drops: the merged copy keeps the fastest row of each shape, whatever card it was
    measured on (0.1.7: its key is the untuned file's columns, without cu_num)."""
    text = read_source(aiter / "jit/core.py")
    return "drops" if "drop_duplicates" in text and "re-run" not in text else "rewrites"


def padded(m: int, n: int) -> tuple[int, ...]:
    """The m's that a lookup tries in turn: m, m on a grid (16, 32, 64 or 128 wide), the next power of two
    (getPaddedM of csrc/py_itfs_cu/gemm_common.cu)."""
    step = 16 if m <= 256 else 32 if m <= 1024 else 64 if m <= 4096 else 128
    coarse = 8192 if m > 8192 and n > 4096 else 1 << max(m - 1, 0).bit_length()
    return m, -(-m // step) * step, coarse


def read_family(aiter: Path, name: str, known: Known, environment: Mapping[str, str], gfx: str, units: int) -> Family:
    """One family as the engine's environment has it, seen by a card of `units` compute units."""
    paths = paths_of(aiter, name, known.own, environment.get(known.env, "") if known.env else "")
    heads, problems = {}, []
    for path in paths:
        head = head_of(path)
        if isinstance(head, str):
            problems.append(Unreadable(path=shown(path, aiter), why=head))
        elif head is not None:
            heads[path] = head
    columns = tuple(dict.fromkeys(c for head in heads.values() for c in head))
    keys = key_columns(aiter, name, columns, with_card=on_repeat(aiter) == "rewrites")
    shape = MOE_SHAPE if "token" in columns else ("M", "N", "K")
    seen = _Seen(gfx, str(units), keys, shape)
    for path, head in heads.items():
        try:
            seen.take(path, shown(path, aiter), head)
        except (OSError, csv.Error) as error:
            why = f"stops being a CSV: {' '.join(str(error).split())[:120]}"
            problems.append(Unreadable(path=shown(path, aiter), why=why))
    return Family(
        name=name,
        env=known.env,
        sources=tuple(shown(p, aiter) for p in heads),
        problems=tuple(problems),
        keys=keys,
        rows=seen.rows,
        shape_columns=shape,
        repeated=tuple(seen.repeated),
        repeated_count=seen.repeated_count,
        merged=len(paths) > 1,
        bad=tuple(seen.bad),
        bad_count=seen.bad_count,
        cards={f"{arch} {count}".strip(): n for (arch, count), n in seen.cards.items()},
    )


class _Seen:
    """What one pass over a family's files gathers. Written for speed: 70,000 rows in well under a second."""

    def __init__(self, gfx: str, units: str, keys: tuple[str, ...], shape: tuple[str, ...]) -> None:
        self.gfx, self.units, self.keys, self.shape = gfx, units, keys, shape
        self.first: dict[tuple[str, ...], tuple[str, int]] = {}
        self.rows: dict[tuple[str, ...], Place] = {}
        self.repeated: list[tuple[Place, Place]] = []
        self.bad: list[tuple[Place, str]] = []
        self.repeated_count = self.bad_count = 0
        self.cards: dict[tuple[str, str], int] = {}
        self.plain = Plain()

    def take(self, path: Path, source: str, head: list[str]) -> None:
        at, plain, first, keys = {c: i for i, c in enumerate(head)}, self.plain, self.first, self.keys
        # Absent columns stand behind the row's own cells, filled as the merge fills them.
        absent = [c for c in (*keys, "gfx", "cu_num", "us") if c not in at]
        index = {**at, **{c: len(head) + i for i, c in enumerate(absent)}}
        fill = [FILLED.get(c, "0") for c in absent]
        key_at, gfx_at, units_at = [index[c] for c in keys], index["gfx"], index["cu_num"]
        us_at, error_at = at.get("us", -1), at.get("errRatio", at.get("err_ratio", -1))
        shape_at = [at[c] for c in self.shape] if all(c in at for c in self.shape) else []
        same, wide = _same_type(head), len(head)
        for line, row in rows_of(path):
            if len(row) != wide:
                row = (row + [""] * wide)[:wide]
            row += fill
            units = plain[row[units_at]] if "cu_num" in at else ""
            if "gfx" not in at:
                row[gfx_at] = GFX_OF_UNITS.get(units, self.gfx)
            if keys:
                key = tuple([plain[row[i]] for i in key_at])
                held = first.setdefault(key, (source, line))
                if held != (source, line):
                    self.repeated_count += 1
                    if len(self.repeated) < MOST_NAMED:
                        self.repeated.append((Place(*held), Place(source, line)))
            card = row[gfx_at], units
            self.cards[card] = self.cards.get(card, 0) + 1
            if row[gfx_at] != self.gfx or (units and units != self.units):
                continue
            if shape_at and all(row[i].strip() == want for i, want in same) and _one_type(row, at):
                self.rows.setdefault(tuple([plain[row[i]] for i in shape_at]), Place(source, line))
            why = _wrong(row[us_at] if us_at >= 0 else None, row[error_at] if error_at >= 0 else None)
            if why:
                self.bad_count += 1
                if len(self.bad) < MOST_NAMED:
                    self.bad.append((Place(source, line), why))


def is_size(cell: str) -> bool:
    """Digits that int() and a float take: a damaged cell may hold thousands of them."""
    return cell.isascii() and cell.isdecimal() and len(cell) <= MOST_DIGITS


def sizes(family: Family, n: int, k: int) -> list[int]:
    """The m's that have a row of weights [n, k]."""
    return sorted(int(m) for m, *rest in family.rows if rest == [str(n), str(k)] and is_size(m))


def find(family: Family, m: int, n: int, k: int) -> Place | None:
    """The row that a GEMM of m tokens and weights [n, k] takes (k in elements), or None: AITER's default kernel."""
    tried = (family.rows.get((str(size), str(n), str(k))) for size in padded(m, n))
    return next((place for place in tried if place is not None), None)


def _same_type(head: list[str]) -> list[tuple[int, str]]:
    """Cells of the 16-bit family that a plain linear layer without a bias asks with."""
    return [(head.index(c), "False") for c in ("bias", "scaleAB") if c in head and "outdtype" in head]


def _one_type(row: list[str], at: Mapping[str, int]) -> bool:
    return "outdtype" not in at or "dtype" not in at or row[at["dtype"]] == row[at["outdtype"]]


def paths_of(aiter: Path, name: str, own_name: str, override: str) -> list[Path]:
    """The files that AITER merges into the family, those that are there; `override`: its variable's value."""
    if override:
        return [Path(p) for p in override.split(os.pathsep) if p and is_file(Path(p))]
    own, more = aiter / "configs" / f"{own_name}.csv", files_in(aiter / "configs" / "model_configs", ".csv")
    return [p for p in (own, *(m for m in more if name in m.name and "untuned" not in m.name)) if is_file(p)]


def key_columns(aiter: Path, name: str, columns: tuple[str, ...], with_card: bool) -> tuple[str, ...]:
    """The columns that may not repeat: those of the untuned sibling, the card's, the tag. None without the sibling."""
    head = head_of(aiter / "configs" / f"{'untuned'.join(name.rsplit('tuned', 1))}.csv")
    if not isinstance(head, list):
        return ()
    wanted = [*head, *(c for c in ("cu_num", "gfx", "_tag") if with_card and c not in head)]
    return tuple(c for c in wanted if c in columns)


def head_of(path: Path) -> list[str] | str | None:
    """The column names; None without a file, or in one line why they cannot be read."""
    try:
        size = path.stat().st_size
        if size > MOST_CSV_BYTES:
            return f"{size} bytes, more than the {MOST_CSV_BYTES} that are read"
        with _text(path) as lines:
            return [c.strip() for c in next(csv.reader(lines), [])] or "has no header: reading it raises in pandas"
    except FileNotFoundError:
        return None
    except (OSError, csv.Error) as error:
        return " ".join(str(getattr(error, "strerror", None) or error).split())[:120]


def _text(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(open_regular(path), newline="", encoding="utf-8-sig", errors="replace")


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) below the header; empty lines left out."""
    with _text(path) as lines:
        reader = csv.reader(lines)
        next(reader, None)
        for row in reader:
            if row:
                yield reader.line_num, row


class Plain(dict[str, str]):
    """A cell as pandas compares it: 256, 256.0 and " 256" are one number, False is 0. Worked out once a spelling."""

    def __missing__(self, cell: str) -> str:
        try:
            number = float(cell)
            held = str(int(number)) if number.is_integer() else repr(number)
        except (ValueError, OverflowError):
            held = {"True": "1", "False": "0"}.get(cell.strip(), cell)
        self[cell] = held
        return held


def _wrong(us: str | None, error: str | None) -> str:
    """Why a row should not serve: no time, or too many elements off. "" where it is fine or says nothing."""
    if us is not None and us.strip():
        try:
            value = float(us)
        except ValueError:
            return f"us {us!r} is no number"
        if not math.isfinite(value) or value <= 0:
            return f"us {us}"
    elif us is not None:
        return "us is empty"
    try:
        share = float(error) if error is not None and error.strip() else 0.0
    except ValueError:
        return ""
    return f"errRatio {error}, the tuner's own limit is {ERROR_MOST}" if not share <= ERROR_MOST else ""
