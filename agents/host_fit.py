"""Is this host fit for its card: driver, device files, limits of this process, and what would end a night early?

Pure functions over a Host, so that a machine that nobody here has can be written down as a folder (tests/agents/
z100_host.py). Each answer is (what is wrong, what to do, whether it stops a night).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cards.access import Look, May, Who, access_problems, container, device_files, look_at, may_use, whoami
from cards.code_objects import archs_in, rocblas_archs
from cards.detect import HERE
from cards.driver import HYGON_MODULES, Software, driver_problems, pci_cards
from cards.hygon import wrong_dtk
from cards.installed import Installed
from cards.kernel_files import read_line, there
from cards.time_limits import ends_early
from cards.timeouts import own_pid
from cards.versions import Told, VersionsError, read_versions, told
from contracts import Card, NightConfig

Found = Iterator[tuple[str, str, bool]]
UNLIMITED = resource.RLIM_INFINITY
# vLLM 0.32 raises its own limit of open files to 65535, or to the hard limit with a warning (utils/system_utils.py). A
# request in flight is a connection at both ends; the rest is a guess at what the engine and the loop hold open.
FILES_AT_REST = 1024
# vLLM's processes of one engine talk through shared memory: 10 chunks of 16 MiB a queue (0.32, shm_broadcast.py and
# VLLM_MQ_MAX_CHUNK_BYTES_MB), and RCCL keeps its own there. A container has 64 MiB unless told otherwise.
SHARED_BYTES = 1 << 30
SEVERAL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


def own_limits() -> dict[str, tuple[int, int]]:
    """(soft, hard) by name, as `ulimit` shows them."""
    names = {"files": resource.RLIMIT_NOFILE, "cpu_s": resource.RLIMIT_CPU, "memory": resource.RLIMIT_AS}
    names |= {"locked": resource.RLIMIT_MEMLOCK}
    return {name: resource.getrlimit(number) for name, number in names.items()}


def shared_bytes(root: Path = HERE) -> int | None:
    """Size of /dev/shm; None where there is none."""
    try:
        facts = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return facts.f_frsize * facts.f_blocks


@dataclass(frozen=True)
class Host:
    """This machine as this process sees it; a test writes another one down."""

    root: Path = HERE
    who: Who = field(default_factory=whoami)
    may: May = may_use
    look: Look = look_at
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    pid: int = field(default_factory=own_pid)
    now: float = field(default_factory=time.time)
    limits: Mapping[str, tuple[int, int]] = field(default_factory=own_limits)
    shared: int | None = field(default_factory=shared_bytes)

    def is_hygon(self, software: Software) -> bool:
        return software.module in HYGON_MODULES or any(c.maker == "Hygon" for c in pci_cards(self.root))

    def wants_amd(self) -> bool:
        """There is an AMD or Hygon card on the bus, or a trace of their driver."""
        driven = there(self.root / "sys/class/kfd") or there(self.root / "dev/kfd")
        return driven or any(c.kind == "amd" for c in pci_cards(self.root))


def amd_problems(host: Host, software: Software) -> Found:
    """Driver and device files, for a machine whose night needs an AMD or Hygon card. All stop a night but Hygon's word
    on versions that go together."""
    unclaimed = driver_problems(host.root, host.env)
    yield from ((what, fix, True) for what, fix in unclaimed)
    if not unclaimed:
        shut = access_problems(host.root, host.who, host.may, host.is_hygon(software), host.look)
        yield from ((what, fix, True) for what, fix in shut)
    if software.module in HYGON_MODULES and (apart := wrong_dtk(software.module_version, software.dtk)) is not None:
        yield (*apart, False)


def limit_problems(host: Host, card: Card, config: NightConfig | None) -> Found:
    """Limits of this process that its engines inherit."""
    _, files = host.limits["files"]
    users = config.workload.concurrency if config else None
    wanted = FILES_AT_REST + 2 * (users or 64)
    if files != UNLIMITED and files < wanted:
        what = f"this process may open {files} files at most, and a night wants {wanted}"
        yield (
            what,
            "raise the hard limit: `nofile` in /etc/security/limits.conf, or --ulimit nofile=65535 of the container",
            False,
        )
    soft, _ = host.limits["cpu_s"]
    if soft != UNLIMITED:
        yield (
            f"every process is ended after {soft} s of processor time (ulimit -t)",
            "`ulimit -t unlimited` before the night",
            True,
        )
    soft, _ = host.limits["memory"]
    if soft != UNLIMITED and card.kind != "cpu":
        what = "address space is limited (ulimit -v), and a GPU's runtime reserves far more of it than it uses"
        yield what, "`ulimit -v unlimited` before the night", True
    several = config is not None and any(_count(config.engine.flags.get(flag)) > 1 for flag in SEVERAL)
    if several and host.shared is not None and host.shared < SHARED_BYTES:
        what = f"/dev/shm has {host.shared >> 20} MiB, and engines on several cards talk through it"
        yield what, "start the container with --ipc=host, or --shm-size=16g", False


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def time_problems(host: Host, config: NightConfig | None) -> Found:
    minutes = config.minutes if config else None
    found = ends_early(host.root, host.env, host.pid, host.who.uid, host.who.user, minutes, host.now)
    yield from ((what, fix, False) for what, fix in found)


def versions_told(arch: str, answer: Installed, software: Software) -> tuple[Told, ...]:
    """What is known of the versions here on this arch; () where the file of versions says nothing of the arch or cannot
    be used (a test keeps it usable). What refuses upstream's vLLM is not said of one that was made for the card."""
    installed = {
        "rocm": answer.hip or software.rocm, "torch": answer.torch, "triton": answer.triton, "vllm": answer.vllm,
        "aiter": answer.aiter, "vllm_hcu": _hcu(answer),
    }  # fmt: skip
    try:
        found = told(arch, installed, read_versions())
    except VersionsError:
        return ()
    refused = any(t.part == "vllm" and t.verdict == "refuses" for t in found)
    if not (refused and made_for(arch, answer)):
        return found
    return tuple(_unsaid(t) if t.part == "vllm" else t for t in found)


