"""The command line that runs an engine in a container. Pure; engine/container_launch.py gathers what it needs.

Options are those of docker-run(1) (Docker 20.10 and later) and podman-run(1) (4.2 and later); for AMD cards those that
ROCm's page "Running ROCm Docker containers" gives, for Hygon's those of its developer community's page on Docker (both
read 2026-11-30). Neither program was at hand: what is checked is the line, and a recording stand-in that obeys it.

Decided here, and why:
- in the foreground: its output is the engine's log, and `run` ends with the engine's exit code;
- the host's network: the engine listens on the host's loopback and nowhere else, under the same port and checks;
- /dev/shm of its own: nothing of a killed engine stays behind, and two engines never meet there;
- every path is the same inside, so that nothing needs translation;
- values go by `-e NAME`, from the client's environment: they never show in the process list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from cards.ask_container import bind, user_options
from cards.kernel_files import entries, real, there
from contracts import Container, EngineSpec, Frozen
from engine.own_plugins import FOLDERS as OWN_PLUGINS
from engine.placement import Placement

LABEL_LAUNCH, LABEL_NONCE = "nightgate.launch", "nightgate.nonce"
# Variables that the client reads for itself: given to the engine as NAME=value, so that the client keeps its own.
OF_CLIENT = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|(?:XDG|LD|DOCKER|BUILDKIT|CONTAINERS?|SSL|GO)[A-Z_]*"
                       r"|[A-Za-z]+_(?:PROXY|proxy)")  # fmt: skip


class Mount(Frozen):
    source: str
    target: str = ""  # "": the same path inside
    read_only: bool = True


class Access(Frozen):
    """What lets a container use a card: engine/container_card.py reads it off the host."""

    devices: tuple[str, ...] = ()  # values of --device
    groups: tuple[str, ...] = ()  # values of --group-add
    mounts: tuple[Mount, ...] = ()  # drivers' libraries of the host
    options: tuple[str, ...] = ()  # anything else


class Identity(Frozen):
    """What tells this container from every other one."""

    name: str  # nightgate-<launch>-<nonce>, the served model's name too
    launch_id: str
    nonce: str
    cidfile: str  # written by the client before the engine starts; must not exist
    cwd: str
    uid: int
    gid: int


def run_command(
    container: Container,
    inner: Sequence[str],
    env: Mapping[str, str],
    mounts: Iterable[Mount],
    identity: Identity,
    access: Access,
) -> list[str]:
    """`docker run ...` for `inner`, whose first word is the interpreter inside. The client must be started with
    client_environment(): most variables are named here and their values stand there."""
    line = [
        container.runtime, "run", "--rm", "--pull=never", f"--name={identity.name}", f"--cidfile={identity.cidfile}",
        f"--label={LABEL_LAUNCH}={identity.launch_id}", f"--label={LABEL_NONCE}={identity.nonce}",
        "--network=host", "--log-driver=none", f"--shm-size={round(container.shm_gib * 1024)}m",
        # where memory runs out, the kernel is to end an engine and not the loop
        "--oom-score-adj=500",
        *user_options(container.runtime, identity.uid, identity.gid), f"--workdir={identity.cwd}",
    ]  # fmt: skip
    if container.runtime == "docker":
        line.append("--init")  # collects dead children and passes signals on; podman's needs a package of its own
    else:
        line.append("--security-opt=label=disable")  # SELinux hosts; relabelling would change the model's folder
    line += [f"--device={device}" for device in access.devices]
    line += [f"--group-add={group}" for group in access.groups]
    line += access.options
    for mount in _one_a_target([*mounts, *access.mounts, *map(asked_mount, container.mounts)]):
        line += ["--mount", bind(mount.source, mount.target or None, mount.read_only)]
    for name in sorted(env):
        line += ["-e", f"{name}={env[name]}" if OF_CLIENT.fullmatch(name) else name]
    return [*line, f"--entrypoint={inner[0]}", *container.extra, container.image, *inner[1:]]


def client_environment(env: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Of the `docker run` process: the user's own, and the engine's values that run_command() only names."""
    return dict(inherited) | {name: value for name, value in env.items() if not OF_CLIENT.fullmatch(name)}


def asked_mount(text: str) -> Mount:
    """ "/host:/inside", "/host:/inside:ro", or "/host" for the same path inside. Raises ValueError."""
    source, *rest = text.split(":")
    mode = rest.pop() if rest and rest[-1] in ("ro", "rw") else "rw"
    if not source.startswith("/") or len(rest) > 1 or (rest and not rest[0].startswith("/")):
        raise ValueError('is written "/on/the/host:/inside", with ":ro" after it where nothing may be written')
    return Mount(source=source, target=rest[0] if rest else "", read_only=mode == "ro")


def inside_environment(own: Mapping[str, str], cache_dir: Path) -> dict[str, str]:
    """`own` (engine/command.py), and a home: the image knows no user of our number, and Python asks who it is."""
    home = {"HOME": str(cache_dir / "home"), "USER": "nightgate", "LOGNAME": "nightgate"}
    return home | dict(own)


def engine_mounts(
    spec: EngineSpec, placement: Placement, shims: Sequence[Path], writable: Sequence[Path], night: Path
) -> list[Mount]:
    """All of the host that this engine may see. `writable`: its working folder and caches. What flags and variables
    name inside the night's folder is mounted too, flags' for writing (a profiler's folder); a path that is not there
    is one of the image's."""
    named = _paths_in([*spec.flags.values(), *spec.compilation.values()])
    of_env = [path for value in (placement.env | spec.env).values() for path in value.split(":")]
    read = [
        *_with_links(Path(spec.model)), *map(Path, spec.plugin_paths), *map(Path, placement.python_path), *shims,
        *OWN_PLUGINS,
        *(Path(path) for path in named if not Path(path).is_relative_to(night)),
        *(Path(path) for path in of_env if Path(path).is_relative_to(night)),
    ]  # fmt: skip
    write = [*writable, *(Path(path) for path in named if Path(path).is_relative_to(night))]
    found = [Mount(source=str(path), read_only=False) for path in write if there(path)]
    return found + [Mount(source=str(path)) for path in read if path.is_absolute() and there(path)]


def _with_links(folder: Path) -> list[Path]:
    """A model's folder, and where its links lead: a snapshot in Hugging Face's cache holds nothing but links."""
    places = [folder]
    for entry in entries(folder, "*"):
        if entry.is_symlink() and not (place := real(entry).parent).is_relative_to(real(folder)):
            places.append(place)
    return list(dict.fromkeys(places))


def _paths_in(value: JsonValue) -> list[str]:
    """Every text that starts like an absolute path, however deep."""
    if isinstance(value, str):
        return [value] if value.startswith("/") and value != "/" else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [path for one in inner for path in _paths_in(one)]


def _one_a_target(mounts: Iterable[Mount]) -> list[Mount]:
    """The last one asked for wins, but writing beats reading where both are of the same place."""
    chosen: dict[str, Mount] = {}
    for mount in mounts:
        target = mount.target or mount.source
        before = chosen.get(target)
        if before is None or before.source != mount.source or before.read_only:
            chosen[target] = mount
    return [chosen[target] for target in sorted(chosen)]
