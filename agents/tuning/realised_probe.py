"""Is the new setting what the running engine was read back to have, and the old engine not? Pure."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import JsonValue

from contracts import Change, LaunchRecord, PathEvidence, Probe
from engine.asked import same


def judge_realised(
    change: Change, probe: Probe, a: LaunchRecord | None, b: LaunchRecord | None, log_a: str, log_b: str
) -> PathEvidence:
    """`a` and `b`: the arms' latest ready launches. With a pattern the log must also have a line that shows the setting
    at work: what the configuration says alone may be what was asked (a list of graphs that nobody captures)."""
    key = probe.key or change.key.replace("-", "_")

    def told(
        outcome: Literal["proven", "absent", "unknown"], reason: str, **data: dict[str, JsonValue]
    ) -> PathEvidence:
        shown = {f"seen_in_{arm}": f"{key} = {value[key]}" for arm, value in data.items() if key in value}
        return PathEvidence(outcome=outcome, probe=probe, reason=reason, **shown, **data)

    for arm, record in (("A", a), ("B", b)):
        if record is None or key not in record.realised:
            return told("unknown", f"the engine of arm {arm} does not tell its {key}")
    assert a is not None and b is not None
    before, after = _of_group(change.before, key), _of_group(change.after, key)
    gone = after in (None, "auto")  # back to what the engine chooses: seen in that the old value is gone
    in_a, in_b = a.realised[key], b.realised[key]
    data: dict[str, dict[str, JsonValue]] = {
        "a": {key: in_a, "launch": a.launch_id},
        "b": {key: in_b, "launch": b.launch_id},
    }
    if probe.pattern:
        line = first_line(probe.pattern, log_a if gone else log_b)
        if line is None:
            arm = "A" if gone else "B"
            return told("absent", f"set and not used: arm {arm} writes no line like /{probe.pattern}/", **data)
        data["a" if gone else "b"]["line"] = line
    if gone:
        if not _is(key, before, in_a):
            return told("absent", f"arm A was to have {key} = {before} and has {in_a}", **data)
        if _is(key, before, in_b):
            return told("absent", f"both arms have {key} = {in_b}", **data)
        return told("proven", f"{key} is {in_b} in arm B, {in_a} in arm A", **data)
    if not _is(key, after, in_b):
        return told("absent", f"accepted but not in use: asked {key} = {after}, realised {in_b}", **data)
    if _is(key, after, in_a):
        return told("absent", f"both arms have {key} = {in_a}, so they do the same", **data)
    return told("proven", f"{key} is {in_b} in arm B, {in_a} in arm A", **data)


def _of_group(value: JsonValue, key: str) -> JsonValue:
    """A flag may hold a group of settings: kernel-config {"moe_backend": "triton"}."""
    return value.get(key) if isinstance(value, dict) else value


def _is(key: str, wanted: JsonValue, got: Any) -> bool:
    """engine.asked.same takes "auto" for anything; here it is no proof of any value. A list of sizes has no order."""
    if isinstance(wanted, list) and isinstance(got, list):
        return sorted(map(str, wanted)) == sorted(map(str, got))
    return wanted != "auto" and same(key, wanted, got)


def first_line(pattern: str, log: str) -> str | None:
    matcher = re.compile(pattern)
    return next((line.strip()[:300] for line in log.splitlines() if matcher.search(line)), None)
