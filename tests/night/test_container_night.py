"""A whole night with its engines in containers: the recording stand-in in docker's place, the stand-in engine in
vLLM's. Nothing here measures anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers import CONTAINER, IMAGE_ID, docker
from tests.night.rehearsal import NIGHT, events, only_night, run, verdicts, wait_for_no_engine, write_night
from tests.standin import PYTHON

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(900)]


def in_a_container() -> dict[str, object]:
    engine = {key: value for key, value in NIGHT["engine"].items() if key != "python"}  # type: ignore[attr-defined]
    return {**engine, "container": {"image": CONTAINER.image, "python": PYTHON}}


def test_a_night_in_containers_that_was_killed_and_went_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with docker(tmp_path / "docker") as found:
        for name, value in {**found.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
            monkeypatch.setenv(name, value)
        settings = [item for item in NIGHT["try_first"] if item["lever"] != "source_patch"]  # type: ignore[attr-defined]
        config = str(write_night(tmp_path, engine=in_a_container(), try_first=settings))
        logs = ("--logs", str(tmp_path / "logs"))
        run(config, *logs, killed_at=("launch_started", "-"))
        night = only_night(tmp_path / "logs")
        wait_for_no_engine(night)  # the keeper has seen to it
        done = run(config, *logs, "--resume")
        assert done.returncode == 0, done.stderr
        wait_for_no_engine(night)
        assert verdicts(night)["max-num-seqs"][0] == "keep"
        launches = [e["data"]["launch"] for e in events(night) if e["kind"] == "launch_started"]
        assert {launch["container_id"].removeprefix("docker://") for launch in launches} == {
            one["id"] for one in found.engines()
        }
        ready = [e["data"]["launch"] for e in events(night) if e["kind"] == "launch_ready"]
        assert ready and all(launch["realised"]["container_image_id"] == IMAGE_ID for launch in ready)
