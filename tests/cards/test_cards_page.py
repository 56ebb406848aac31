"""docs/cards.md: its night file loads, its marks are the five that it explains, its commands pass the devices."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from agents.config import load_night
from cards.sheet import known_sheets
from cards.versions import read_versions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cards.md").read_text(encoding="utf-8")
MARKS = {"measured here", "read in source", "published", "recorded night", "never run"}


def test_the_night_file_loads(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    data = yaml.safe_load(snippet)
    data["priors"] = [str(ROOT / path) for path in data["priors"]]
    data["workload"] = str(ROOT / data["workload"])
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump(data))
    night = load_night(path)
    assert night.card.copy_test and night.engine.flags["dtype"] == "float16"


def test_only_marks_that_it_explains() -> None:
    used = set(re.findall(r"\[([a-z ]+)\](?!\()", PAGE))
    assert used == MARKS
    assert {s.evidence for s in read_versions()} <= MARKS


def test_it_says_first_that_nobody_had_such_a_card() -> None:
    assert PAGE.index("Nobody who wrote this had an AMD or Hygon card") < PAGE.index("##")


def test_every_sheet_is_in_its_table() -> None:
    for arch in known_sheets():
        assert f"| {arch} |" in PAGE


def test_container_commands_pass_the_devices() -> None:
    commands = re.findall(r"docker run .*?```", PAGE, re.DOTALL)
    assert len(commands) == 3
    for command in commands:
        for option in ("--device=/dev/kfd", "--device=/dev/dri", "--group-add", "seccomp=unconfined", "--ipc=host"):
            assert option in command
