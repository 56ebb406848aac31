"""What a container needs so that the night's card, and no other, is in it. Reads /dev and /sys; opens no card.

AMD (ROCm, "Running ROCm Docker containers", read 2026-11-30): /dev/kfd for computing, /dev/dri/renderD<n> for each card
that may be used, and the groups that own them. Groups go by the host's numbers: "render" is another number in most
images. Hygon (its developer community's page on Docker, same day): /dev/mkfd beside /dev/kfd, the card's own node
beside its render node, and the driver's libraries of the host from /opt/hyhal. NVIDIA: the toolkit's --gpus (Docker)
or CDI device (Podman), by UUID. Checked against trees of files; never run beside a real card.

Hygon's own toolkit makes itself Docker's default runtime when it is installed, and gives an image that sets
ROCM_VERSION all cards unless HCU_VISIBLE_DEVICES says otherwise; "void" adds none (HYGON-AI/hcu-container-toolkit at
9b3eed0, 2026-08-21, README.md and internal/config/image/dtk_image.go). /opt/hyhal may be a link to /usr/local/hyhal,
and Hygon's driver for Kubernetes mounts both (HYGON-AI/k8s-hcu-dra-driver at cbc4e9d, internal/driver/cdi_spec.go).
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from cards.driver import HYGON_MODULES
from cards.kernel_files import entries, real, there
from contracts import Card, Container
from engine.container import Access, Mount

HYHAL = ("/opt/hyhal", "/usr/local/hyhal")
NO_MORE_CARDS = "--env=HCU_VISIBLE_DEVICES=void"


def access(
    container: Container, card: Card | None, cards: int = 1, root: Path = Path("/"), uid: int | None = None
) -> Access:
    """`cards` above 1, or no `card`: all of them. What the night file lists stands beside or instead of "auto"."""
    uid = os.getuid() if uid is None else uid
    single = card if card is not None and cards == 1 else None
    found = Access()
    if "auto" in container.devices and (card is None or card.kind != "cpu"):
        maker = card.kind if card is not None else "amd" if there(root / "dev/kfd") else "nvidia"
        found = _amd(single, root) if maker == "amd" else _nvidia(container.runtime, single)
    devices = (*found.devices, *(device for device in container.devices if device != "auto"))
    groups = tuple(group for group in container.groups if group != "auto")
    if "auto" in container.groups:
        if container.runtime == "podman" and uid != 0:
            groups = groups or ("keep-groups",) if devices else groups  # podman takes it alone or not at all
        else:
            groups = (*groups, *owning_groups(devices, root))
    return found.model_copy(update={"devices": devices, "groups": tuple(dict.fromkeys(groups))})


def owning_groups(devices: tuple[str, ...], root: Path) -> tuple[str, ...]:
    """Numbers of the groups that own these device files, folders' files included; root's own is left out."""
    numbers: set[int] = set()
    for device in devices:
        path = root / device.split(":")[0].lstrip("/")
        for file in [path, *entries(path, "renderD*"), *entries(path, "card*")]:
            with contextlib.suppress(OSError):  # a listed device may not be there: the runtime says so
                facts = file.stat()
                if not stat.S_ISDIR(facts.st_mode):
                    numbers.add(facts.st_gid)
    return tuple(str(number) for number in sorted(numbers - {0}))


def _amd(card: Card | None, root: Path) -> Access:
    own = there(root / "dev/mkfd")
    hygon = own or any(there(root / "sys/module" / module) for module in HYGON_MODULES)
    devices = ["/dev/kfd", *(["/dev/mkfd"] if own else [])]
    nodes = _nodes(card, root, hygon) if card is not None else []
    libraries = [folder for folder in HYHAL if hygon and there(root / folder.lstrip("/"))]
    return Access(
        devices=(*devices, *(nodes or ["/dev/dri"])),
        mounts=tuple(Mount(source=folder) for folder in libraries),
        # ROCm binds memory to nodes, which Docker's filter forbids
        options=("--security-opt=seccomp=unconfined", *([NO_MORE_CARDS] if hygon else [])),
    )


def _nodes(card: Card, root: Path, hygon: bool) -> list[str]:
    """The card's files in /dev/dri; [] where it cannot be told which they are."""
    render = card.render_minor
    if render is None:
        return []
    found = [f"/dev/dri/renderD{render}"]
    if hygon:
        device = root / f"sys/class/drm/renderD{render}/device"
        own = [n for n in entries(root / "sys/class/drm", "card[0-9]*") if real(n / "device") == real(device)]
        found += [f"/dev/dri/{node.name}" for node in own[:1]]
    return found


def _nvidia(runtime: str, card: Card | None) -> Access:
    which = (card.uuid if card is not None else None) or "all"
    if runtime == "podman":
        return Access(devices=(f"nvidia.com/gpu={which}",))
    return Access(options=("--gpus=all" if which == "all" else f"--gpus=device={which}",))
