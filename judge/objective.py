"""The objective as it is judged tonight: every limit in its metric's own unit."""

from __future__ import annotations

from collections.abc import Mapping

from contracts import Limit, Objective
from judge.ratios import CannotJudge


def resolve(objective: Objective, baseline: Mapping[str, float | None]) -> Objective:
    """`times_baseline` limits become `at_most`, from the medians of tonight's baseline. Raises CannotJudge when the
    baseline lacks the metric: a limit that cannot be checked would pass as kept."""
    return objective.model_copy(update={"limits": tuple(_resolve(limit, baseline) for limit in objective.limits)})


def _resolve(limit: Limit, baseline: Mapping[str, float | None]) -> Limit:
    if limit.times_baseline is None:
        return limit
    base = baseline.get(limit.metric)
    if not base:
        known = ", ".join(sorted(name for name, value in baseline.items() if value))
        raise CannotJudge(f"the limit on {limit.metric} is relative to a baseline that has none (it has {known})")
    return Limit(metric=limit.metric, at_most=limit.times_baseline * base)
