"""The way in: a path of a profile -> its TraceSummary. The format is told by the file's content, not by its name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path

from agents.research.traces.chrome import read_chrome
from agents.research.traces.rocprof import is_rocprof_json, read_csv, read_json
from agents.research.traces.stream import StreamBroken, open_bytes
from agents.research.traces.summary import TraceSummary, summarize


class TraceError(ValueError):
    """Nothing can be said about this file. One line that names it."""


def read_trace(path: str | Path) -> TraceSummary:
    """A torch-profiler trace (.json, .json.gz) or a rocprofv3 kernel trace (.csv, .json), summed up. Read once for as
    long as the file stays the same. Raises TraceError."""
    path = Path(path)
    try:
        seen = path.stat()
        return _read(path, seen.st_size, seen.st_mtime_ns)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path.name}: {reason.splitlines()[0] if reason else type(error).__name__}") from None


@lru_cache(maxsize=32)
def _read(path: Path, _size: int, _changed: int) -> TraceSummary:
    head, pieces = _peek(open_bytes(path))
    if not head:
        raise StreamBroken("empty")
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        return summarize(read_csv(pieces), path.name)
    return summarize(read_json(pieces) if is_rocprof_json(head) else read_chrome(pieces), path.name)


def _peek(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first piece that is not empty, and all of them."""
    head = next((piece for piece in pieces if piece), b"")
    return head, chain([head], pieces)
