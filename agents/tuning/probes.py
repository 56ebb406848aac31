"""How to see that a change is really in use, and whether it was seen. Accepted is not used.

configs/probes/*.yaml say, by lever, key and value, what an engine does differently once the change is in it: a line
that the engine itself writes further down (not the list of arguments that its server accepted), more requests running
at a time than before, a configuration that was read back, a row that it looked up, a patched file that it imported, a
kernel. Present in one arm and absent in the other, or there is no measurement.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import JsonValue, ValidationError

from agents.research.knobs import Knobs
from agents.research.traces.kernels import Kernels
from agents.strict_yaml import YamlProblem, read_yaml
from agents.tuning.apply import same
from agents.tuning.inside_probe import judge_counter, judge_imported
from agents.tuning.kernel_probe import judge_kernels
from agents.tuning.realised_probe import judge_realised
from agents.tuning.row_probe import judge_rows
from contracts import Change, Frozen, LaunchRecord, Lever, Measurement, PathEvidence, Probe

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "probes"
# What only shows under load: the changed engine gets a short burst of the workload before it is judged.
UNDER_LOAD = ("peak_running", "table_row", "imported", "counter")

# What the API server was asked for. It shows every flag that the parser took, also those without any effect.
_ACCEPTED = ("non-default args:", "args: Namespace(", "vllm serve ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_HEAD_SHOWN, _TAIL_SHOWN = 100, 140  # characters of a line in the report


class ProbesError(ValueError):
    """The probes file cannot be used. One line."""


class ProbeRule(Frozen):
    """A Probe and when it applies. `before` and `after` are lists of values (null: not set); without one, any value."""

    lever: Lever
    key: str  # "*" stands for anything: "*#dispatch"
    before: tuple[JsonValue, ...] | None = None
    after: tuple[JsonValue, ...] | None = None
    vllm: str | None = None  # PEP 440 range
    kind: Literal["log_line", "peak_running", "realised", "table_row", "imported", "counter", "kernel"]
    pattern: str = ""  # {after}, {before}, {after.method}: the values, as plain text; {key}, {key.file}: the key
    realised: str = ""  # Probe.key
    category: Literal["kernel", "cpu_op"] = "kernel"
    differs: tuple[Literal["launches", "grid", "block", "shared_memory", "registers"], ...] = ()
    present_in: Literal["B", "A"] = "B"
    under_load: bool = False
    source: str


@functools.lru_cache(maxsize=4)
def rules(path: Path = FOLDER) -> tuple[ProbeRule, ...]:
    """Of a file, or of all files of a folder, by name. Raises ProbesError."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return tuple(rule for file in files for rule in _read(file))


def _read(path: Path) -> tuple[ProbeRule, ...]:
    try:
        raw: Any = read_yaml(path).data
        return tuple(ProbeRule.model_validate(entry) for entry in raw["probes"])
    except YamlProblem as problem:
        raise ProbesError(problem.lines[0]) from None
    except (KeyError, TypeError):
        raise ProbesError(f"{path} must hold a list called probes") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ProbesError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def probe_for(change: Change, knobs: Knobs) -> Probe:
    """The first rule that fits, with the change's values put into its pattern; kind "none" where there is none."""
    for rule in rules():
        if rule.lever != change.lever or not fnmatchcase(change.key, rule.key) or not _covers(rule.vllm, knobs.version):
            continue
        if not (_among(change.before, rule.before) and _among(change.after, rule.after)):
            continue
        if rule.kind == "realised" and isinstance(change.after, dict) and rule.realised not in change.after:
            continue  # a group of settings without this one
        pattern = _filled(rule.pattern, change)
        if pattern is not None:
            return Probe(
                kind=rule.kind, pattern=pattern, key=rule.realised, category=rule.category, differs=rule.differs,
                present_in=rule.present_in, under_load=rule.under_load, source=rule.source,
            )  # fmt: skip
    return Probe(kind="none", source=f"{FOLDER.name} has no rule for {change}")


