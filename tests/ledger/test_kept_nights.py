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


def test_the_night_of_the_graphs() -> None:
    """Found by the reader, proven, measured, gated, kept and confirmed on a real card."""
    folder = NIGHTS / "2026-11-30-h200-graphs"
    (started,) = lines(folder, "night_started")
    assert (started["card"]["name"], started["versions"]["vllm"]) == ("NVIDIA H200", "0.26.0")
    assert started["config"]["engine"]["compilation"]["cudagraph_capture_sizes"] == [1, 2, 4, 8]
    first, second = (line["hypothesis"] for line in lines(folder, "experiment_started"))
    assert (first["proposer"], first["change"]["after"]) == ("graph_coverage", None)
    assert first["predicted_gain"] == pytest.approx(2.98, abs=0.01)
    graphs, tile = (line["evidence"] for line in lines(folder, "path_evidence"))
    assert graphs["outcome"] == tile["outcome"] == "proven"
    assert graphs["a"]["compilation.cudagraph_capture_sizes"] == [1, 2, 4, 8]
    assert max(graphs["b"]["compilation.cudagraph_capture_sizes"]) == 64
    assert [line["verdict"]["word"] for line in lines(folder, "judged")] == ["keep", "inconclusive"]
    (confirmed,) = lines(folder, "confirmed")
    verdict = confirmed["verdict"]
    assert (verdict["word"], round(verdict["ratio"], 2)) == ("keep", 2.89)
    assert [round(x, 2) for x in verdict["interval"]] == [2.42, 3.46]
    assert [line["identical"] for line in lines(folder, "installed_trees")] == [None, True]
    outcomes = [line["result"]["outcome"] for line in lines(folder, "gated")]
    assert (outcomes.count("pass"), outcomes.count("not_run"), len(outcomes)) == (20, 3, 23)  # no sums were asked


def test_what_the_report_of_that_night_says() -> None:
    report = (NIGHTS / "2026-11-30-h200-graphs" / "report.md").read_text()
    assert report.startswith("# 2.89× output tokens/s, confirmed")
    assert "reached 5,270 output tokens/s; the final stack is 0.57× of that: settings of the night file cost" in report
    todo = report.partition("## What to do\n")[2].partition("\n## ")[0]
    assert "Serve with it: without cudagraph_capture_sizes in --compilation-config." in todo
    assert "were faster than all this: ask the reader defaults too (readers in the night file)" in todo
    assert "gsm8k was not run" in todo
    assert "(0.74× to 1.37×). A quieter machine or more launch pairs (judge.max_launch_pairs, 3 here)" in todo
    assert "For upstream: Nothing: what was kept are settings of this deployment" in todo
    assert "TTFT p95 in ms 101.3 → 153.2" in report.partition("Worse than before")[2]
    assert "6 runs, 1 void (2 compile(s) inside the window)" in report
    tried = report.partition("## What was to be tried")[2]  # in both rounds of research
    assert "| 1 | cudagraph" in tried and "| 2 | E=64,N=768" in tried
    assert "what runs of one launch differ by is not known" in report
    assert "()" not in report and "–" not in report.partition("## The noise floor")[2].partition("##")[0]


def test_a_report_names_its_folder_as_the_commands_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "docs" / "a_night"
    shutil.copytree(NIGHTS / "2026-11-30-h200-moe-tile", folder)
    view = read_view(folder)
    for place, named in ((tmp_path, "docs/a_night"), (folder.parent, "a_night"), (NIGHTS, "logs/a_night")):
        monkeypatch.chdir(place)
        for page in write_report(view, folder):
            assert f"run_night.py verify {named}" in page.read_text()
