"""Did the changed engine launch other kernels, or the same ones in another shape? Pure.

Both profiles are of the same requests under the same profiler. Times are no evidence and are not looked at. Launches
outside the burst never come here: the torch profiler is off then, and rocprofv3's record is cut by its clock.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from pydantic import JsonValue

from agents.research.traces.kernels import Kernels, KernelSeen
from contracts import PathEvidence, Probe

# How many times as many launches count as different. Equal requests are batched differently from run to run, so equal
# engines differ too, by how much nobody has measured: judged, with room.
LAUNCHES_DIFFER = 1.5
# The same reason: some launches of equal engines have a grid, or a table's row, of their own. The change shows where at
# least this share of one arm's launches has a value that the other arm never had: judged. A grid follows the batch too,
# so that block, shared memory and registers are the better witnesses.
SHARE_DIFFERS = 0.25
SHOWN = 8
Outcome = Literal["proven", "absent", "unknown"]


def judge_kernels(probe: Probe, a: Kernels, b: Kernels) -> PathEvidence:
    """By presence, or, where the probe says in what they must differ, by that."""

    def told(outcome: Outcome, reason: str) -> PathEvidence:
        return PathEvidence(
            outcome=outcome, probe=probe, reason=reason, a=_data(a, in_a), b=_data(b, in_b),
            seen_in_a=_words(in_a), seen_in_b=_words(in_b),
        )  # fmt: skip

    in_a, in_b = _matching(probe, a), _matching(probe, b)
    for arm, profile in (("A", a), ("B", b)):
        if not profile.seen:
            return told("unknown", f"the profile of arm {arm} holds no event of the category {probe.category}")
        cut = [line for line in profile.warnings if "cut off" in line or "ends early" in line]
        if cut:
            return told("unknown", f"the profile of arm {arm} is not whole: {cut[0]}")
    if a.profiler != b.profiler:  # they count differently, and one's grid is in blocks, the other's in work-items
        return told("unknown", f"the arms have different profilers: {a.profiler} and {b.profiler}")
    if not probe.differs:
        return told(*_presence(probe, in_a, in_b))
    if not in_a or not in_b:
        missing = "A" if not in_a else "B"
        return told("absent", f"arm {missing} launched nothing like /{probe.pattern}/")
    equal = []
    for attribute in probe.differs:
        if attribute == "launches":
            counts = sorted((_launches(in_a), _launches(in_b)))
            if counts[1] < LAUNCHES_DIFFER * counts[0]:
                equal.append(f"launches ({_launches(in_a)} and {_launches(in_b)})")
            continue
        seen_a, seen_b = _values(in_a, attribute), _values(in_b, attribute)
        if not seen_a or not seen_b:
            missing = "A" if not seen_a else "B"
            return told("unknown", f"the profile of arm {missing} does not tell the {attribute} of /{probe.pattern}/")
        new = max(_share_outside(seen_a, seen_b), _share_outside(seen_b, seen_a))
        if new < SHARE_DIFFERS:
            most = ", ".join(value for value, _ in seen_a.most_common(3))
            equal.append(f"{attribute} ({most}{f'; {new:.0%} of the launches differ' if new else ''})")
    if equal:
        return told("absent", f"the same kernels in both arms, equal in {', '.join(equal)}")
    changed = ", ".join(_changed(in_a, in_b, attribute) for attribute in probe.differs)
    return told("proven", f"the same kernels in both arms, different in {changed}")


def _presence(probe: Probe, in_a: list[KernelSeen], in_b: list[KernelSeen]) -> tuple[Outcome, str]:
    here, there = (in_b, in_a) if probe.present_in == "B" else (in_a, in_b)
    other = "A" if probe.present_in == "B" else "B"
    new = [k for k in here if k.name not in {t.name for t in there}]
    if here and not there:
        return "proven", f"only arm {probe.present_in} launches {_words(new)}"
    if here:
        return "absent", f"both arms launch {_words(here)}; so they do the same here"
    if there:
        return "absent", f"the wrong arm ({other}) launches {_words(there)}"
    return "absent", f"accepted but not in use: arm {probe.present_in} launched nothing like /{probe.pattern}/"


def _matching(probe: Probe, profile: Kernels) -> list[KernelSeen]:
    symbol = re.compile(probe.pattern)
    return [kernel for kernel in profile.seen if symbol.search(kernel.name)]


def _launches(kernels: list[KernelSeen]) -> int:
    return sum(kernel.launches for kernel in kernels)


def _values(kernels: list[KernelSeen], attribute: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for kernel in kernels:
        found.update(getattr(kernel, attribute))
    return found


def _changed(in_a: list[KernelSeen], in_b: list[KernelSeen], attribute: str) -> str:
    """ "shared_memory: mostly 49152 (3968 of 4096 launches) in arm A, 73728 (4032 of 4096) in arm B" """
    if attribute == "launches":
        return f"launches: {_launches(in_a)} in arm A, {_launches(in_b)} in arm B"
    (a, of_a), (b, of_b) = (_mostly(_values(kernels, attribute)) for kernels in (in_a, in_b))
    return f"{attribute}: mostly {a} ({of_a} launches) in arm A, {b} ({of_b}) in arm B"


def _mostly(values: Counter[str]) -> tuple[str, str]:
    value, launches = values.most_common(1)[0]
    return value, f"{launches} of {values.total()}"


def _share_outside(values: Counter[str], others: Counter[str]) -> float:
    """Of the launches in `values`, those with a value that `others` does not have."""
    return sum(n for value, n in values.items() if value not in others) / values.total()


def _words(kernels: list[KernelSeen]) -> str | None:
    if not kernels:
        return None
    first = max(kernels, key=lambda kernel: kernel.launches)
    more = f" and {len(kernels) - 1} more" if len(kernels) > 1 else ""
    return f"{first.name[:120]} ({first.launches} launches){more}"


def _data(profile: Kernels, matching: list[KernelSeen]) -> dict[str, JsonValue]:
    kept: list[JsonValue] = [kernel.model_dump(mode="json") for kernel in matching[:SHOWN]]
    told: dict[str, JsonValue] = {"profile": profile.source, "profiler": profile.profiler, "names": len(profile.seen)}
    return {**told, "kernels": kept, **({"warnings": list(profile.warnings)} if profile.warnings else {})}
