"""What is wrong with a machine's cards, in words. Trees by hosts.py; refusals that root does not meet are made by a
reader that stands in for the kernel's, and named so."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cards.amd import detect_amd
from cards.findings import card_problems
from tests.cards import hosts
from tests.cards.trees import cpu_node, gpu_node, machine

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("host", [hosts.z100, hosts.mi250x, hosts.mi300x, hosts.mi355x])
def test_a_sound_machine_has_no_problems(tmp_path: Path, host: object) -> None:
    dev = host(tmp_path)  # type: ignore[operator]
    assert card_problems(tmp_path, dev) == ()


def test_a_machine_without_such_cards_has_none_either(tmp_path: Path) -> None:
    machine(tmp_path)
    cpu_node(tmp_path, 0)
    assert card_problems(tmp_path, tmp_path / "dev") == ()
    assert card_problems(tmp_path / "nowhere", tmp_path / "dev") == ()


def test_a_container_without_kfd(tmp_path: Path) -> None:
    dev = hosts.mi355x(tmp_path)
    shutil.rmtree(tmp_path / "sys/class/kfd")
    ((what, fix),) = card_problems(tmp_path, dev)
    assert what.startswith("0001:75:00.0 can be seen, but /sys/class/kfd is not there")
    assert "the container lacks /sys/class/kfd; start it with --device=/dev/kfd --device=/dev/dri" in fix
    assert "CONFIG_HSA_AMD" in fix and "mkfd" not in fix


def test_a_hygon_container_gets_hygon_s_flags(tmp_path: Path) -> None:
    dev = hosts.z100(tmp_path)
    shutil.rmtree(tmp_path / "sys/class/kfd")
    shutil.rmtree(tmp_path / "sys/bus")  # only the DRM nodes are left to see the cards by
    ((what, fix),) = card_problems(tmp_path, dev)
    assert what.startswith("0000:04:00.0, 0000:0a:00.0 can be seen")
    assert "--device=/dev/mkfd -v /opt/hyhal:/opt/hyhal:ro" in fix


def test_a_card_that_fell_off_the_bus(tmp_path: Path) -> None:
    dev = hosts.z100(tmp_path)
    (tmp_path / "sys/bus/pci/devices/0000:04:00.0/config").write_bytes(b"\xff" * 64)
    ((what, fix),) = card_problems(tmp_path, dev)
    assert (
        what == "0000:04:00.0 has fallen off the bus: KFD still has it as node 1, but its PCI registers read all ones"
    )
    assert fix.startswith("reboot")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EIO, "0000:03:00.0 (AMD gfx906) does not answer its driver (Input/output error)"),
        (errno.EPERM, "0000:03:00.0 (AMD gfx906) does not let its memory be read (Operation not permitted)"),
    ],
)
def test_a_card_whose_files_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    hosts.mi50(tmp_path)
    dev = hosts.devices(tmp_path, 128)
    kernels_reader = Path.read_bytes

    def stand_in_reader(path: Path) -> bytes:
        if path.name == "mem_info_vram_total":
            raise OSError(number, os.strerror(number))
        return kernels_reader(path)

    monkeypatch.setattr(Path, "read_bytes", stand_in_reader)
    assert [what for what, _ in card_problems(tmp_path, dev)] == [said]


def test_nodes_that_the_kernel_hides_from_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPERM on a file of mode 0444 (kfd_devcgroup_check_permission); no plain file refuses root so."""
    dev = hosts.mi355x(tmp_path)
    kernels_text, kernels_bytes = Path.read_text, Path.read_bytes

    def refuse(path: Path) -> None:
        if path.match("nodes/2/properties"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def stand_in_text(path: Path, *args: object, **more: object) -> str:
        refuse(path)
        return kernels_text(path, *args, **more)  # type: ignore[arg-type]

    def stand_in_bytes(path: Path) -> bytes:
        refuse(path)
        return kernels_bytes(path)

    monkeypatch.setattr(Path, "read_text", stand_in_text)
    monkeypatch.setattr(Path, "read_bytes", stand_in_bytes)
    assert detect_amd(tmp_path) == ()
    ((what, fix),) = card_problems(tmp_path, dev)
    assert what == "the kernel shows cards (KFD node 2) and does not let this process read them"
    assert "video and render" in fix


def test_device_files_that_are_not_there(tmp_path: Path) -> None:
    hosts.z100(tmp_path)
    shutil.rmtree(tmp_path / "dev")
    whats = [what for what, _ in card_problems(tmp_path, tmp_path / "dev")]
    assert whats == ["/dev/kfd, /dev/dri/renderD128, /dev/dri/renderD129 are not there"]


def test_device_files_that_this_user_may_not_open(tmp_path: Path) -> None:
    """As another user, since root may open everything. Skipped where that user cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    dev = hosts.mi355x(tmp_path)
    (dev / "kfd").chmod(0o660)
    (dev / "dri/renderD136").chmod(0o660)
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(folder.anchor) or folder == Path("/tmp"):
            break
        folder.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from cards.findings import card_problems; os.setgroups([]);"
        "os.setgid(65534); os.setuid(65534); root = Path(sys.argv[1]);"
        "print(*(f'{w}: {f}' for w, f in card_problems(root, root / 'dev')), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "/dev/kfd, /dev/dri/renderD136 may not be opened by this user: `sudo usermod -aG root $USER` and log in again; "
        "in a container: --group-add $(stat -c %g /dev/kfd)"
    ]


@pytest.mark.parametrize(
    ("driver", "said", "fixed"),
    [
        (None, "0000:0b:00.0 is an AMD card without a driver", "modprobe amdgpu"),
        ("vfio-pci", "0000:0b:00.0 is given to a virtual machine (driver vfio-pci)", "bind it back"),
    ],
)
def test_a_card_that_no_driver_of_ours_has(tmp_path: Path, driver: str | None, said: str, fixed: str) -> None:
    machine(tmp_path)
    hosts.pci_card(tmp_path, "0000:0b:00.0", 0x1002, 0x66A1, driver=driver, card=0)
    shutil.rmtree(tmp_path / "sys/class")
    ((what, fix),) = card_problems(tmp_path, tmp_path / "dev")
    assert what == said and fixed in fix


def test_nouveau(tmp_path: Path) -> None:
    hosts.pci_card(tmp_path, "0000:41:00.0", 0x10DE, 0x2335, driver="nouveau", card=0)
    ((what, _),) = card_problems(tmp_path, tmp_path / "dev")
    assert what == "0000:41:00.0 has the driver nouveau, which cannot compute"


def test_unlike_amd_cards_are_warned_of(tmp_path: Path) -> None:
    dev = hosts.mixed(tmp_path)
    ((what, _),) = card_problems(tmp_path, dev)
    assert "unlike AMD cards (0000:c1:00.0 gfx90c, 0000:2d:00.0 gfx906)" in what


def test_unlike_archs_on_one_tree_without_pci(tmp_path: Path) -> None:
    """A recorded topology alone: no bus to ask, so no card counts as fallen."""
    gpu_node(tmp_path, 1, gfx=90006, simd_count=240, bank_bytes=1, location=0x300, minor=0)
    assert [what for what, _ in card_problems(tmp_path, hosts.devices(tmp_path))] == []


def test_64_parts_of_cards_are_one_line(tmp_path: Path) -> None:
    """Eight cards in CPX, and a container that was given none of their device files."""
    for i in range(64):
        location = (i // 8 + 1) << 8 | i % 8 << 28
        gpu_node(
            tmp_path, i + 2, gfx=90402, simd_count=152, bank_bytes=24 << 30, location=location, minor=128 + i,
            vram_bytes=None if i % 8 else 192 << 30, device=0x74A1,
        )  # fmt: skip
    cards = detect_amd(tmp_path)
    assert len(cards) == 64 and (cards[0].place, cards[63].place) == ("0000:01:00.0#0", "0000:08:00.0#7")
    whats = [what for what, _ in card_problems(tmp_path, tmp_path / "dev")]
    first = ", ".join(f"/dev/dri/renderD{minor}" for minor in (128, 129, 130))
    assert whats == [f"/dev/kfd, {first} and 61 more are not there"]
