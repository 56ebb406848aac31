"""Who holds the card: processes with memory on it, and memory that no process which we can see accounts for.

Reading (`tenants`) and deciding (`foreign`, `unaccounted`, `busy`: pure) are apart. Where the words come from is in
cards/amd_tenants.py and cards/nvidia_tenants.py. HIP and CUDA are never initialised, and no process is ever ended.

In a container the drivers tell the host's process numbers, which name nobody here. There each process that we can see
with the compute device open is taken off against one of the driver's entries, the nearest in size, and what is left is
somebody outside. So a process of ours is never taken for a stranger.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cards import amd_tenants, nvidia_tenants
from cards.detect import HERE, free_memory
from cards.processes import OpenDevices, in_first_pid_namespace, name_of, open_devices, pids
from contracts import Card, Frozen

GIB = 1 << 30
# Memory in use with nobody on the card: firmware, page tables, ECC. Judged, not measured on AMD: drivers keep some
# hundred MiB for themselves, and an engine that serves a model takes more than this.
DRIVERS_OWN_BYTES = GIB
# A display server or a window holds less than this; above it a DRM client without KFD computes (Vulkan). Judged.
DISPLAY_BYTES = GIB


class Tenant(Frozen):
    """One process with memory on the card."""

    pid: int
    name: str | None  # None: it cannot be named from here
    memory_bytes: int | None  # None: the driver does not say
    use: Literal["compute", "display"]  # display: a DRM or graphics client that has no compute device open
    here: bool = True  # false: `pid` is the host's, and the process is outside this container

    @property
    def words(self) -> str:
        who = f"{self.name or 'a process'} (pid {self.pid})"
        if not self.here:
            who = f"a process outside this container (host pid {self.pid})"
        return f"{who} holds {size(self.memory_bytes)} of it" if self.memory_bytes is not None else f"{who} is on it"


class Tenancy(Frozen):
    """Who was on the card at one moment."""

    tenants: tuple[Tenant, ...] = ()
    used_bytes: int | None = None  # of the card's memory, by everybody; None: the driver does not say
    told: tuple[str, ...] = ()  # who told of processes: "KFD", "DRM", "NVML"; (): nobody did
    hidden: int = 0  # processes that this user may not look into


def size(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB // 10 else f"{number / (1 << 20):.0f} MiB"


# --- deciding -----------------------------------------------------------------------------------------------------


def foreign(tenancy: Tenancy, own_pids: Collection[int]) -> tuple[Tenant, ...]:
    """Who computes on the card and is not ours, the largest first. A display does not count while it is small."""
    others = (t for t in tenancy.tenants if not (t.here and t.pid in own_pids))
    computing = (t for t in others if t.use == "compute" or (t.memory_bytes or 0) > DISPLAY_BYTES)
    return tuple(sorted(computing, key=lambda t: -(t.memory_bytes or 0)))


def unaccounted(tenancy: Tenancy) -> int | None:
    """Bytes in use that no process which we know of holds; None where that cannot be said."""
    held = [t.memory_bytes for t in tenancy.tenants]
    if tenancy.used_bytes is None or None in held:
        return None
    return max(0, tenancy.used_bytes - sum(size or 0 for size in held))


def others_bytes(tenancy: Tenancy, own_pids: Collection[int]) -> int | None:
    """Bytes in use that our own processes do not hold, the driver's own among them; None where that cannot be said."""
    own = [t.memory_bytes for t in tenancy.tenants if t.here and t.pid in own_pids]
    if tenancy.used_bytes is None or None in own or (own_pids and not own):
        return None
    return max(0, tenancy.used_bytes - sum(size or 0 for size in own))


def held_for_work(tenancy: Tenancy) -> int | None:
    """Bytes in use without what displays hold, which comes and goes with windows."""
    if tenancy.used_bytes is None:
        return None
    shown = (t.memory_bytes or 0 for t in tenancy.tenants if t.use == "display")
    return max(0, tenancy.used_bytes - sum(shown))


