"""The command line that runs an engine in a container, and what lets one card into it. No runtime is needed here."""

import os
from pathlib import Path

import pytest

from cards.ask_container import bind, question
from contracts import Card, Container, EngineSpec
from engine import container_card
from engine.command import own_environment
from engine.container import (
    Access,
    Identity,
    Mount,
    asked_mount,
    client_environment,
    engine_mounts,
    inside_environment,
    run_command,
)
from engine.own_plugins import FOLDERS as OWN_PLUGINS
from engine.placement import Placement
from tests.cards.trees import gpu_node, write

GFX950 = Container(image="rocm/vllm@sha256:0123", python="/opt/venv/bin/python")
INNER = ["/opt/venv/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "/models/m", "--port", "20001"]
IDENTITY = Identity(
    name="nightgate-L003-0a1b2c3d", launch_id="L003", nonce="0a1b2c3d", cidfile="/night/L003/container-0a1b2c3d.cid",
    cwd="/night/L003/cwd", uid=1000, gid=1000,
)  # fmt: skip
ENV = {"VLLM_ROCM_USE_AITER": "1", "HF_TOKEN": "secret", "HOME": "/night/cache/home"}
MI355X = Access(
    devices=("/dev/kfd", "/dev/dri/renderD136"), groups=("44", "993"), options=("--security-opt=seccomp=unconfined",)
)


def after(line: list[str], option: str) -> list[str]:
    return [value for name, value in zip(line, line[1:], strict=False) if name == option]


def test_the_whole_line_for_one_mi355x() -> None:
    assert run_command(GFX950, INNER, ENV, [Mount(source="/models/m")], IDENTITY, MI355X) == [
        "docker", "run", "--rm", "--pull=never", "--name=nightgate-L003-0a1b2c3d",
        "--cidfile=/night/L003/container-0a1b2c3d.cid",
        "--label=nightgate.launch=L003", "--label=nightgate.nonce=0a1b2c3d",
        "--network=host", "--log-driver=none", "--shm-size=16384m", "--oom-score-adj=500",
        "--user", "1000:1000", "--workdir=/night/L003/cwd", "--init",
        "--device=/dev/kfd", "--device=/dev/dri/renderD136", "--group-add=44", "--group-add=993",
        "--security-opt=seccomp=unconfined",
        "--mount", "type=bind,source=/models/m,target=/models/m,readonly",
        "-e", "HF_TOKEN", "-e", "HOME=/night/cache/home", "-e", "VLLM_ROCM_USE_AITER",
        "--entrypoint=/opt/venv/bin/python", "rocm/vllm@sha256:0123",
        "-m", "vllm.entrypoints.cli.main", "serve", "/models/m", "--port", "20001",
    ]  # fmt: skip


def test_podman_without_root_maps_the_user_itself() -> None:
    podman = GFX950.model_copy(update={"runtime": "podman"})
    line = run_command(podman, INNER, ENV, [], IDENTITY, MI355X)
    assert line[0] == "podman" and "--userns=keep-id" in line and "--user" not in line and "--init" not in line
    assert "--security-opt=label=disable" in line
    as_root = run_command(podman, INNER, ENV, [], IDENTITY.model_copy(update={"uid": 0, "gid": 0}), MI355X)
    assert after(as_root, "--user") == ["0:0"]


def test_no_value_is_in_the_process_list_and_the_client_keeps_its_own_variables() -> None:
    line = run_command(GFX950, INNER, ENV, [], IDENTITY, MI355X)
    assert "secret" not in " ".join(line)
    client = client_environment(ENV, {"HOME": "/home/me", "PATH": "/usr/bin", "DOCKER_HOST": "unix:///x"})
    assert client == {"HOME": "/home/me", "PATH": "/usr/bin", "DOCKER_HOST": "unix:///x", "HF_TOKEN": "secret",
                      "VLLM_ROCM_USE_AITER": "1"}  # fmt: skip


def test_what_the_night_file_adds_has_the_last_word() -> None:
    more = GFX950.model_copy(update={"extra": ("--ipc=host",), "mounts": ("/data/m:/models/m", "/opt/x:ro")})
    line = run_command(more, INNER, {}, [Mount(source="/models/m")], IDENTITY, Access())
    assert line[line.index("rocm/vllm@sha256:0123") - 1] == "--ipc=host"
    assert after(line, "--mount") == [
        "type=bind,source=/data/m,target=/models/m", "type=bind,source=/opt/x,target=/opt/x,readonly",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["models:/models", "/a:b", "/a:/b:/c", "", "/a:/b:/c:ro"])
def test_a_mount_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="is written"):
        asked_mount(text)


