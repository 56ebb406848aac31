"""The torch profiler's Chrome JSON: GPU work, what launched it, and the annotations around the steps.

`{"deviceProperties": [...], "traceEvents": [...]}` in any order of keys, or the bare list of events. Complete events
(`ph` "X") of these categories count: kernel, gpu_memcpy, gpu_memset, *_runtime and *_driver (launches; HIP has its own
names under cuda_runtime), user_annotation, gpu_user_annotation. ts and dur are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agents.research.traces.events import Timeline, identifier, nanoseconds
from agents.research.traces.steps import step_kind
from agents.research.traces.stream import Path_, StreamBroken, Text, walk

GRAPH_LAUNCHES = {"hipGraphLaunch", "cudaGraphLaunch", "cuGraphLaunch"}
LAUNCHES = ("Launch", "Memcpy", "Memset")  # in the name of the call
MOST_PROPERTIES = 64
MOST_EVENTS = {"python_function", "cpu_op", "ac2g"}  # nothing is taken from them
COPIES = ("gpu_memcpy", "gpu_memset")


def read_chrome(pieces: Iterable[bytes]) -> Timeline:
    """What a break leaves unread is told in `warnings`. Raises StreamBroken where not one event could be read."""
    timeline, seen = Timeline(), 0
    try:
        for path, value in walk(Text(pieces), _opens):
            if path in (("traceEvents", "*"), ("*",)):
                seen += 1
                if isinstance(value, dict):
                    _event(timeline, value)
            else:
                _header(timeline, path, value)
    except StreamBroken as broken:
        if not seen:
            raise
        timeline.warnings.append(f"{broken}; the {seen} events before that count")
    if not seen:
        raise StreamBroken("JSON without traceEvents")
    return timeline


def _opens(path: Path_) -> bool:
    return path in ((), ("traceEvents",), ("deviceProperties",), ("distributedInfo",))


def _header(timeline: Timeline, path: Path_, value: Any) -> None:
    if path == ("deviceProperties", "*") and isinstance(value, dict) and len(timeline.properties) < MOST_PROPERTIES:
        timeline.properties.append(value)
    elif path == ("distributedInfo", "rank") and identifier(value) >= 0:
        timeline.rank = value
    elif path == ("with_stack",):
        timeline.with_stack = bool(value)


def _event(timeline: Timeline, event: dict[str, Any]) -> None:
    category = event.get("cat")
    if not isinstance(category, str) or category in MOST_EVENTS or event.get("ph") != "X":
        return
    if category == "kernel" or category in COPIES:
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        timeline.gpu(
            str(event.get("name", "")),
            nanoseconds(event.get("ts")),
            nanoseconds(event.get("dur")),
            category != "kernel",
            f"{event.get('pid')}/{args.get('device')}"[:40],
            identifier(args.get("correlation")),
        )
    elif category.endswith(("_runtime", "_driver")):
        name = str(event.get("name", ""))
        if any(word in name for word in LAUNCHES):
            args = event.get("args")
            correlation = identifier(args.get("correlation")) if isinstance(args, dict) else -1
            timeline.launch(nanoseconds(event.get("ts")), correlation, name in GRAPH_LAUNCHES)
    elif category in ("user_annotation", "gpu_user_annotation"):
        name = str(event.get("name", ""))
        if step_kind(name) is None:
            return
        timeline.annotation(
            name,
            nanoseconds(event.get("ts")),
            nanoseconds(event.get("dur")),
            str(event.get("pid"))[:40],
            category.startswith("gpu"),
        )
