"""A container that cannot carry a night is refused with its fix; what its image has is asked inside. The recording
stand-in is in docker's place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import container_fit
from agents.preflight import engine_versions
from agents.research.image_tree import SCRIPT, vllm_of
from agents.research.installed_vllm import read_knobs
from agents.research.knobs import KnobsError
from cards.installed import installed
from contracts import Container
from tests.containers import CONTAINER, IMAGE, IMAGE_ID, Docker, docker
from tests.standin import PYTHON


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    with docker(tmp_path / "docker") as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        installed.cache_clear()
        yield found


def test_a_runtime_that_answers_and_an_image_that_is_here(runtime: Docker) -> None:
    assert container_fit.problem(CONTAINER) is None
    assert not runtime.calls("run") and not runtime.calls("pull")


def test_an_image_that_is_not_here_is_not_fetched_for_you(runtime: Docker) -> None:
    problem = container_fit.problem(Container(image="rocm/vllm:1"))
    assert problem is not None
    assert "No such image: rocm/vllm:1" in problem[0] and problem[1] == "fetch it: docker pull rocm/vllm:1"


def test_a_daemon_that_does_not_answer(runtime: Docker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/other/docker.sock")
    problem = container_fit.problem(CONTAINER)
    assert problem is not None and "docker does not answer (Cannot connect to the Docker daemon" in problem[0]


def test_a_runtime_of_another_machine(runtime: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://big-machine")
    problem = container_fit.problem(CONTAINER)
    assert problem is not None and "speaks to another machine (ssh://big-machine)" in problem[0]


def test_the_other_runtime_is_named_where_it_is_there(runtime: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(runtime.folder / "bin"))
    problem = container_fit.problem(CONTAINER.model_copy(update={"runtime": "podman"}))
    assert problem == ("engine.container: podman is not installed",
                       "install it, or set engine.container.runtime to docker")  # fmt: skip


def test_from_within_a_container_the_fix_is_to_start_on_the_host(
    runtime: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the engine's own image there is no docker, and installing it there would not help."""
    assert container_fit.problem(CONTAINER, inside="docker") is None
    monkeypatch.setenv("PATH", "/nowhere")
    what, fix = container_fit.problem(CONTAINER, inside="podman") or ("", "")
    assert what == "engine.container: docker is not installed"
    assert fix.startswith(
        "nightgate is in a container (podman) itself: start it on the host; or leave engine.container"
    )


def test_versions_are_the_images(runtime: Docker) -> None:
    assert engine_versions(PYTHON, CONTAINER)["vllm"] == "0.0.0+standin"
    (call,) = runtime.calls("run")
    assert "--network=none" in call["argv"] and "--rm" in call["argv"]
    absent = CONTAINER.model_copy(update={"python": "/no/python"})
    assert "/no/python" in (installed("/no/python", absent).problem or "")


def test_the_readers_see_the_images_sources_which_are_copied_once(
    runtime: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    knobs = read_knobs("python3", CONTAINER)
    assert knobs.version == "0.0.0+standin" and "max-num-seqs" in knobs.flags
    kept = Path(knobs.path).relative_to(tmp_path / "cache/nightgate/images")
    assert kept.parts[0].startswith(IMAGE_ID.removeprefix("sha256:")[:24] + "-") and kept.parts[1:] == ("tree", "vllm")
    asked = len(runtime.calls("run"))
    assert read_knobs("python3", CONTAINER) == knobs and len(runtime.calls("run")) == asked


def test_sources_are_copied_anew_for_another_interpreter_and_when_more_is_copied(
    runtime: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = os.path.split(CONTAINER.python)
    other = CONTAINER.model_copy(update={"python": os.path.join(folder, ".", name)})
    found = [vllm_of(CONTAINER, tmp_path), vllm_of(other, tmp_path)]
    monkeypatch.setattr("agents.research.image_tree.SCRIPT", SCRIPT + "# and more\n")
    assert len({*found, vllm_of(CONTAINER, tmp_path)}) == 3


def test_an_image_without_vllm_is_told(runtime: Docker, tmp_path: Path) -> None:
    bare = CONTAINER.model_copy(update={"python": shutil.which("python3")})
    with pytest.raises(KnobsError, match=f"in {IMAGE} has no vLLM"):
        vllm_of(bare, tmp_path / "cache")


def test_a_mount_or_a_device_that_is_not_on_the_host(runtime: Docker) -> None:
    """Said before the first launch, which the runtime would refuse."""
    for key, value in (("mounts", "/no/such,folder:/b:ro"), ("devices", "/dev/no-such")):
        found = container_fit.problem(CONTAINER.model_copy(update={key: (value,)}))
        assert found is not None and found[0] == f"engine.container.{key}: {value.split(':')[0]} is not on this host"
    for fine in ({"mounts": ("/tmp:/b",)}, {"devices": ("auto", "/dev/null", "nvidia.com/gpu=all")}):
        assert container_fit.problem(CONTAINER.model_copy(update=fine)) is None