def test_a_path_with_a_comma_or_a_colon_is_one_path() -> None:
    assert bind("/a,b/c:d") == 'type=bind,"source=/a,b/c:d","target=/a,b/c:d"'


def test_a_question_gets_neither_card_nor_network() -> None:
    line = question(GFX950, "print(1)", ("x",))
    assert "--network=none" in line and not [part for part in line if part.startswith(("--device", "--gpus"))]
    assert line[-4:] == [GFX950.image, "-c", "print(1)", "x"] and after(line, "--entrypoint") == [GFX950.python]


# --- what it sees of the host -------------------------------------------------------------------------------------


def test_mounts_are_what_the_engine_needs_and_only_its_own_folders_may_be_written(tmp_path: Path) -> None:
    night, model, blobs = tmp_path / "night", tmp_path / "hub/snapshots/1", tmp_path / "hub/blobs"
    for folder in (night / "overlay/tree", night / "trace", night / "cwd", model, blobs, tmp_path / "plugin"):
        folder.mkdir(parents=True)
    (blobs / "ab12").write_text("weights")
    (model / "model.safetensors").symlink_to("../../blobs/ab12")  # as Hugging Face's cache keeps a snapshot
    (night / "overlay/rows.csv").write_text("")
    spec = EngineSpec(
        python="python3", model=str(model), plugin_paths=(str(tmp_path / "plugin"),), container=GFX950,
        flags={"profiler-config": {"torch_profiler_dir": str(night / "trace")}, "tokenizer": "/in/the/image"},
        env={"LD_LIBRARY_PATH": str(tmp_path)},  # the image's affair
    )  # fmt: skip
    placement = Placement(
        env={"AITER_CONFIG_GEMM_A8W8": f"{night}/overlay/rows.csv"}, python_path=(f"{night}/overlay/tree",)
    )
    mounts = engine_mounts(spec, placement, (), [night / "cwd"], night)
    assert {m.source for m in mounts if not m.read_only} == {str(night / "cwd"), str(night / "trace")}
    assert {m.source for m in mounts if m.read_only} == {
        str(model), str(blobs), str(tmp_path / "plugin"), f"{night}/overlay/rows.csv", f"{night}/overlay/tree",
        *map(str, OWN_PLUGINS),
    }  # fmt: skip


def test_the_engine_inherits_nothing_of_the_host_and_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    spec = EngineSpec(python="python3", model="/m", env={"VLLM_USE_V1": "1"}, container=GFX950)
    env = inside_environment(own_environment(spec, Path("/night/cache/abc")), Path("/night/cache/abc"))
    assert env["HOME"] == "/night/cache/abc/home" and env["VLLM_USE_V1"] == "1"
    assert not {"HIP_VISIBLE_DEVICES", "PATH"} & set(env)


# --- the card -----------------------------------------------------------------------------------------------------


def host(root: Path, *devices: str, gid: int = 993) -> None:
    for device in devices:
        write(root / device.lstrip("/"), "")
        os.chown(root / device.lstrip("/"), -1, gid)


can_chown = pytest.mark.skipif(os.getuid() != 0, reason="giving a file to another group needs root")
CARD = Card(arch="gfx950", kind="amd", name="MI355X", memory_bytes=1, compute_units=256, pci_address="0000:75:00.0",
            source="KFD topology node 3", render_minor=136)  # fmt: skip


@can_chown
def test_one_amd_card_by_its_render_node_and_the_hosts_group_numbers(tmp_path: Path) -> None:
    for number, minor, location in ((2, 128, 0x6500), (3, 136, 0x7500)):
        gpu_node(tmp_path, number, gfx=90500, simd_count=1024, bank_bytes=1, location=location, minor=minor)
    host(tmp_path, "/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD136")
    host(tmp_path, "/dev/dri/card3", gid=44)
    found = container_card.access(GFX950, CARD, root=tmp_path, uid=1000)
    assert found.devices == ("/dev/kfd", "/dev/dri/renderD136") and found.groups == ("993",)
    assert found.options == ("--security-opt=seccomp=unconfined",) and not found.mounts
    several = container_card.access(GFX950, CARD, cards=8, root=tmp_path, uid=1000)
    assert several.devices == ("/dev/kfd", "/dev/dri") and several.groups == ("44", "993")


