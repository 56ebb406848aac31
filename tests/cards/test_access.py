"""Who may use the device files: users and groups written down, the files are real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cards.access import Facts, Who, access_problems, by_mode, container, device_files, may_use, whoami
from tests.cards.trees import write

ROOT = Who(uid=0, user="root", gids=(0,))
ANN = Who(uid=1000, user="ann", gids=(1000,), groups={109: "render", 44: "video"})


def devices(root: Path, *names: str) -> Path:
    for name in names or ("kfd", "dri/renderD128"):
        write(root / "dev" / name, "")
    return root


def said(root: Path, who: Who, mode: int = 0o660, gid: int = 109, hygon: bool = False) -> list[str]:
    def look(_path: Path) -> Facts:
        return Facts(uid=0, gid=gid, mode=mode)

    return [f"{w}: {f}" for w, f in access_problems(root, who, by_mode(who, look), hygon, look)]


@pytest.mark.parametrize("who", [ROOT, ANN.model_copy(update={"gids": (1000, 109)})])
def test_root_and_members_may(tmp_path: Path, who: Who) -> None:
    assert said(devices(tmp_path), who) == []


def test_everybody_may_where_the_mode_says_so(tmp_path: Path) -> None:
    assert said(devices(tmp_path), ANN, mode=0o666) == []


@pytest.mark.parametrize(
    ("mode", "gid", "fix"),
    [
        (0o660, 109, "sudo usermod -aG render ann, then log in again (a running tmux keeps the old groups)"),
        (0o660, 993, "sudo usermod -aG 993 ann, then log in again (a running tmux keeps the old groups)"),
        (0o600, 109, "their group may not use them either: set the udev rule of your driver's package"),
        (0o660, 0, "they belong to root's group: set the udev rule of your driver's package"),
    ],
)
def test_who_is_shut_out_is_told_the_way_in(tmp_path: Path, mode: int, gid: int, fix: str) -> None:
    (line,) = said(devices(tmp_path), ANN, mode, gid)
    assert line.startswith(f"ann may not use /dev/kfd, /dev/dri/renderD128: {fix}")


def test_in_a_container_groups_count_by_number(tmp_path: Path) -> None:
    devices(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert container(tmp_path) == "podman"
    (line,) = said(tmp_path, ANN, gid=993)
    assert line.endswith("start the container with --group-add 993 (groups count by number in there)")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert said(tmp_path, ANN) == [
        "there is no /dev/kfd, through which all compute work goes: load the driver: amdgpu (`modprobe amdgpu`); "
        "`dmesg` says why it did not"
    ]
    devices(tmp_path, "kfd")
    (tmp_path / ".dockerenv").touch()
    lines = said(tmp_path, ROOT, hygon=True)
    assert [line.split(":")[0] for line in lines] == [
        "there is no /dev/dri/renderD* of an AMD or Hygon card",
        "this container has no /opt/hyhal, where Hygon's driver keeps libraries that torch loads",
    ]
    assert "--device=/dev/mkfd" in lines[0]


def test_another_maker_s_render_node_is_not_ours(tmp_path: Path) -> None:
    devices(tmp_path, "kfd", "dri/renderD128", "dri/renderD129")
    write(tmp_path / "sys/class/drm/renderD128/device/vendor", "0x10de\n")
    assert [f.path for f in device_files(tmp_path, may_use)] == ["/dev/kfd", "/dev/dri/renderD129"]


def test_this_process() -> None:
    me = whoami()
    assert me.uid == os.getuid() and os.getegid() in me.gids and str(me.uid) in me.words()
