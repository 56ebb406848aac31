"""Where something stands in the installed source: "vllm/config/vllm.py:1925", for reasons that a person can check."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from agents.research.regular_file import read_regular

MOST_BYTES = 4 << 20


def line_of(package: str | Path, file: str, words: str, after: str = "") -> str:
    """The first line of `file` (relative to the folder `package`) that holds `words`, behind the first that holds
    `after`. The file alone where there is no such line, "" where there is no such file."""
    path = Path(package) / file
    try:
        text = _lines(str(path), path.stat().st_mtime_ns)
    except OSError:
        return ""
    begin = next((i for i, line in enumerate(text) if after in line), len(text)) if after else 0
    found = next((i for i in range(begin, len(text)) if words in text[i]), None)
    name = f"{path.parents[len(Path(file).parts) - 1].name}/{file}"
    return name if found is None else f"{name}:{found + 1}"


@lru_cache(maxsize=64)
def _lines(path: str, _changed: int) -> tuple[str, ...]:
    return tuple(read_regular(Path(path), MOST_BYTES).decode("utf-8", "replace").splitlines())


def cited(where: str) -> str:
    """In brackets behind a reason; nothing where the source was not found."""
    return f" ({where})" if where else ""
