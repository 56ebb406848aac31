"""Is a ledger still what the night wrote? Checks every line's schema, number, hash and chain, the end, and that the
gate's secret is the one that was sealed."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from contracts import Frozen
from ledger.errors import BadLine
from ledger.head import read_head
from ledger.line import GENESIS, decode, ledger_path, raw_lines
from ledger.lock import writer


class Verification(Frozen):
    ok: bool
    lines: int  # whole lines that hold
    first_bad_line: int | None = None  # counted from 1
    reason: str  # in words


def verify(path: Path | str) -> Verification:
    """Checks a night, given its folder or its ledger file, one line at a time; takes no lock, so also a running one."""
    file_path = ledger_path(path)
    head = read_head(file_path.parent)  # before the ledger: a running night's head may move on while we read
    lines, prev, sealed = 0, GENESIS, None
    try:
        with file_path.open("rb") as file:
            for raw in raw_lines(file):
                try:
                    event = decode(raw, lines + 1, prev)
                except BadLine as error:
                    if not raw.endswith(b"\n") and not file.read(1) and writer(file_path.parent):
                        break  # being written at this moment
                    return _bad(lines, lines + 1, str(error))
                lines, prev = lines + 1, event.hash
                if event.kind == "gate_sealed":
                    sealed = sealed or event.data["secret_sha256"]  # the first promise holds
                elif event.kind == "gate_unsealed" and sha256(event.data["secret"].encode()).hexdigest() != sealed:
                    return _bad(lines - 1, lines, "its secret is not the one that was sealed when the night began")
                if head and head.seq == lines and head.hash != event.hash:
                    return _bad(lines - 1, lines, "it is not the line that ledger.head remembers: the end was replaced")
    except OSError as error:
        return Verification(ok=False, lines=0, reason=f"cannot read {file_path}: {error.strerror}")
    if head and lines < head.seq:
        return _bad(lines, lines + 1, f"it is missing: {head.seq} lines were written, the last ones are gone")
    if lines == 0:
        return Verification(ok=True, lines=0, reason="empty: the night has written nothing yet")
    end = "" if head else "; there is no ledger.head beside it, so whether lines are missing at its end is unknown"
    return Verification(ok=True, lines=lines, reason=f"{lines} lines, each follows from the one before{end}")


def _bad(good: int, line: int, why: str) -> Verification:
    return Verification(ok=False, lines=good, first_bad_line=line, reason=f"line {line}: {why}")
