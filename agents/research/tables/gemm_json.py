"""AITER's JSON tables of Triton GEMM tiles, and the lookup in them as AITER e4048607 does it
(aiter/ops/triton/utils/gemm_config_utils.py, get_gemm_config), re-implemented from what it does.

Two layouts live at once: nested, configs/<arch>/<triton|gluon>/gemm/<family in lower case>/DEFAULT.json beside
<FAMILY>-N=..-K=...json, and flat, configs/gemm/<arch>-<FAMILY>[-N=..-K=..].json (an older AITER writes the card's name
there instead of the arch). Inside a file: M_LEQ_x upwards, then M_GEQ_x downwards, then "any".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.research.tables.table_file import Unreadable, files_in, is_folder, read_json, read_source, shown
from contracts import Frozen

CONFIGS = "ops/triton/configs"
# STANDARD_M_BOUNDS of e4048607, for a tree where it cannot be read.
STANDARD_BOUNDS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# Families whose callers pass bounds of their own (their _get_config, e4048607).
OWN_BOUNDS = {
    "GEMM-AFP4WFP4_PRESHUFFLED": (4, 8, 16, 31, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "GEMM-A16W16-gated": (64, 128, 256, 512, 2048),
    "FF-A16W16-fused": (4, 8, 64, 4096),
}
_KEY = re.compile(r"M_(LEQ|GEQ)_([0-9]{1,9})")
_SUFFIX = re.compile(r"-(?=[A-Z][0-9]*=)")


class TableFile(Frozen):
    """One JSON file. `entries`: key -> tile, only keys that hold an object."""

    source: str  # as findings name it
    family: str  # GEMM-A8W8_BLOCKSCALE
    suffix: str  # "N=7168-K=2048", "" for a default
    entries: dict[str, dict[str, Any]]
    doubles: tuple[str, ...] = ()

    @property
    def modern(self) -> bool:
        """All keys are of the kinds that get_gemm_config looks for. An older AITER has small, medium_M32, large ...,
        which each kernel's own code chooses among: those are not judged."""
        return all(k == "any" or _KEY.fullmatch(k) for k in self.entries)


class GemmTables(Frozen):
    """All GEMM tables of one arch. `files`: by path below the configs folder."""

    arch: str
    prefix: str  # of flat names: the arch, or the card's name in an older AITER
    bounds: tuple[int, ...]
    bounds_known: bool  # read from the tree
    files: dict[str, TableFile]
    problems: tuple[Unreadable, ...] = ()


class Found(Frozen):
    """What a lookup gives. key None: no entry fits and AITER raises KeyError. key "*": the file has an older AITER's
    keys, among which the kernel's own code chooses; only the file is known."""

    source: str
    key: str | None
    config: dict[str, Any]
    specialised: bool  # from a file of this N and K
    tuned: bool  # what AITER's own is_tuned says: specialised, and not by way of "any"

    @property
    def row(self) -> str:
        return f"{self.source}#{self.key}"


def read_gemm_tables(aiter: Path, arch: str) -> GemmTables:
    """From a folder named aiter. Files that cannot be read are in `problems`."""
    root, prefix = aiter / CONFIGS, flat_prefix(aiter, arch)
    found: dict[str, TableFile] = {}
    problems: list[Unreadable] = []

    def take(folder: Path, flat: bool) -> None:
        for path in files_in(folder, ".json"):
            if flat and not path.name.startswith(f"{prefix}-"):
                continue
            table, source = read_json(path), shown(path, aiter)
            if isinstance(table, str):
                problems.append(Unreadable(path=source, why=table))
                continue
            stem = path.stem.removeprefix(f"{prefix}-") if flat else path.stem
            family, suffix = ([*_SUFFIX.split(stem, maxsplit=1), ""])[:2]
            if not flat and family == "DEFAULT":
                family = _family_of(folder)
            entries = {k: v for k, v in table.value.items() if isinstance(v, dict)}
            found[path.relative_to(root).as_posix()] = TableFile(
                source=source, family=family, suffix=suffix, entries=entries, doubles=table.doubles
            )

    take(root / "gemm", flat=True)
    take(root / "gemm" / "gluon", flat=True)
    for backend in ("triton", "gluon"):
        for folder in _folders(root / arch / backend / "gemm"):
            take(folder, flat=False)
    bounds = bounds_of(aiter)
    return GemmTables(
        arch=arch,
        prefix=prefix,
        bounds=bounds or STANDARD_BOUNDS,
        bounds_known=bounds is not None,
        files=found,
        problems=tuple(problems),
    )