def made_for(arch: str, answer: Installed) -> bool:
    """Whether this vLLM was made for the card, by its own files: its code names the arch, or its libraries hold it."""
    return arch in answer.named_archs or arch in (kernels_of(answer) or ())


def _unsaid(said: Told) -> Told:
    return Told(part=said.part, version=said.version, verdict="nobody has said so")


def _hcu(answer: Installed) -> str | None:
    """The version of Hygon's plugin: "vllm-hcu 0.25.1+das.dtk2604"."""
    for said in answer.platforms.values():
        name, _, version = said.partition(" ")
        if name.replace("-", "_").lower() == "vllm_hcu":
            return version
    return None


def version_problems(card: Card, answer: Installed, software: Software, root: Path = HERE) -> Found:
    """What is known not to go together, and libraries that hold no kernels for the card's arch. Warnings: each rests on
    somebody's word or a file's list, and none was tried on this machine."""
    ours = kernels_of(answer)
    for said in versions_told(card.arch, answer, software):
        if said.verdict != "refuses" or said.statement is None:
            continue
        yield str(said), said.statement.fix or "", False
    if answer.build == "rocm" and ours is not None and card.arch not in ours:
        what = f"this vLLM's kernels were compiled for {', '.join(sorted(ours))}, not for {card.arch}"
        yield what, "install a vLLM that was built for the card: docs/cards.md names what there is", False
    blas = blas_of(answer, software, root)
    if answer.build == "rocm" and blas is not None and card.arch not in blas[1]:
        what = f"the rocBLAS in {blas[0]} holds kernels for {', '.join(sorted(blas[1]))}, not for {card.arch}"
        yield what, "install a torch and ROCm that still have this arch: docs/cards.md", False


def kernels_of(answer: Installed) -> frozenset[str] | None:
    """Archs in vLLM's own compiled libraries; None: not to be told."""
    if answer.vllm_folder is None or answer.build != "rocm":
        return None
    return archs_in(sorted(p for p in Path(answer.vllm_folder).glob("*_C*.so")))


def blas_of(answer: Installed, software: Software, root: Path = HERE) -> tuple[str, frozenset[str]] | None:
    """The rocBLAS that torch loads: its own (wheels bring one), else the installed ROCm's."""
    own = Path(answer.torch_folder) / "lib/rocblas/library" if answer.torch_folder else None
    installed = root / software.rocm_folder.lstrip("/") / "lib/rocblas/library" if software.rocm_folder else None
    for folder in filter(None, (own, installed)):
        archs = rocblas_archs(folder)
        if archs is not None:
            return str(folder), archs
    return None


def host_words(host: Host, software: Software, cards: Sequence[Card]) -> dict[str, str]:
    """What was found of the host, for a terminal."""
    found = software.words()
    inside = container(host.root)
    if inside:
        found["inside"] = f"a container ({inside})"
    elif (read_line(host.root / "proc/1/comm") or "") not in ("systemd", "init", ""):
        found["inside"] = "probably a container (process 1 is no init)"
    if host.wants_amd() or any(card.kind == "amd" for card in cards):
        found.setdefault("driver", "none is loaded for AMD or Hygon cards")
        found["user"] = host.who.words()
        files = device_files(host.root, host.may, host.look)
        found["device files"] = ", ".join(f"{f.path} {'yes' if f.usable else 'NO'}" for f in files) or "none"
    locked = host.limits["locked"][1]
    limits = [f"open files {_limit(host.limits['files'][1])}"]
    limits.append(f"locked memory {_limit(locked) if locked == UNLIMITED else f'{locked / 2**20:.0f} MiB'}")
    if host.shared is not None:
        limits.append(f"/dev/shm {host.shared / 2**30:.1f} GiB")
    found["limits"] = ", ".join(limits)
    return found


def _limit(value: int) -> str:
    return "unlimited" if value in (UNLIMITED, -1) else f"{value}"