def busy(tenancy: Tenancy, own_pids: Collection[int]) -> str | None:
    """Who is on the card besides us, in one line; None when nobody is. While engines of ours are up, memory that nobody
    accounts for is held against nobody: drivers keep more for a busy card."""
    others = foreign(tenancy, own_pids)
    parts = [", ".join(t.words for t in others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")]
    left = None if own_pids else unaccounted(tenancy)
    if left is not None and left > DRIVERS_OWN_BYTES:
        parts.append(f"somebody whom this user cannot see holds {size(left)} of it")
    return "; ".join(filter(None, parts)) or None


# --- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """What a walk through every process' open files found. It is most of the cost of a look."""

    devices: OpenDevices
    drm: Mapping[int, int | None]  # pid -> bytes of the card's memory, as amd_tenants.drm_clients tells them


def walk(card: Card, root: Path = HERE) -> Walk:
    devices = open_devices(root)
    return Walk(devices, amd_tenants.drm_clients(card, root, devices) if card.kind == "amd" else {})


def tenants(card: Card, root: Path = HERE, walked: Walk | None = None) -> Tenancy:
    """Who is on the card now; nobody, told by nobody, for a CPU. Never raises. Another root is a recorded /sys and
    /proc (NVML is then not asked). `walked` shortly before makes it cheap: KFD, NVML and the memory in use are then
    read anew, and what only /proc tells (displays, and who is in this container) is as old as the walk."""
    if card.kind == "amd":
        return _amd(card, root, walked or walk(card, root))
    if card.kind == "nvidia" and root == HERE:
        return _nvidia(card, root, (walked or walk(card, root)).devices)
    return Tenancy()


def _amd(card: Card, root: Path, walked: Walk) -> Tenancy:
    kfd = amd_tenants.kfd_processes(card, root)
    devices, drm = walked.devices, walked.drm
    openers = [p for p in devices.holders(amd_tenants.COMPUTE_DEVICE) if drm.get(p, None) != 0]
    compute = _with_names(root, kfd, {p: drm.get(p) for p in openers})
    known = {*(t.pid for t in compute if t.here), *devices.holders(amd_tenants.COMPUTE_DEVICE)}
    display = [  # who has KFD open as well is on another part of this card, and KFD has said so
        Tenant(pid=pid, name=name_of(root, pid), memory_bytes=held, use="display")
        for pid, held in drm.items()
        if held and pid not in known
    ]
    told = (*(["KFD"] if kfd is not None else []), *(["DRM"] if any(v is not None for v in drm.values()) else []))
    return Tenancy(tenants=(*compute, *display), used_bytes=_used(card, root), told=told, hidden=devices.hidden)


def _nvidia(card: Card, root: Path, devices: OpenDevices) -> Tenancy:
    answer = nvidia_tenants.nvml_processes(card)
    if answer is None:
        return Tenancy(used_bytes=_used(card, root), hidden=devices.hidden)
    compute, graphics = answer
    found = _with_names(root, compute, dict.fromkeys(devices.holders(nvidia_tenants.COMPUTE_DEVICE)))
    shown = [
        Tenant(pid=pid, name=name_of(root, pid), memory_bytes=held, use="display")
        for pid, held in graphics.items()
        if pid not in compute
    ]
    return Tenancy(tenants=(*found, *shown), used_bytes=_used(card, root), told=("NVML",), hidden=devices.hidden)


def _used(card: Card, root: Path) -> int | None:
    free = free_memory(card, root)
    return None if free is None or not card.memory_bytes else max(0, card.memory_bytes - free)


def _with_names(
    root: Path, told: dict[int, int | None] | dict[int, int] | None, visible: dict[int, int | None]
) -> tuple[Tenant, ...]:
    """The driver's compute processes, named where they are of this container. `visible`: processes here that have the
    compute device open -> bytes, None where not known."""

    def here(pid: int, held: int | None) -> Tenant:
        return Tenant(pid=pid, name=name_of(root, pid), memory_bytes=held, use="compute")

    if told is None:
        return tuple(here(pid, held) for pid, held in visible.items() if held)
    if _ours_to_name(root, told):
        return tuple(here(pid, _larger(held, visible.get(pid))) for pid, held in told.items())
    left: dict[int, int | None] = dict(told)
    found = []
    for pid, held in sorted(visible.items(), key=lambda item: -(item[1] or 0)):
        if not left:
            break  # it has the device open and no memory on this card
        nearest = min(left, key=lambda p: abs((left[p] or 0) - held) if held is not None else -(left[p] or 0))
        found.append(here(pid, _larger(left.pop(nearest), held)))
    outside = (Tenant(pid=pid, name=None, memory_bytes=held, use="compute", here=False) for pid, held in left.items())
    return (*found, *outside)


def _ours_to_name(root: Path, told: Collection[int]) -> bool:
    """Whether the driver's process numbers are those of /proc here."""
    first = in_first_pid_namespace(root)
    return first if first is not None else set(told) <= set(pids(root))


def _larger(one: int | None, other: int | None) -> int | None:
    return max(filter(None, (one, other)), default=one)
