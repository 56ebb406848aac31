"""Kernel numerics as a check of the gate: kernels by name in, one GateResult each out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accuracy_gate.numerics.launch import LIMITS, Kernel, Limits, run_inside
from accuracy_gate.numerics.summary import SAME_MEMORY, Summary, summaries
from contracts import GateResult

CHECK = "numerics"


def check(
    python: str,
    kernels: Sequence[Kernel],
    folders: Sequence[Path],
    device: str = "auto",
    level: str = "auto",
    seed: int = 0,
    limits: Limits = LIMITS,
) -> tuple[GateResult, ...]:
    """In one process of `python` (the engine's interpreter), with `folders` on its path; results in order.

    A kernel that crashes or hangs the process fails, and those after it are `not_run`: give a kernel that is not
    trusted a call of its own.
    """
    ended = run_inside(python, kernels, folders, device, level, seed, limits)
    return tuple(result(summary) for summary in summaries(kernels, ended))


def result(found: Summary) -> GateResult:
    """Pure."""
    ran = bool(found.classes)
    return GateResult(
        check=CHECK, outcome=found.outcome, mode=mode(found), statistic=found.plain(),
        power=power(found) if ran else None, reason=f"{found.kernel.kernel}: {found.reason}", seconds=found.seconds,
    )  # fmt: skip


def mode(found: Summary) -> str:
    machine = found.machine
    if not machine:
        return "against float64 references"
    versions = f"torch {machine['torch']}" + (f", Triton {machine['triton']}" if machine["triton"] else "")
    how = "; its Triton code in the interpreter" if found.interpreted else ""
    return f"against float64 references on {machine['name']} ({versions}{how})"


def power(found: Summary) -> str:
    seen = (
        "sees an element that is one ulp further off than a plain implementation's worst, rounding 1.5 times as large "
        "over all elements or over one row, a mean shift of 0.1 ulp; any write outside, any element unwritten"
    )
    blind = ["sizes and views that were not tried", "errors below those"]
    if found.machine.get("device") == "cpu":
        blind.append("what only compiled code or a real graph does")
    if found.replay and found.replay["mode"] == SAME_MEMORY:
        blind.append("anything about capture: the kernel was called again on static buffers")
    return f"{seen}. Not seen: {'; '.join(blind)}"
