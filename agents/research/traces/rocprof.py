"""rocprofv3's kernel traces: `*_kernel_trace.csv`, `*_memory_copy_trace.csv`, and the JSON results. Times are
nanoseconds. No steps stand in them, so their summary has one phase, "unknown"."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from agents.research.traces.events import Timeline, identifier
from agents.research.traces.stream import Path_, StreamBroken, Text, walk

MOST_LINE_CHARS = 100_000  # a templated kernel name has some thousands; a longer line is no CSV
TOOL = "rocprofiler-sdk-tool"
NAME_KEYS = ("formatted_kernel_name", "truncated_kernel_name", "kernel_name")
FARTHEST_NS = 3 * 10**18


def read_csv(pieces: Iterable[bytes]) -> Timeline:
    """Columns by name: Kernel_Name or Direction, Start_Timestamp, End_Timestamp, Agent_Id, Correlation_Id. Raises
    StreamBroken where the header has no such columns."""
    timeline, text = Timeline(), Text(pieces)
    rows = csv.reader(lines(text))
    try:
        header = next(rows, [])
        column = {name.strip().lower(): i for i, name in enumerate(header)}
        start, end = column.get("start_timestamp"), column.get("end_timestamp")
        named = column.get("kernel_name", column.get("direction"))
        if start is None or end is None or named is None:
            raise StreamBroken("neither JSON nor a CSV with Kernel_Name, Start_Timestamp and End_Timestamp")
        copy, agent = "kernel_name" not in column, column.get("agent_id")
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                timeline.unusable += 1
                continue
            begun, ended = _whole(row[start]), _whole(row[end])
            took = None if begun is None or ended is None else ended - begun
            timeline.gpu(row[named], begun, took, copy, row[agent] if agent is not None else "", -1)
    except csv.Error as error:
        timeline.warnings.append(f"{error}; the {len(timeline.start)} rows before that count")
    if text.fault:
        timeline.warnings.append(f"{text.fault}; the {len(timeline.start)} rows before that count")
    return timeline


def lines(text: Text) -> Iterator[str]:
    """Lines of bounded length."""
    while True:
        end = text.text.find("\n", text.at)
        if end < 0 and len(text.text) - text.at <= MOST_LINE_CHARS and text.more():
            continue
        line = text.text[text.at : end + 1] if end >= 0 else text.text[text.at :]
        if len(line) > MOST_LINE_CHARS:
            raise csv.Error(f"a line of more than {MOST_LINE_CHARS} characters")
        if not line:
            return
        text.at += len(line)
        yield line.replace("\0", "")


def _whole(text: Any) -> int | None:
    try:
        value = int(text)
    except (ValueError, TypeError):
        return None
    return value if 0 <= value < FARTHEST_NS else None


def read_json(pieces: Iterable[bytes]) -> Timeline:
    """`rocprofiler-sdk-tool` with kernel_symbols and buffer_records (kernel_dispatch, memory_copy), in any order.
    Raises StreamBroken where no record could be read."""
    timeline, symbols = Timeline(), dict[int, str]()
    try:
        for path, value in walk(Text(pieces), _opens):
            if not isinstance(value, dict):
                continue
            if path[-2:] == ("kernel_symbols", "*"):
                name = next((str(value[key]) for key in NAME_KEYS if value.get(key)), "")
                symbols[identifier(value.get("kernel_id"))] = name
            elif path[-3:] == ("buffer_records", "kernel_dispatch", "*"):
                info = value.get("dispatch_info")
                info = info if isinstance(info, dict) else {}
                name = f"kernel {identifier(info.get('kernel_id'))}"
                _record(timeline, value, name, False, _handle(info, "agent_id"))
            elif path[-3:] == ("buffer_records", "memory_copy", "*"):
                _record(timeline, value, "memory copy", True, "")
    except StreamBroken as broken:
        if not timeline.start:
            raise
        timeline.warnings.append(f"{broken}; the {len(timeline.start)} records before that count")
    by_number = {f"kernel {number}": name for number, name in symbols.items() if name}
    merged: dict[str, int] = {}
    renumbered = [merged.setdefault(by_number.get(name, name), len(merged)) for name in timeline.names]
    for i, number in enumerate(timeline.name):
        timeline.name[i] = renumbered[number]
    timeline.names = merged
    return timeline


def _opens(path: Path_) -> bool:
    """Into the tool's own lists and those of its records, not into their elements."""
    keys = [key for key in path if key != "*"]
    if len(keys) <= 1:
        return not keys or keys[0] == TOOL
    is_element = path[-1] == "*"
    return not is_element and (len(keys) == 2 or (len(keys) == 3 and keys[1].endswith("_records")))


def _handle(holder: dict[str, Any], key: str) -> str:
    value = holder.get(key)
    return str(value.get("handle", "") if isinstance(value, dict) else value)[:40]


def _record(timeline: Timeline, record: dict[str, Any], name: str, copy: bool, device: str) -> None:
    begun, ended = _whole(record.get("start_timestamp")), _whole(record.get("end_timestamp"))
    timeline.gpu(name, begun, None if begun is None or ended is None else ended - begun, copy, device, -1)


def is_rocprof_json(head: bytes) -> bool:
    """By the first piece of the file."""
    return TOOL.encode() in head[: io.DEFAULT_BUFFER_SIZE]
