"""One line of the ledger: an event as canonical JSON, chained by hash to the line before.

A line is canonical to the byte (sorted keys, no spaces, UTF-8, one newline at the end), so that any single changed byte
is seen: also one that would mean the same to a JSON reader.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import JsonValue, ValidationError

from contracts import Event, Frozen
from ledger.errors import BadLine, LedgerBroken, NoNight
from ledger.schema import KINDS

LEDGER = "ledger.jsonl"  # the file's name in a night's folder
GENESIS = "0" * 64  # `prev` of the first line
MAX_LINE = 16 << 20  # bytes; a longer line is a mistake of the writer, and a reader need not hold it in memory


def canonical(value: JsonValue) -> str:
    """The only way that a value is written. Raises ValueError on NaN and infinities: missing is None."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(body: dict[str, Any]) -> str:
    """SHA-256 of a line's canonical JSON without `hash`."""
    return hashlib.sha256(canonical({k: v for k, v in body.items() if k != "hash"}).encode()).hexdigest()


def encode(seq: int, at: str, kind: str, data: Frozen, prev: str) -> tuple[Event, bytes]:
    """The event and its line. Raises TypeError when `data` is not what this kind holds, ValueError when it holds a
    number that JSON has no word for, or is too long for a line."""
    wanted = KINDS.get(kind)
    if wanted is None:
        raise TypeError(f"no ledger line is called {kind!r}: add it to ledger/schema.py")
    if type(data) is not wanted:
        raise TypeError(f"a {kind!r} line holds {wanted.__name__}, not {type(data).__name__}")
    try:
        text = canonical(data.model_dump(mode="json"))
    except ValueError as error:
        raise ValueError(f"{kind}: {error} (a value that is missing or without bound is None)") from None
    # Text from an engine's log may hold half a surrogate pair, which no UTF-8 can: it becomes a question mark.
    plain = json.loads(text.encode("utf-8", "replace"))
    wanted.model_validate(plain)  # what a reader would refuse is not written; a ValidationError is a ValueError
    body: dict[str, Any] = {"seq": seq, "at": at, "kind": kind, "data": plain, "prev": prev}
    body["hash"] = digest(body)
    raw = canonical(body).encode() + b"\n"
    if len(raw) > MAX_LINE:
        raise ValueError(f"{kind}: a line of {len(raw)} bytes is too long: put it in a file under artifacts/")
    return Event(**body), raw


def decode(raw: bytes, seq: int, prev: str) -> Event:
    """The event of line number `seq`, when it is byte for byte what the ledger wrote there. Raises BadLine."""
    if not raw.endswith(b"\n"):
        long = len(raw) > MAX_LINE
        raise BadLine(f"it is longer than {MAX_LINE} bytes" if long else "it is torn: it has no line end")
    try:
        body = json.loads(raw)
        event = Event.model_validate(body, strict=True)
        same = canonical(body).encode() + b"\n" == raw
    except (ValueError, RecursionError) as error:  # JSONDecodeError, UnicodeDecodeError, ValidationError
        what = "has other fields than a line has" if isinstance(error, ValidationError) else "is not JSON"
        raise BadLine(f"it {what}: it was changed after it was written") from None
    if event.seq != seq:
        raise BadLine(f"it is number {event.seq} where {seq} belongs: lines were dropped, repeated or swapped")
    if event.prev != prev:
        raise BadLine("it does not follow from the line before: one of the two was changed")
    if not same or digest(body) != event.hash:
        raise BadLine("its content does not match its hash: it was changed after it was written")
    if event.kind not in KINDS:
        raise BadLine(f"its kind {event.kind!r} is unknown to this version: read it with the version that wrote it")
    try:
        KINDS[event.kind].model_validate(event.data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or event.kind
        raise BadLine(f"its {event.kind} data does not fit the schema: {where}: {first['msg']}") from None
    return event


def ledger_path(night: Path | str) -> Path:
    """The ledger file of a night, given its folder or the file itself."""
    path = Path(night)
    return path / LEDGER if path.is_dir() else path


def raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends, one at a time; a line past MAX_LINE comes cut, without its end."""
    while raw := file.readline(MAX_LINE + 1):
        yield raw


def read_events(night: Path | str) -> Iterator[Event]:
    """A night's events, streamed and checked, without taking its lock: also of one that is running or was killed.

    A last line without its end is still being written, or torn: it is left out. Raises NoNight, LedgerBroken.
    """
    path = ledger_path(night)
    if not path.is_file():
        raise NoNight(f"no ledger at {path}: give the folder of a night, for example logs/NIGHT")
    prev = GENESIS
    with path.open("rb") as file:
        for number, raw in enumerate(raw_lines(file), start=1):
            try:
                event = decode(raw, number, prev)
            except BadLine as error:
                if not raw.endswith(b"\n") and len(raw) <= MAX_LINE:
                    return
                raise LedgerBroken(f"{path}: line {number}: {error}") from None
            prev = event.hash
            yield event