@dataclass(frozen=True)
class ArmSeen:
    """All that is known of one arm: its whole log, its latest ready launch, its latest runs, its profile."""

    log: str = ""
    record: LaunchRecord | None = None
    runs: tuple[Measurement, ...] = ()
    kernels: Kernels | None = None


def judge_path(change: Change, probe: Probe, a: ArmSeen, b: ArmSeen) -> PathEvidence:
    """Pure. `a` is the incumbent, `b` the changed engine."""
    if probe.kind == "none":
        return PathEvidence(outcome="unknown", probe=probe, reason=f"no way known to see {change.key} in use")
    if probe.kind == "peak_running":
        return _judge_peak(change, probe, list(a.runs), list(b.runs))
    filled = _filled(probe.pattern, change)  # a night file's own probe may hold {after} still
    try:
        re.compile(filled or "")
    except re.error as error:
        reason = f"the probe's pattern is no regular expression: {error}"
        return PathEvidence(outcome="unknown", probe=probe, reason=reason)
    if not filled and (filled is None or probe.kind in ("log_line", "kernel", "counter")):
        return PathEvidence(outcome="unknown", probe=probe, reason="the probe has no pattern that fits this value")
    ready = probe.model_copy(update={"pattern": filled})
    if probe.kind == "realised":
        return judge_realised(change, ready, a.record, b.record, a.log, b.log)
    if probe.kind == "kernel":
        if a.kernels is None or b.kernels is None:
            missing = "A" if a.kernels is None else "B"
            return PathEvidence(outcome="unknown", probe=ready, reason=f"there is no profile of arm {missing}")
        return judge_kernels(ready, a.kernels, b.kernels)
    for name, arm in (("A", a), ("B", b)):
        if not arm.log.strip():
            return PathEvidence(outcome="unknown", probe=ready, reason=f"there is no log of arm {name} to look at")
    if probe.kind == "table_row":
        return judge_rows(change, ready, a.log, b.log)
    if probe.kind == "counter":
        return judge_counter(change, ready, a.log, b.log)
    if probe.kind == "imported":
        return judge_imported(change, ready, a.log, b.log)
    return _judge_lines(change, ready, a.log, b.log)


# --- log lines ---


def _judge_lines(change: Change, probe: Probe, log_a: str, log_b: str) -> PathEvidence:
    pattern = re.compile(probe.pattern)
    a, b = _seen(pattern, log_a), _seen(pattern, log_b)
    here, there = (b, a) if probe.present_in == "B" else (a, b)
    other = "A" if probe.present_in == "B" else "B"
    if here and not there:
        outcome: Literal["proven", "absent"] = "proven"
        reason = f"only arm {probe.present_in} writes: {here}"
    elif here:
        outcome, reason = "absent", f"both arms write: {here}; so they do the same, whatever {change.key} says"
    elif there:
        outcome, reason = "absent", f"the wrong arm ({other}) writes: {there}"
    else:
        outcome = "absent"
        reason = f"accepted but not in use: no line like /{probe.pattern}/ in the log of arm {probe.present_in}"
        said = _refusal(change, log_b)
        reason += f"; the engine says: {said}" if said else ""
    shown: dict[str, dict[str, JsonValue]] = {"a": {"line": a} if a else {}, "b": {"line": b} if b else {}}
    return PathEvidence(outcome=outcome, probe=probe, seen_in_a=a, seen_in_b=b, reason=reason, **shown)


def _seen(pattern: re.Pattern[str], log: str) -> str | None:
    """The first line that matches, a long one cut to its head and what matched."""
    for line in _lines(log):
        match = pattern.search(line)
        if match:
            head, tail = line[:_HEAD_SHOWN], line[max(match.end() - _TAIL_SHOWN, 0) : match.end() + 20]
            return line.strip() if len(line) <= _HEAD_SHOWN + _TAIL_SHOWN else f"{head.strip()} ... {tail.strip()}"
    return None


