"""The recording stand-in (tests/docker_stand_in) in docker's place: how a test starts it and reads its records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contracts import Container
from tests.standin import PYTHON

STAND_IN = Path(__file__).parent / "docker_stand_in"
IMAGE = "example.org/vllm-stand-in:1"
IMAGE_ID = "sha256:" + "ab" * 32
DIGEST = "example.org/vllm-stand-in@sha256:" + "cd" * 32
# No /dev/kfd of the test machine gets in, and "python inside" is the stand-in engine's.
CONTAINER = Container(image=IMAGE, python=PYTHON, devices=(), groups=())


class Docker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon: subprocess.Popen[str] | None = None
        self.environment = {
            "DOCKER_HOST": f"unix://{folder}/docker.sock",
            "PATH": f"{folder}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        }

    def set_in_image(self, env: dict[str, str]) -> None:
        """What the image's ENV holds from now on, beside what it held."""
        pictures = json.loads((self.folder / "images.json").read_text())
        pictures[IMAGE]["Env"] |= env
        (self.folder / "images.json").write_text(json.dumps(pictures))

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self, verb: str = "") -> list[dict[str, Any]]:
        return [call for call in self._lines("calls.jsonl") if verb in ("", call["argv"][0])]

    def engines(self) -> list[dict[str, Any]]:
        """Containers that were started as engines, not to be asked something."""
        return [one for one in self._lines("containers.jsonl") if "nightgate.launch" in one["labels"]]


@contextmanager
def docker(folder: Path, names: tuple[str, ...] = ("docker",)) -> Iterator[Docker]:
    """The stand-in's daemon, and the stand-in as a program of these names; nothing is on PATH yet."""
    (folder / "bin").mkdir(parents=True)
    for name in names:
        (folder / "bin" / name).symlink_to(STAND_IN)
    picture = {"Id": IMAGE_ID, "RepoDigests": [DIGEST], "Env": {"OF_THE_IMAGE": "1"}}
    (folder / "images.json").write_text(json.dumps({IMAGE: picture}))
    found = Docker(folder)
    process = subprocess.Popen(
        [sys.executable, str(STAND_IN), "daemon"], env=os.environ | found.environment, stdout=subprocess.PIPE, text=True
    )
    found.daemon = process
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    try:
        yield found
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
