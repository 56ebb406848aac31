"""A trace's events as columns: what every format is read into. 33 bytes for each piece of GPU work, names once."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_GPU_EVENTS = 4_000_000  # 150 MB of columns; a 1 GB torch trace has fewer
MOST_LAUNCHES = 8_000_000
MOST_ANNOTATIONS = 50_000
MOST_NAMES = 20_000  # different kernels; an engine has some hundreds
MOST_NAME_CHARS = 600
OTHER_NAMES = "(further kernels)"
FARTHEST_US = 3e15  # 95 years: a timestamp beyond it is none, and sums of it would not fit into 64 bits
LONGEST_NS = 3_600_000_000_000  # an hour: no kernel takes that


class Annotation(NamedTuple):
    name: str
    start: int  # ns
    duration: int  # ns
    process: str


@dataclass
class Timeline:
    """Filled by a reader of one format, then only read. Times are whole nanoseconds: doubles of microseconds since boot
    hold no more (2 ** -10 us at 6.5e12 us)."""

    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    copy: array[int] = field(default_factory=lambda: array("b"))  # 1: memcpy or memset, 0: kernel
    device: array[int] = field(default_factory=lambda: array("i"))
    correlation: array[int] = field(default_factory=lambda: array("q"))  # -1: none
    names: dict[str, int] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    launch_at: array[int] = field(default_factory=lambda: array("q"))  # when the host asked for it
    launch_correlation: array[int] = field(default_factory=lambda: array("q"))
    graph_at: array[int] = field(default_factory=lambda: array("q"))
    host_annotations: list[Annotation] = field(default_factory=list)
    gpu_annotations: list[Annotation] = field(default_factory=list)
    properties: list[dict[str, Any]] = field(default_factory=list)  # of the devices
    rank: int | None = None
    with_stack: bool = False
    unusable: int = 0  # GPU events without a usable time
    beyond: int = 0  # events over a bound of this file
    warnings: list[str] = field(default_factory=list)

    def gpu(
        self, name: str, start: int | None, duration: int | None, copy: bool, device: str, correlation: int
    ) -> None:
        if start is None or duration is None or not 0 <= duration <= LONGEST_NS:
            self.unusable += 1
            return
        if len(self.start) >= MOST_GPU_EVENTS:
            self.beyond += 1
            return
        self.start.append(start)
        self.duration.append(duration)
        self.name.append(self.named(name))
        self.copy.append(copy)
        self.device.append(self.devices.setdefault(device, len(self.devices)))
        self.correlation.append(correlation)

    def named(self, name: str) -> int:
        name = name[:MOST_NAME_CHARS]
        found = self.names.get(name)
        if found is not None:
            return found
        if len(self.names) >= MOST_NAMES:
            name = OTHER_NAMES
        return self.names.setdefault(name, len(self.names))

    def launch(self, start: int | None, correlation: int, graph: bool) -> None:
        if start is None:
            return
        if len(self.launch_at) >= MOST_LAUNCHES:
            self.beyond += 1
            return
        if correlation >= 0:
            self.launch_at.append(start)
            self.launch_correlation.append(correlation)
        if graph:
            self.graph_at.append(start)

    def annotation(self, name: str, start: int | None, duration: int | None, process: str, on_gpu: bool) -> None:
        into = self.gpu_annotations if on_gpu else self.host_annotations
        if start is None or duration is None or not 0 <= duration <= LONGEST_NS:
            return
        if len(into) >= MOST_ANNOTATIONS:
            self.beyond += 1
            return
        into.append(Annotation(printable(name[:MOST_NAME_CHARS]), start, duration, process))


def nanoseconds(microseconds: Any) -> int | None:
    """A trace's ts or dur, number or text, in whole ns; None where it is neither."""
    if isinstance(microseconds, str):
        try:
            microseconds = float(microseconds)
        except ValueError:
            return None
    if not isinstance(microseconds, int | float) or isinstance(microseconds, bool):
        return None
    if abs(microseconds) > FARTHEST_US or not math.isfinite(microseconds):
        return None
    return round(microseconds * 1000)


def printable(name: str) -> str:
    """On one line, and without what UTF-8 has no bytes for."""
    return " ".join(name.encode("utf-8", "replace").decode().split())


def identifier(value: Any) -> int:
    """A correlation id, or -1 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else -1
