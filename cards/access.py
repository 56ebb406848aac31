"""May this user compute on the AMD cards here? By the device files alone: nothing is opened.

ROCm's compute interface is /dev/kfd (all cards) and /dev/dri/renderD* (one a card), usually root:render 0660; older
distributions use the group video. Hygon's containers are started with /dev/mkfd too. In a container a group counts by
its number, and the host's number of `render` seldom is the image's. AMD: "Running ROCm Docker containers", 2026-01-20;
ROCm-docker issue 90. Hygon: public container recipes for DCU, 2026. Not yet run on such a machine.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from cards.kernel_files import entries, read_line, there
from contracts import Frozen

HERE = Path("/")
CONTAINER_FLAGS = (
    "--device=/dev/kfd --device=/dev/dri --group-add {groups} --ipc=host --security-opt seccomp=unconfined"
)
HYGON_FLAGS = "--device=/dev/mkfd -v /opt/hyhal:/opt/hyhal:ro"


class Who(Frozen):
    """A user, by number and name, as the kernel judges it."""

    uid: int
    user: str
    gids: tuple[int, ...]
    groups: dict[int, str] = {}  # names that this machine (or image) has

    def name_of(self, gid: int) -> str:
        """ "render (109)", or "109" where no group is called so here."""
        return f"{self.groups[gid]} ({gid})" if gid in self.groups else str(gid)

    def words(self) -> str:
        return f"{self.user} (uid {self.uid}), groups {', '.join(self.name_of(g) for g in self.gids) or 'none'}"


def whoami() -> Who:
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = "a user without a name"
    gids = tuple(dict.fromkeys([os.getegid(), *os.getgroups()]))
    return Who(uid=uid, user=user, gids=gids, groups={g.gr_gid: g.gr_name for g in grp.getgrall()})


class DeviceFile(Frozen):
    path: str  # "/dev/kfd"
    usable: bool
    owner_gid: int
    group_may: bool  # read and write for the owning group


class Facts(Frozen):
    """Of a device file."""

    uid: int
    gid: int
    mode: int  # permission bits


May = Callable[[Path], bool]
Look = Callable[[Path], Facts]


def look_at(path: Path) -> Facts:
    """Raises OSError where there is no such file."""
    found = path.stat()
    return Facts(uid=found.st_uid, gid=found.st_gid, mode=stat.S_IMODE(found.st_mode))


def may_use(path: Path) -> bool:
    """By the kernel's own judgement, access lists included."""
    return os.access(path, os.R_OK | os.W_OK)


def by_mode(who: Who, look: Look = look_at) -> May:
    """By owner, group and mode bits: for a recorded tree, whose files belong to whoever unpacked it."""

    def may(path: Path) -> bool:
        facts = look(path)
        if who.uid == 0:
            return True
        shift = 6 if facts.uid == who.uid else 3 if facts.gid in who.gids else 0
        return facts.mode >> shift & 0o6 == 0o6

    return may


def device_files(root: Path, may: May, look: Look = look_at) -> tuple[DeviceFile, ...]:
    """/dev/kfd, /dev/mkfd and the render nodes of AMD's and Hygon's cards that are there."""
    found = []
    for path in [root / "dev/kfd", root / "dev/mkfd", *_render_nodes(root)]:
        try:
            facts = look(path) if there(path) else None
        except OSError:
            continue
        if facts is None:
            continue
        group_may = facts.mode >> 3 & 0o6 == 0o6
        name = f"/{path.relative_to(root)}"
        found.append(DeviceFile(path=name, usable=may(path), owner_gid=facts.gid, group_may=group_may))
    return tuple(found)


def _render_nodes(root: Path) -> list[Path]:
    """Those of AMD's and Hygon's cards; a node whose maker is not told counts (a container may hide sysfs)."""
    nodes = []
    for path in entries(root / "dev/dri", "renderD*"):
        vendor = read_line(root / "sys/class/drm" / path.name / "device/vendor")
        if vendor is None or vendor.lower() in ("0x1002", "0x1d94"):
            nodes.append(path)
    return nodes


def container(root: Path) -> str | None:
    """The kind of container that we are in, by the files that each leaves; None: none that leaves any."""
    if there(root / ".dockerenv"):
        return "docker"
    if there(root / "run/.containerenv"):
        return "podman"
    if there(root / ".singularity.d"):
        return "apptainer"
    return "kubernetes" if there(root / "var/run/secrets/kubernetes.io") else None


def access_problems(root: Path, who: Who, may: May, hygon: bool, look: Look = look_at) -> tuple[tuple[str, str], ...]:
    """(what is wrong, what to do) for a machine that has an AMD or Hygon card (`hygon`). Pure over the tree."""
    files = device_files(root, may, look)
    inside = container(root)
    problems: list[tuple[str, str]] = []
    paths = {f.path for f in files}
    if "/dev/kfd" not in paths:
        problems.append(("there is no /dev/kfd, through which all compute work goes", _no_kfd(inside, hygon)))
    elif not any("renderD" in path for path in paths):
        fix = f"start the container with {_flags(hygon, who, files)}" if inside else "load the driver; see `dmesg`"
        problems.append(("there is no /dev/dri/renderD* of an AMD or Hygon card", fix))
    shut = [f for f in files if not f.usable]
    if shut:
        names = ", ".join(f.path for f in shut)
        problems.append((f"{who.user} may not use {names}", _let_in(shut, who, inside, hygon)))
    if hygon and inside and "/dev/kfd" in paths and not there(root / "opt/hyhal"):
        what = "this container has no /opt/hyhal, where Hygon's driver keeps libraries that torch loads"
        problems.append((what, "start it with -v /opt/hyhal:/opt/hyhal:ro"))
    return tuple(problems)


def _no_kfd(inside: str | None, hygon: bool) -> str:
    if inside:
        return f"start the container with {CONTAINER_FLAGS.format(groups='video')}{' ' + HYGON_FLAGS if hygon else ''}"
    driver = "Hygon's (`modprobe hydcu`, or hycu)" if hygon else "amdgpu (`modprobe amdgpu`)"
    return f"load the driver: {driver}; `dmesg` says why it did not"


def _flags(hygon: bool, who: Who, files: tuple[DeviceFile, ...]) -> str:
    groups = sorted({f.owner_gid for f in files if f.owner_gid not in who.gids and f.group_may})
    added = " --group-add ".join(str(g) for g in groups) or "video"
    return CONTAINER_FLAGS.format(groups=added) + (f" {HYGON_FLAGS}" if hygon else "")


def _let_in(shut: list[DeviceFile], who: Who, inside: str | None, hygon: bool) -> str:
    groups = sorted({f.owner_gid for f in shut if f.group_may})
    if not groups:
        return (
            "their group may not use them either: set the udev rule of your driver's package (GROUP=render, MODE=0660)"
        )
    strange = [g for g in groups if g not in who.gids]
    if not strange:
        return "you are in their group: a device cgroup or an access list shuts you out; ask who runs this machine"
    if inside:
        numbers = " ".join(f"--group-add {g}" for g in strange)
        return f"start the container with {numbers} (groups count by number in there)"
    if 0 in strange:
        return "they belong to root's group: set the udev rule of your driver's package (GROUP=render, MODE=0660)"
    names = ",".join(who.groups.get(g, str(g)) for g in strange)
    return f"sudo usermod -aG {names} {who.user}, then log in again (a running tmux keeps the old groups)"
