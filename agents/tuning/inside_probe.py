"""What the watcher counted, which patched files it saw imported, and which patched functions run. Pure."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import JsonValue

from agents.tuning.ran import Ran, ran
from agents.tuning.seen import Seen, blind, of_kind, seen_in
from contracts import Change, PathEvidence, Probe

_ADDED = re.compile(r"^\+\+\+ (?:b/)?([^\t\r\n]+)", re.MULTILINE)
Outcome = Literal["proven", "absent", "unknown"]
# vLLM's own line (compilation/decorators.py, 0.32.0): then Dynamo does not read the model's code again.
_FROM_CACHE = re.compile(r"Directly load AOT compilation from path")
UNSEEN = "whether it ran cannot be seen"


def judge_counter(change: Change, probe: Probe, log_a: str, log_b: str) -> PathEvidence:
    """Calls of kernels whose counter's name matches: in one arm, and none in the other."""
    a, b = seen_in(log_a), seen_in(log_b)
    if dark := blind(a, b):
        return PathEvidence(outcome="unknown", probe=probe, reason=dark)
    count_a, count_b = _counts(probe, a), _counts(probe, b)
    here, there = (count_b, count_a) if probe.present_in == "B" else (count_a, count_b)
    other = "A" if probe.present_in == "B" else "B"
    outcome: Outcome = "absent"
    if here and not there:
        outcome, reason = "proven", f"only arm {probe.present_in} calls {_calls(here)}"
    elif here:
        reason = f"both arms call it: A {_calls(count_a)}, B {_calls(count_b)}"
    elif there:
        reason = f"the wrong arm ({other}) calls {_calls(there)}"
    else:
        reason = f"accepted but not in use: arm {probe.present_in} never called /{probe.pattern}/"
    return PathEvidence(
        outcome=outcome, probe=probe, reason=reason, a={"counts": count_a} if count_a else {},
        b={"counts": count_b} if count_b else {}, seen_in_a=_calls(count_a) or None, seen_in_b=_calls(count_b) or None,
    )  # fmt: skip


def _counts(probe: Probe, lines: tuple[Seen, ...]) -> dict[str, JsonValue]:
    """name -> calls, at least: counts are written at powers of two, the largest of any process stands."""
    named, found = re.compile(probe.pattern), dict[str, Any]()
    for data in of_kind(lines, "counter"):
        name = str(data.get("name"))
        if named.search(name):
            found[name] = max(found.get(name, 0), int(data.get("count", 0)))
    return found


def _calls(counts: dict[str, JsonValue]) -> str:
    return ", ".join(f"{name} at least {count} times" for name, count in sorted(counts.items()))


def judge_imported(change: Change, probe: Probe, log_a: str, log_b: str) -> PathEvidence:
    """A patched file, as it lies in B's overlay, was imported by B's processes, and something that the patch changes in
    it ran there; A's imported it neither from an overlay nor with the same content. Files that are not Python are
    imported by nobody."""
    removed = change.after is None
    patch = change.before if removed else change.after
    files = _ADDED.findall(patch if isinstance(patch, str) else "")
    wanted = [path for path in files if path.endswith(".py")]
    if not wanted:
        reason = "the patch changes no Python file, so no import shows it: give the change a probe of its own"
        return PathEvidence(outcome="unknown", probe=probe, reason=reason)
    a, b = seen_in(log_a), seen_in(log_b)
    if dark := blind(a, b):
        return PathEvidence(outcome="unknown", probe=probe, reason=dark)
    here, there = (a, b) if removed else (b, a)
    arm, other = ("A", "B") if removed else ("B", "A")
    mine, theirs = _imports(wanted, here), _imports(wanted, there)
    mine_ran, theirs_ran = ran(change.key, wanted, here), ran(change.key, wanted, there)
    new = {path: at for path, at in mine.items() if theirs.get(path, {}).get("sha256") != at.get("sha256")}
    outcome: Outcome = "absent"
    if new:
        missed = [path for path in wanted if path not in mine]
        told = f"arm {arm} imported {', '.join(sorted(new))} as patched, arm {other} did not"
        told += f"; not imported: {', '.join(missed)}" if missed else ""
        log = log_a if removed else log_b
        outcome, why = _of_functions(mine_ran, len(files) > len(wanted), bool(_FROM_CACHE.search(log)))
        reason = f"{told}; {why}" if outcome == "proven" else f"{why} ({told})"
    elif mine:
        reason = f"both arms imported {', '.join(sorted(mine))} with the same content"
    else:
        reason = f"laid over but not in use: arm {arm} imported none of {', '.join(wanted)}"
    shown = {arm.lower(): _shown(mine, mine_ran), other.lower(): _shown(theirs, theirs_ran)}
    return PathEvidence(outcome=outcome, probe=probe, reason=reason, a=shown["a"], b=shown["b"])


def _of_functions(seen: Ran | None, more_files: bool, from_cache: bool) -> tuple[Outcome, str]:
    """Of a patch whose file was imported. What is no Python, a kernel of which no hash is to be had and the like rest
    on the import alone, as the reason says. `from_cache`: compiled code was loaded, whose functions nobody knows."""
    if seen is None:
        return "proven", UNSEEN
    names = ", ".join(seen.not_seen)
    if seen.seen:
        words = ", ".join(f"{name} {how}" for name, how in seen.seen.items())
        return "proven", f"{words}{f'; not called: {names}' if names else ''}"
    if seen.module:
        return "proven", "it changes code outside of functions, which the import ran"
    if seen.unseen or seen.more or more_files:
        what = f" of {', '.join(seen.unseen)}" if seen.unseen else ""
        return "proven", f"{UNSEEN}{what}{f'; not called: {names}' if names else ''}"
    if not seen.not_seen:
        return "absent", "imported, and the patch changes only comments and layout"
    if from_cache:
        return "unknown", f"compiled code came from a cache, and whether {names} is in it cannot be seen"
    return "absent", f"imported, and {_none_of(seen.not_seen)} called under the workload"


def _none_of(names: tuple[str, ...]) -> str:
    return f"{names[0]} was never" if len(names) == 1 else f"none of {', '.join(names)} was"


def _shown(imports: dict[str, dict[str, JsonValue]], seen: Ran | None) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"imported": dict(imports)} if imports else {}
    return found | ({"functions": dict(seen.words)} if seen and seen.words else {})


def _imports(wanted: list[str], lines: tuple[Seen, ...]) -> dict[str, dict[str, JsonValue]]:
    """path in the patch -> what was told of it. A patch may or may not name the folder of its package."""
    found = {}
    for data in of_kind(lines, "imported"):
        for path in wanted:
            if str(data.get("file", "")).endswith(f"/{path}"):
                found[path] = {key: data.get(key) for key in ("module", "file", "sha256")}
    return found
