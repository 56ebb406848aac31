"""What was computed before and would come out the same, kept in the user's cache folder. Losing it only costs time."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from agents.research.regular_file import read_regular
from agents.research.walk import python_files
from contracts import content_hash

MOST_BYTES = 64 << 20  # of one entry; the findings of a whole vLLM tree have about 100 KB

T = TypeVar("T", bound=BaseModel)


def default_cache(name: str) -> Path:
    """The platform's folder for what can be computed again; `name` is nightgate's own part of it."""
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # no HOME, and no such user
        home = Path(os.devnull)  # where nothing can be kept
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "nightgate" / name
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", home)) / "nightgate" / name
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))  # one that is not absolute is to be left alone, as is ""
    return (chosen if chosen.is_absolute() else home / ".cache") / "nightgate" / name


def recall(cache: Path, key: str, kind: type[T]) -> T | None:
    """None: not there, or not readable as `kind`."""
    try:
        return kind.model_validate_json(read_regular(cache / f"{key}.json", MOST_BYTES))
    except (OSError, ValidationError):
        return None


def remember(cache: Path, key: str, value: BaseModel) -> None:
    """Whole or not at all; a cache that cannot be written only costs time."""
    part = ""
    try:
        text = value.model_dump_json()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=cache, suffix=".part", delete=False, encoding="utf-8") as file:
            part = file.name
            file.write(text)
        os.replace(part, cache / f"{key}.json")
        part = ""
    except (OSError, PydanticSerializationError):  # the second: it names a file whose name is no UTF-8
        pass
    finally:
        if part:  # stopped in between, by Ctrl+C too
            with contextlib.suppress(OSError):
                os.unlink(part)


def stamp(root: Path) -> str:
    """Changes whenever a Python file of the folder is added, taken away or written: by name, size and time of change
    (st_ctime, which a copy with the old dates does not keep)."""
    return content_hash(list(_files(root)), length=32)


def _files(root: Path) -> Iterator[JsonValue]:
    for path in python_files(root):
        try:
            seen = os.stat(path)
        except OSError:
            yield [path, "gone"]
            continue
        yield [path, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]
