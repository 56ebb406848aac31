"""docs/cards.md: its night files load, its marks are the five that it explains, its commands pass the devices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agents.config import load_night
from cards.hygon import facts
from cards.sheet import known_sheets
from cards.versions import read_versions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cards.md").read_text(encoding="utf-8")
MARKS = {"measured here", "read in source", "published", "recorded night", "never run"}


NIGHT_FILES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", NIGHT_FILES)
def test_the_night_file_loads(snippet: str, tmp_path: Path) -> None:
    data = yaml.safe_load(snippet)
    data["priors"] = [str(ROOT / path) for path in data["priors"]]
    data["workload"] = str(ROOT / data["workload"])
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump(data))
    night = load_night(path)
    assert night.card.copy_test and night.limits.engine_start_s == 1800 and night.priors
    assert night.engine.flags["tensor-parallel-size"] == 1


def test_one_night_file_is_for_cards_without_bf16_and_one_for_the_mi355x() -> None:
    without_bf16, mi355x = (yaml.safe_load(snippet) for snippet in NIGHT_FILES)
    assert without_bf16["engine"]["flags"]["dtype"] == "float16" and "dtype" not in mi355x["engine"]["flags"]
    assert mi355x["engine"]["env"] == {"VLLM_ROCM_USE_AITER": "1"}


def test_the_night_file_for_an_engine_in_mobydick_s_image_loads(tmp_path: Path) -> None:
    """As the page says it: `container` in the place of the line `python`, and no line `card`."""
    (said,) = re.findall(r"`(container: \{image: \"aiinfos[^`]*)`", PAGE)
    lines = [line for line in NIGHT_FILES[0].splitlines() if not line.startswith("card:")]
    text = "\n".join(f"  {said}" if line.startswith("  python:") else line for line in lines)
    for folder in ("configs/workloads", "configs/priors"):
        text = text.replace(folder, str(ROOT / folder))
    (tmp_path / "night.yaml").write_text(text)
    night = load_night(tmp_path / "night.yaml")
    assert night.engine.container is not None and night.engine.container.image.startswith(
        "aiinfos/vllm-gfx906-mobydick"
    )
    assert not night.card.copy_test


def test_only_marks_that_it_explains() -> None:
    used = set(re.findall(r"\[([a-z ]+)\](?!\()", PAGE))
    assert used == MARKS
    assert {s.evidence for s in read_versions()} <= MARKS


def test_it_says_first_that_nobody_had_such_a_card() -> None:
    assert PAGE.index("Nobody who wrote this had an AMD or Hygon card") < PAGE.index("##")


def test_every_sheet_is_in_its_table() -> None:
    for arch in known_sheets():
        assert f"| {arch} |" in PAGE


def test_every_arch_of_hygon_s_is_told_and_only_the_z100_s_has_a_sheet() -> None:
    for arch in facts().archs:
        assert f"| {arch} |" in PAGE
    assert set(facts().archs) & set(known_sheets()) == {"gfx906"}
    assert "none of it names a Z100 among the cards that it serves models on" in PAGE


def test_container_commands_pass_the_devices() -> None:
    commands = re.findall(r"docker run .*?```", PAGE, re.DOTALL)
    assert len(commands) == 3
    for command in commands:
        for option in ("--device=/dev/kfd", "--device=/dev/dri", "--group-add", "seccomp=unconfined", "--ipc=host"):
            assert option in command
