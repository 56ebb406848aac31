"""What a numerics process said about each kernel, as numbers by class of size. Pure; plain dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from accuracy_gate.numerics.launch import Ended, Kernel, Line

# As in inside/nightgate_numerics/checks.py: the order in which findings are told.
CHECKS = ("raises", "outside", "inputs", "unwritten", "finite", "stale", "values", "repeat", "replay")
SAME_MEMORY = "same memory"


@dataclass
class Class:
    """One class of sizes or views. Errors in ulps; `rms_ratio` is the kernel's rms over the plain implementation's."""

    tried: int = 0
    failed: int = 0
    rms_ratio: float = 0.0
    largest: float = 0.0
    plain_largest: float = 0.0
    mean: float = 0.0

    def add(self, line: Line) -> None:
        self.tried += 1
        self.failed += bool(line["findings"])
        self.rms_ratio = max(self.rms_ratio, line["rms_ratio"])
        self.mean = max(self.mean, line["mean"], key=abs)
        if line["largest"] >= self.largest:
            self.largest, self.plain_largest = line["largest"], line["plain_largest"]


@dataclass
class Summary:
    kernel: Kernel
    outcome: Literal["pass", "fail", "inconclusive", "not_run"] = "not_run"
    reason: str = ""
    machine: Line = field(default_factory=dict)
    level: str = ""
    interpreted: bool = False
    classes: dict[str, Class] = field(default_factory=dict)
    replay: Line | None = None
    failed_checks: dict[str, int] = field(default_factory=dict)  # in the order of CHECKS
    calls: int = 0
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        told = ("mode", "captures", "steps", "rms_ratio", "largest")
        replay = self.replay and {name: self.replay[name] for name in told}
        return {
            "kernel": self.kernel.kernel, "case": self.kernel.case, "machine": self.machine, "level": self.level,
            "interpreted": self.interpreted,
            "classes": {label: vars(found) for label, found in self.classes.items()}, "replay": replay,
            "failed_checks": self.failed_checks, "calls": self.calls, "left_out": self.left_out,
        }  # fmt: skip


def summaries(kernels: Sequence[Kernel], ended: Ended) -> tuple[Summary, ...]:
    """One for each kernel, in order."""
    machine = next((line for line in ended.lines if line["event"] == "machine"), {})
    return tuple(_one(kernel, index, machine, ended) for index, kernel in enumerate(kernels))


def _one(kernel: Kernel, index: int, machine: Line, ended: Ended) -> Summary:
    lines = [line for line in ended.lines if line.get("index") == index]
    found = Summary(kernel, machine={name: value for name, value in machine.items() if name != "event"})
    begun = next((line for line in lines if line["event"] == "kernel"), None)
    if begun is None:
        found.reason = f"not reached: {ended.words}" if machine else _no_process(ended)
        return found
    if "not_run" in begun:
        found.reason = begun["not_run"]
        return found
    if "raises" in begun:
        found.outcome, found.reason, found.failed_checks = "fail", begun["raises"], {"raises": 1}
        return found
    found.level, found.left_out, found.interpreted = begun["level"], list(begun["left_out"]), begun["interpreted"]
    findings: list[tuple[str, str]] = []
    for line in lines:
        if line["event"] == "skip":
            found.left_out.append(f"{line['what']}: {line['why']}")
        if line["event"] not in ("seen", "replay"):
            continue
        found.calls += line["calls"]
        at = f"{line['what']}: " if line.get("what") else ""
        findings += [(check, at + words) for check, words in line["findings"]]
        if line["event"] == "replay":
            found.replay = line
        else:
            found.classes.setdefault(line["label"], Class()).add(line)
    end = next((line for line in lines if line["event"] == "end"), None)
    found.seconds = end["seconds"] if end else 0.0
    _decide(found, findings, end, lines[-1], ended)
    return found


def _decide(found: Summary, findings: list[tuple[str, str]], end: Line | None, last: Line, ended: Ended) -> None:
    """A finding fails the kernel whatever came after it."""
    found.failed_checks = {c: n for c in CHECKS if (n := sum(check == c for check, _ in findings))}
    tried, failed = (sum(getattr(c, name) for c in found.classes.values()) for name in ("tried", "failed"))
    if findings:
        first = min(findings, key=lambda finding: CHECKS.index(finding[0]))  # the first of equals
        found.outcome = "fail"
        replay = "" if found.replay is None else f"; graph replay {'fails' if found.replay['findings'] else 'passes'}"
        found.reason = f"{first[0]}: {first[1]} ({failed} of {tried} sizes and views fail{replay})"
    elif end is None:
        at = last.get("what", "its start")
        found.outcome = "fail"
        found.failed_checks = {"raises": 1}
        found.reason = f"{ended.words}, at {at} (after {tried} sizes and views that passed)"
    elif end["stopped"]:
        found.outcome, found.reason = "inconclusive", end["stopped"]
    else:
        found.outcome = "pass"
        worst = max((c.rms_ratio for c in found.classes.values()), default=0.0)
        found.reason = (
            f"{tried} sizes and views, {found.calls} calls: rms at most {worst:.2f} times a plain implementation's"
        )
        if found.replay:
            found.reason += "; {steps} replays of {captures} captures ({mode}) are right".format(**found.replay)


def _no_process(ended: Ended) -> str:
    if any("No module named 'torch'" in line for line in ended.log_tail):
        return "the engine's interpreter has no torch: set engine.python, or run `make setup`"
    return f"the numerics process did not come up: {ended.words}"
