"""Which kernels a profile holds, how often each was launched, and with what shape: data for path evidence.

What a trace tells of a launch, beside its name and time (real traces of vLLM on ROCm and rocprofv3's own samples):

    torch profiler, CUDA    grid, block, "shared memory", "registers per thread"; also for kernels of a replayed graph
    torch profiler, ROCm    grid, block; nothing for kernels of a replayed graph (kind "Dispatch Task")
    rocprofv3, CSV          Grid_Size (work-items, not blocks), Workgroup_Size, LDS_Block_Size, VGPR_Count; from the
                            process's start to its end, so that a Window says which launches are of a burst
    torch profiler, CPU     operators (category cpu_op), name and time only
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agents.research.traces.events import MOST_NAME_CHARS, MOST_NAMES, OTHER_NAMES, nanoseconds, printable
from agents.research.traces.read import TraceError
from agents.research.traces.rocprof import lines
from agents.research.traces.stream import Path_, StreamBroken, Text, open_bytes, walk
from contracts import Frozen

Category = Literal["kernel", "cpu_op"]
ATTRIBUTES = ("grid", "block", "shared_memory", "registers")
MOST_SHAPES = 200  # different values of one attribute of one kernel
_TORCH = {"grid": "grid", "block": "block", "shared_memory": "shared memory", "registers": "registers per thread"}


class Window(NamedTuple):
    """When a burst was, and when the engine that it went to lived, by the clock of the trace. Nanoseconds."""

    alive_from: int
    begin: int
    end: int
    alive_to: int


class KernelSeen(Frozen):
    """All launches of one name. The attributes: value as text ("4x1x1", "16384") -> launches that had it; empty where
    the trace does not tell."""

    name: str
    launches: int
    total_us: float
    grid: dict[str, int] = {}
    block: dict[str, int] = {}
    shared_memory: dict[str, int] = {}  # bytes
    registers: dict[str, int] = {}


class Kernels(Frozen):
    source: str  # file name
    seen: tuple[KernelSeen, ...]  # the most time first
    warnings: tuple[str, ...] = ()
    profiler: Literal["torch", "rocprofv3"] = "torch"

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.seen)


class _Sum:
    def __init__(self) -> None:
        self.launches, self.ns = 0, 0
        self.shapes: dict[str, Counter[str]] = {name: Counter() for name in ATTRIBUTES}


def read_kernels(path: str | Path, category: Category = "kernel", window: Window | None = None) -> Kernels:
    """A torch-profiler trace (.json, .json.gz) or rocprofv3's *_kernel_trace.csv; of the latter, with a `window`, what
    began during the burst. Raises TraceError, also where its times are not by the clock of the window."""
    path = Path(path)
    sums: dict[str, _Sum] = {}
    warnings: list[str] = []
    try:
        pieces = open_bytes(path)
        head = next((piece for piece in pieces if piece), b"")
        if not head:
            raise StreamBroken("empty")
        whole = chain([head], pieces)
        is_torch = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
        if is_torch:
            _read_chrome(whole, category, sums, warnings)
        else:
            _read_rocprof(whole, window, sums, warnings)
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path.name}: {reason.splitlines()[0] if reason else type(error).__name__}") from None
    return Kernels(
        source=path.name,
        seen=tuple(
            KernelSeen(
                name=name,
                launches=one.launches,
                total_us=one.ns / 1000,
                **{key: dict(one.shapes[key].most_common(MOST_SHAPES)) for key in ATTRIBUTES},
            )
            for name, one in sorted(sums.items(), key=lambda item: -item[1].ns)
        ),
        warnings=tuple(warnings),
        profiler="torch" if is_torch else "rocprofv3",
    )


def _add(sums: dict[str, _Sum], name: str, ns: int | None, shapes: dict[str, Any]) -> None:
    name = printable(name[:MOST_NAME_CHARS])
    if name not in sums and len(sums) >= MOST_NAMES:
        name = OTHER_NAMES
    one = sums.setdefault(name, _Sum())
    one.launches += 1
    one.ns += ns or 0
    for key, value in shapes.items():
        if value is None:
            continue
        text = "x".join(map(str, value)) if isinstance(value, list) else str(value)
        text = text[:MOST_NAME_CHARS]
        if len(one.shapes[key]) < MOST_SHAPES or text in one.shapes[key]:
            one.shapes[key][text] += 1


def _read_chrome(pieces: Iterable[bytes], category: Category, sums: dict[str, _Sum], warnings: list[str]) -> None:
    """What stands before a break counts, and the break is told."""
    events = 0
    try:
        for path, event in walk(Text(pieces), _opens):
            if path not in (("traceEvents", "*"), ("*",)) or not isinstance(event, dict):
                continue
            events += 1
            if event.get("cat") != category or event.get("ph") != "X":
                continue
            args = event.get("args")
            args = args if isinstance(args, dict) else {}
            shapes = {key: args.get(told) for key, told in _TORCH.items()}
            _add(sums, str(event.get("name", "")), nanoseconds(event.get("dur")), shapes)
    except StreamBroken as broken:
        if not events:
            raise
        warnings.append(f"{broken}; the {events} events before that count")
    if not events:
        raise StreamBroken("JSON without traceEvents")


def _opens(path: Path_) -> bool:
    return path in ((), ("traceEvents",))


def _read_rocprof(pieces: Iterable[bytes], window: Window | None, sums: dict[str, _Sum], warnings: list[str]) -> None:
    """Line by line: with a warm-up in it, such a file may have some hundred thousand lines."""
    text, last = Text(pieces), [""]

    def kept() -> Iterator[str]:
        for line in lines(text):
            last[0] = line
            yield line

    rows = csv.DictReader(kept())
    if not {"Kernel_Name", "Start_Timestamp", "End_Timestamp"} <= set(rows.fieldnames or ()):
        raise StreamBroken("neither JSON nor a CSV with Kernel_Name, Start_Timestamp and End_Timestamp")
    read = outside = 0
    for row in rows:
        try:
            begun, ended = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
        except (TypeError, ValueError):
            continue
        read += 1
        if window and not window.alive_from <= begun <= ended <= window.alive_to:
            raise StreamBroken(
                f"a kernel ran from {begun} to {ended} ns, and the engine lived from {window.alive_from} to "
                f"{window.alive_to}: so the launches of the burst cannot be told from those of the warm-up"
            )
        if window and not window.begin <= begun <= window.end:
            outside += 1
            continue
        shapes = {
            "grid": _three(row, "Grid_Size"),
            "block": _three(row, "Workgroup_Size"),
            "shared_memory": row.get("LDS_Block_Size"),
            "registers": row.get("VGPR_Count"),
        }
        _add(sums, row["Kernel_Name"], ended - begun, shapes)
    if text.fault or not last[0].endswith("\n"):
        warnings.append(
            f"the file is cut off{f' ({text.fault})' if text.fault else ''}; the {read} rows before that count"
        )
    if outside:
        warnings.append(f"{outside} of {read} launches were before or after the burst and do not count")


def _three(row: dict[str, str], name: str) -> str | None:
    sizes = [row.get(f"{name}_{axis}") for axis in "XYZ"]
    return "x".join(str(size) for size in sizes) if all(sizes) else None
