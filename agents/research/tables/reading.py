"""Files of an audited tree, read within bounds: what cannot be read is one line of words, never an exception."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agents.research.regular_file import read_regular

# The attention tables are 5 kB, vLLM's longest configuration module 130 kB (0.33.0). Beyond this it is no such file.
MAX_BYTES = 4 << 20


def read_text(path: Path, limit: int = MAX_BYTES) -> tuple[str | None, str]:
    """(text, "") or (None, what is wrong with it). A file that is not there is (None, "")."""
    try:
        if not path.is_file():
            return None, ("is a folder, a device or a link to nowhere" if os.path.lexists(path) else "")
        size = path.stat().st_size
        if size > limit:
            return None, f"is {size} bytes long, more than the {limit} that are read"
        return read_regular(path, limit).decode(), ""
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, in Python before 3.13
        return None, f"cannot be read: {type(error).__name__}"


def read_json(path: Path) -> tuple[Any, str]:
    """(value, "") or (None, what is wrong with it). A file that is not there is (None, "")."""
    text, problem = read_text(path)
    if text is None:
        return None, problem
    try:
        return json.loads(text), ""
    except (ValueError, RecursionError) as error:
        return None, f"is not valid JSON: {' '.join(str(error).split())[:120]}"


def relative(path: Path, tree: Path) -> str:
    """As evidence names it: from the folder that the tree lies in, so that "aiter/..." or "vllm/..." begins it."""
    try:
        return (Path(tree.name) / path.relative_to(tree)).as_posix()
    except ValueError:
        return path.name