def lookup(
    tables: GemmTables, family: str, m: int, n: int | None = None, k: int | None = None, *, batch: int | None = None
) -> Found | None:
    """The entry for m tokens of weights [n, k] (k in elements, also where two lie in a byte). None: this arch has no
    default file of the family, and AITER raises."""
    nested = family.lower().replace("-", "_")
    places = [(f"{tables.arch}/{backend}/gemm/{nested}/DEFAULT.json", family) for backend in ("triton", "gluon")]
    places.append((f"gemm/{tables.prefix}-{family}.json", f"{tables.prefix}-{family}"))
    place = next(((path, stem) for path, stem in places if path in tables.files), None)
    if place is None:
        return None
    held, special, folder = tables.files[place[0]], False, place[0].rsplit("/", 1)[0]
    if n is not None and k is not None:
        shapes = [f"N={n}-K={k}"] if batch is None else [f"B={batch}-N={n}-K={k}", f"N={n}-K={k}"]
        for shape in shapes:
            own = tables.files.get(f"{folder}/{place[1]}-{shape}.json")
            if own is not None:
                held, special = own, True
                break
    if not held.modern:
        return Found(source=held.source, key="*", config={}, specialised=special, tuned=special)
    key = chosen(held.entries, m, OWN_BOUNDS.get(family, tables.bounds))
    return Found(
        source=held.source,
        key=key,
        config=held.entries[key] if key is not None else {},
        specialised=special,
        tuned=special and key not in (None, "any"),
    )


def chosen(entries: Mapping[str, Any], m: int, bounds: tuple[int, ...] = STANDARD_BOUNDS) -> str | None:
    """M_LEQ_x for the least bound x >= m that is there, then M_GEQ_x for the greatest x <= m, then any; else None."""
    for bound in bounds:
        if m <= bound and f"M_LEQ_{bound}" in entries:
            return f"M_LEQ_{bound}"
    for bound in reversed(bounds):
        if m >= bound and f"M_GEQ_{bound}" in entries:
            return f"M_GEQ_{bound}"
    return "any" if "any" in entries else None


def never_chosen(table: TableFile, bounds: tuple[int, ...]) -> list[tuple[str, str]]:
    """(key, why) of entries that no m of 1 and more reaches. Only an m just at, or one past, a bound can change the
    choice, so those are tried."""
    if not table.modern or not table.entries:
        return []
    edges = {1, *bounds, *(b + 1 for b in bounds), *(int(f[2]) for f in map(_KEY.fullmatch, table.entries) if f)}
    reached = {chosen(table.entries, m, bounds) for m in edges}
    found = []
    for key in table.entries:
        if key in reached:
            continue
        kind = _KEY.fullmatch(key)
        if kind and int(kind[2]) not in bounds:
            found.append((key, f"the lookup asks only for the bounds {', '.join(map(str, bounds))}"))
        else:
            found.append((key, "another entry answers every m before it"))
    return found


def new_bucket(tables: GemmTables, family: str, m: int) -> str:
    """The key that a tuner's winner for m tokens belongs under."""
    fits = [b for b in OWN_BOUNDS.get(family, tables.bounds) if b >= m]
    return f"M_LEQ_{fits[0]}" if fits else "any"


def new_file(tables: GemmTables, family: str, n: int, k: int) -> str:
    """Where a table for weights [n, k] belongs, below the tree's parent: the folder that the lookup chooses now."""
    nested = f"{tables.arch}/triton/gemm/{family.lower().replace('-', '_')}"
    if f"{nested}/DEFAULT.json" in tables.files:
        return f"aiter/{CONFIGS}/{nested}/{family}-N={n}-K={k}.json"
    return f"aiter/{CONFIGS}/gemm/{tables.prefix}-{family}-N={n}-K={k}.json"


def flat_prefix(aiter: Path, arch: str) -> str:
    """What flat file names begin with: an AITER of 2025 maps the arch to a card's name (arch_info.py)."""
    for place in ("ops/triton/utils/_triton/arch_info.py", "ops/triton/utils/arch_info.py"):
        found = re.search(rf'"{re.escape(arch)}"\s*:\s*"([A-Za-z][A-Za-z0-9_]*)"', read_source(aiter / place))
        if found:
            return found[1]
    return arch


def bounds_of(aiter: Path) -> tuple[int, ...] | None:
    """The numbers that the shared lookup asks for; None where this AITER has no shared lookup."""
    text = read_source(aiter / "ops/triton/utils/gemm_config_utils.py")
    found = re.search(r"^STANDARD_M_BOUNDS[^=]*=\s*[(\[]([0-9,\s]+)[)\]]", text, re.MULTILINE)
    return tuple(int(v) for v in re.findall(r"\d+", found[1])) if found else None


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if is_folder(p))
    except OSError:
        return []


def _family_of(folder: Path) -> str:
    """The family of a nested folder: as its other files spell it, else the folder's name in capitals."""
    for path in files_in(folder, ".json"):
        if path.stem != "DEFAULT":
            return _SUFFIX.split(path.stem, maxsplit=1)[0]
    return folder.name.upper().replace("_", "-", 1)