@can_chown
def test_a_hygon_card_takes_its_drivers_device_and_libraries_along(tmp_path: Path) -> None:
    gpu_node(tmp_path, 3, gfx=90006, simd_count=256, bank_bytes=1, location=0x7500, vendor=0x1D94, minor=130,
             vram_bytes=1)  # fmt: skip
    host(tmp_path, "/dev/kfd", "/dev/mkfd", "/dev/dri/renderD130", "/dev/dri/card3", gid=39)
    (tmp_path / "usr/local/hyhal").mkdir(parents=True)
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/hyhal").symlink_to(tmp_path / "usr/local/hyhal")
    found = container_card.access(
        GFX950, CARD.model_copy(update={"arch": "gfx906", "render_minor": 130}), root=tmp_path, uid=1000
    )
    assert found.devices == ("/dev/kfd", "/dev/mkfd", "/dev/dri/renderD130", "/dev/dri/card3")
    assert found.mounts == (Mount(source="/opt/hyhal"), Mount(source="/usr/local/hyhal")) and found.groups == ("39",)
    assert "--env=HCU_VISIBLE_DEVICES=void" in found.options  # or Hygon's runtime adds every other card
    line = run_command(GFX950, INNER, {"HCU_VISIBLE_DEVICES": "1"}, [], IDENTITY, found)
    assert line.index("HCU_VISIBLE_DEVICES") > line.index("--env=HCU_VISIBLE_DEVICES=void")  # the night file's wins


@can_chown
def test_a_hygon_host_without_mkfd_is_known_by_its_module(tmp_path: Path) -> None:
    """The scripts of Hygon's CI pass /dev/kfd and /dev/dri alone."""
    host(tmp_path, "/dev/kfd", "/dev/dri/renderD130", gid=39)
    (tmp_path / "sys/module/hycu").mkdir(parents=True)
    (tmp_path / "opt/hyhal").mkdir(parents=True)
    found = container_card.access(GFX950, CARD.model_copy(update={"render_minor": 130}), root=tmp_path, uid=1000)
    assert found.devices == ("/dev/kfd", "/dev/dri/renderD130") and found.mounts == (Mount(source="/opt/hyhal"),)
    assert "--env=HCU_VISIBLE_DEVICES=void" in found.options


def test_a_partition_is_told_by_its_own_node_and_never_guessed(tmp_path: Path) -> None:
    for number, minor in ((3, 136), (4, 137)):  # two partitions of one card
        gpu_node(tmp_path, number, gfx=90402, simd_count=152, bank_bytes=1, location=0x7500, minor=minor)
    host(tmp_path, "/dev/kfd", gid=os.getgid())
    found = container_card.access(GFX950, CARD, root=tmp_path, uid=1000)
    assert found.devices == ("/dev/kfd", "/dev/dri/renderD136")
    unknown = CARD.model_copy(update={"render_minor": None})
    assert container_card.access(GFX950, unknown, root=tmp_path, uid=1000).devices == ("/dev/kfd", "/dev/dri")


def test_an_nvidia_card_goes_by_uuid(tmp_path: Path) -> None:
    card = CARD.model_copy(update={"kind": "nvidia", "uuid": "GPU-8b6b"})
    assert container_card.access(GFX950, card, root=tmp_path, uid=1000).options == ("--gpus=device=GPU-8b6b",)
    podman = GFX950.model_copy(update={"runtime": "podman"})
    found = container_card.access(podman, card, root=tmp_path, uid=1000)
    assert found.devices == ("nvidia.com/gpu=GPU-8b6b",) and found.groups == ("keep-groups",)


def test_a_cpu_gets_no_device_and_a_list_of_ones_own_is_taken_as_it_stands(tmp_path: Path) -> None:
    cpu = CARD.model_copy(update={"kind": "cpu"})
    assert container_card.access(GFX950, cpu, root=tmp_path) == Access()
    own = Container(image="i", devices=("/dev/kfd", "/dev/dri/renderD129"), groups=("109",))
    found = container_card.access(own, CARD, root=tmp_path)
    assert (found.devices, found.groups, found.options) == (("/dev/kfd", "/dev/dri/renderD129"), ("109",), ())