def _refusal(change: Change, log: str) -> str | None:
    """The engine's own line that it does without the new value, if it wrote one."""
    if not isinstance(change.after, str) or len(change.after) < 3:
        return None
    doubt = re.compile(
        rf"(?i)(cannot use|not support|unsupported|ignor|fall\w* back|overrid).*{re.escape(change.after)}"
    )
    return _seen(doubt, log)


def _lines(log: str) -> Iterable[str]:
    """Without colours, and without the lines that only repeat what was asked for."""
    for raw in log.splitlines():
        line = _COLOUR.sub("", raw)
        if not any(marker in line for marker in _ACCEPTED):
            yield line


# --- requests running at a time ---


def _judge_peak(change: Change, probe: Probe, a: list[Measurement], b: list[Measurement]) -> PathEvidence:
    """Raising a limit is seen when more run than the old one allowed; lowering it, when no more run than the new one
    allows where more did before. Peaks are of the gauge vllm:num_requests_running."""
    peak_a, peak_b = _peak(a), _peak(b)
    old, new = _whole(change.before), _whole(change.after)
    shown: dict[str, Any] = {"seen_in_a": _say(peak_a), "seen_in_b": _say(peak_b)}
    shown |= {arm: {"running_peak": peak} for arm, peak in (("a", peak_a), ("b", peak_b)) if peak is not None}
    if peak_a is None or peak_b is None:
        missing = "A" if peak_a is None else "B"
        reason = f"how many ran at a time in arm {missing} was not seen"
        return PathEvidence(outcome="unknown", probe=probe, reason=reason, **shown)
    outcome: Literal["proven", "absent", "unknown"]
    lowered = new is not None and (old is None or new < old)
    if old is not None and not lowered:
        if peak_b > old >= peak_a:
            outcome, reason = "proven", f"{peak_b:g} requests ran at a time, the old limit allowed {old}"
        else:
            outcome, reason = "absent", f"no more ran at a time than {old} in arm B (A {peak_a:g}, B {peak_b:g})"
    elif new is not None:
        if peak_a > new >= peak_b:
            outcome, reason = "proven", f"at most {peak_b:g} ran at a time, {peak_a:g} before"
        else:
            outcome, reason = "absent", f"the new limit {new} was never in the way (A {peak_a:g}, B {peak_b:g})"
    else:
        outcome, reason = "unknown", "neither limit is a number"
    return PathEvidence(outcome=outcome, probe=probe, reason=reason, **shown)


def _peak(runs: list[Measurement]) -> float | None:
    values = [m.conditions.get("running_peak") for m in runs]
    found = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return max(found) if found else None


def _say(peak: float | None) -> str | None:
    return None if peak is None else f"{peak:g} requests at a time"


def _whole(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# --- rules ---


def _among(value: JsonValue, wanted: tuple[JsonValue, ...] | None) -> bool:
    return wanted is None or any(same(value, w) for w in wanted)


def _covers(wanted: str | None, version: str) -> bool:
    if wanted is None:
        return True
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def _filled(pattern: str, change: Change) -> str | None:
    """The pattern with {after}, {before}, {after.key} replaced by their values as Python writes them, escaped, and
    {key}, {key.file} by the change's key and what stands before its "#". None where one is missing."""
    pattern = pattern.replace("{key}", re.escape(change.key)).replace(
        "{key.file}", re.escape(change.key.rpartition("#")[0])
    )
    holes = re.compile(r"\{(before|after)((?:\.\w+)*)\}")
    values: dict[str, JsonValue] = {"before": change.before, "after": change.after}
    for side, path in set(holes.findall(pattern)):
        value = values[side]
        for key in path.split(".")[1:]:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or isinstance(value, dict):
            return None
        pattern = pattern.replace("{" + side + path + "}", re.escape(str(value)))
    return pattern
