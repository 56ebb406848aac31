"""The Python files of a tree, in one order, within bounds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MOST_LEVELS = 40  # vLLM 0.33.0 has 9; os.walk recurses, and a thousand folders in each other would end it


def python_files(root: Path) -> Iterator[str]:
    """Paths of *.py, sorted folder by folder; links to folders are not followed, deeper ones not entered."""
    top = str(root).count(os.sep)
    for folder, folders, names in os.walk(root):
        folders.sort()
        if folder.count(os.sep) - top >= MOST_LEVELS:
            folders.clear()
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)
