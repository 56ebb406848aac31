"""The nights on real cards that the project keeps: every ledger is whole, and says what docs/nights/README.md says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.night_cli import read_view
from ledger.report import write_report
from ledger.verify import verify

NIGHTS = Path(__file__).resolve().parents[2] / "docs" / "nights"
FOLDERS = sorted(path.parent for path in NIGHTS.glob("*/ledger.jsonl"))


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    every = (json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines())
    return [line["data"] for line in every if line["kind"] == kind]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_chain_holds(folder: Path) -> None:
    assert verify(folder / "ledger.jsonl").ok
    assert f"## {folder.name}" in (NIGHTS / "README.md").read_text()
    assert (folder / "report.md").is_file()


def test_the_night_of_the_moe_tile() -> None:
    folder = NIGHTS / "2026-11-30-h200-moe-tile"
    (started,) = lines(folder, "night_started")
    assert (started["card"]["name"], started["card"]["arch"]) == ("NVIDIA H200", "sm_90")
    (proof,) = lines(folder, "path_evidence")
    evidence = proof["evidence"]
    assert evidence["outcome"] == "proven"
    for arm, size, launches in (("a", "49152", 3968), ("b", "73728", 4032)):
        (kernel,) = evidence[arm]["kernels"]
        assert (kernel["name"], kernel["launches"], kernel["shared_memory"][size]) == (
            "fused_moe_kernel",
            4096,
            launches,
        )
    (verdict,) = (line["verdict"] for line in lines(folder, "judged"))
    assert verdict["word"] == "inconclusive"
    assert [line["identical"] for line in lines(folder, "installed_trees")] == [None, True]
    gates = [line["result"] for line in lines(folder, "gated")]
    assert [gate["outcome"] for gate in gates] == ["pass"] * 6 + ["not_run"]


def test_a_report_names_its_folder_as_the_commands_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "docs" / "a_night"
    shutil.copytree(NIGHTS / "2026-11-30-h200-moe-tile", folder)
    view = read_view(folder)
    for place, named in ((tmp_path, "docs/a_night"), (folder.parent, "a_night"), (NIGHTS, "logs/a_night")):
        monkeypatch.chdir(place)
        for page in write_report(view, folder):
            assert f"run_night.py verify {named}" in page.read_text()
