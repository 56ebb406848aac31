"""Tables on disk, read with bounds: what cannot be read is named, and never stops an audit."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from agents.research.regular_file import read_regular
from contracts import Frozen

# The largest table of AITER e4048607 and vLLM 0.33.0 is 1.5 MB (a CSV), the largest JSON below 100 KB.
MOST_JSON_BYTES = 4 << 20
MOST_CSV_BYTES = 64 << 20
MOST_SOURCE_BYTES = 4 << 20
MOST_FILES = 5000  # in one folder; AITER's fullest has about 400


class Unreadable(Frozen):
    """A file that could not be used."""

    path: str  # relative to the tree's parent
    why: str


class JsonTable(Frozen):
    """A JSON object. `doubles`: keys written twice in one object; the last one counts, the others are lost silently."""

    value: dict[str, Any]
    doubles: tuple[str, ...] = ()


def shown(path: Path, tree: Path) -> str:
    """A path as a finding names it: from the tree's own folder on ("aiter/configs/x.csv"); outside of it, the name."""
    try:
        return path.relative_to(tree.parent).as_posix()
    except ValueError:
        return path.name


def files_in(folder: Path, ending: str) -> list[Path]:
    """The regular files of one folder, by name; none where it is absent or may not be read."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.name.endswith(ending) and _is_file(e))
    except OSError:
        return []
    return [folder / name for name in names[:MOST_FILES]]


def is_file(path: Path) -> bool:
    """Whether a regular file can be seen there; a folder that may not be entered has none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """The same for folders."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that points at itself
        return False


def read_json(path: Path) -> JsonTable | str:
    """The object, or in one line why not."""
    doubles: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            doubles.extend(sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1))
        return held

    try:
        value = json.loads(read_regular(path, MOST_JSON_BYTES).decode("utf-8"), object_pairs_hook=once)
    except OSError as error:
        return error.strerror or "cannot be read"
    except (ValueError, RecursionError) as error:
        return f"no valid JSON: {' '.join(str(error).split())[:160]}"
    if not isinstance(value, dict):
        return f"holds a {type(value).__name__} where an object belongs"
    return JsonTable(value=value, doubles=tuple(doubles))


def read_source(path: Path) -> str:
    """A source file's text, or "" where there is none to read."""
    try:
        text = read_regular(path, MOST_SOURCE_BYTES).decode("utf-8", errors="replace")
        return text.replace("\r\n", "\n")
    except OSError:
        return ""


def function_text(source: str, name: str) -> tuple[int, str] | None:
    """(line, text) of the first function of that name, from its indentation. Nothing is parsed: the files in question
    have thousands of lines and one short function is wanted."""
    found = re.search(rf"^([ \t]*)def {re.escape(name)}\(", source, re.MULTILINE)
    if found is None:
        return None
    rest = source[found.start() :].splitlines()
    deep, held = len(found[1]), [rest[0]]
    for line in rest[1:]:
        if line.strip() and len(line) - len(line.lstrip()) <= deep and not line.lstrip().startswith(")"):
            break
        held.append(line)
    return source.count("\n", 0, found.start()) + 1, "\n".join(held)
