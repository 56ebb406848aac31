"""What a dossier takes from a profile, or from a small file in which a person wrote down what a profile said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from agents.config_words import drop_echoes, in_words
from agents.research.dossier import PhaseProfile
from agents.research.traces.categories import KERNEL_CATEGORIES
from agents.research.traces.summary import TraceSummary, typical_ms
from agents.strict_yaml import YamlProblem, read_yaml, show_path
from contracts import Frozen

# Steps of a trace that held both phases, from which on their times may stand for the workload's mix. Judged; below it
# the window decides the mix, not the workload.
ENOUGH_STEPS = 50
ROUNDING = 0.01  # shares that a person wrote down may add up to this much over 1
SEE = "docs/audit.md, Known shares, has an example"
_PERCENT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


def phase_profiles(summary: TraceSummary) -> tuple[PhaseProfile, ...]:
    """One for prefill and one for decode, as far as the trace has such steps: medians over the steps, and the shares of
    the time in kernels. Empty for a trace without vLLM's step annotations. A phase's weight only where the trace has
    both and ENOUGH_STEPS."""
    told = [p for p in summary.phases if p.phase != "unknown" and p.steps]
    total, steps = sum(p.total_ms for p in told), sum(p.steps for p in told)
    weighed = len(told) == 2 and steps >= ENOUGH_STEPS and total > 0
    found = []
    for phase in told:
        step_ms, kernel_ms = typical_ms([s for s in summary.steps if s.kind.phase == phase.phase])
        found.append(
            PhaseProfile(
                phase="prefill" if phase.phase == "prefill" else "decode",
                weight=phase.total_ms / total if weighed else None,
                step_ms=step_ms,
                kernel_ms=kernel_ms,
                shares=phase.shares,
                source=f"measured in {summary.source}, {phase.steps} step{'s' if phase.steps > 1 else ''}",
            )
        )
    return tuple(found)


class ProfileError(ValueError):
    """A hand-written profile that cannot be used. One line that says where the format is described."""


def _share(value: Any) -> Any:
    """ "43 %" is 0.43."""
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return float(percent.group(1)) / 100 if percent else value


class _Phase(Frozen):
    phase: Literal["prefill", "decode"]
    weight: float | None = Field(None, ge=0, le=1)
    step_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    kernel_ms: float | None = Field(None, ge=0, allow_inf_nan=False)
    shares: dict[str, float] = {}

    @field_validator("weight", "shares", mode="before")
    @classmethod
    def percent(cls, value: Any) -> Any:
        return {name: _share(one) for name, one in value.items()} if isinstance(value, dict) else _share(value)

    @field_validator("shares")
    @classmethod
    def of_known_categories(cls, shares: dict[str, float]) -> dict[str, float]:
        for name, value in shares.items():
            if name not in KERNEL_CATEGORIES:
                raise ValueError(f"{name[:40]!r} is none of {', '.join(KERNEL_CATEGORIES)}")
            if not 0 <= value <= 1:
                raise ValueError(f"{name} = {value:g} is no share; write 0.43 or 43 %")
        if sum(shares.values()) > 1 + ROUNDING:
            raise ValueError(f"they add up to {sum(shares.values()):.2f}, which is more than all of the phase")
        return shares

    @model_validator(mode="after")
    def kernels_fit_into_the_step(self) -> _Phase:
        if self.step_ms is not None and self.kernel_ms is not None and self.kernel_ms > self.step_ms:
            raise ValueError(f"kernel_ms {self.kernel_ms:g} is more than step_ms {self.step_ms:g}")
        return self


class _Profile(Frozen):
    source: str = Field("", max_length=200)  # what was measured, with what
    phases: tuple[_Phase, ...] = Field(min_length=1, max_length=2)

    @model_validator(mode="after")
    def each_phase_once(self) -> _Profile:
        if len({p.phase for p in self.phases}) < len(self.phases):
            raise ValueError("each phase may stand there once")
        if len(self.phases) == 2 and all(p.weight is not None for p in self.phases):
            total = sum(p.weight or 0.0 for p in self.phases)
            if abs(total - 1) > ROUNDING:
                raise ValueError(f"the two weights add up to {total:.2f}, not to 1")
        return self


def profiles_from_json(path: str | Path) -> tuple[PhaseProfile, ...]:
    """`{"source": "rocprofv3, 2 runs", "phases": [{"phase": "prefill", "weight": 0.8, "step_ms": 61.0,
    "kernel_ms": 60.2, "shares": {"attention": 0.43}}]}`, JSON or YAML; everything but phases and phase may be absent.
    Shares are of the phase's time in kernels, 0 to 1 or "43 %". Raises ProfileError."""
    path = Path(path)
    try:
        told = read_yaml(path).data
        if not isinstance(told, dict):
            raise _error(path, "holds no key phases")
        held = _Profile.model_validate(told)
    except YamlProblem as problem:
        raise ProfileError(f"{problem.lines[0].replace(str(path), path.name, 1)}; {SEE}") from None
    except ValidationError as error:
        found = drop_echoes(error.errors(include_url=False), _Profile)
        first = min(found, key=lambda e: e["type"] != "missing")
        where = show_path(tuple(first["loc"]))
        words = {"missing": f"{where} is missing", "too_short": f"{where} is empty"}
        raise _error(path, words.get(first["type"]) or in_words(first, _Profile)) from None
    source = f"{path.name}: {held.source}" if held.source else f"{path.name}, written by hand"
    return tuple(PhaseProfile(**phase.model_dump(), source=source) for phase in held.phases)


def _error(path: Path, what: str) -> ProfileError:
    return ProfileError(f"{path.name}: {' '.join(what.split())}; {SEE}")
