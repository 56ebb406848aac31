"""The commands as a user mistypes them: one clear line on standard error, the right exit code, nothing begun."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents import runner
from agents.cli import closing_words
from agents.config import load_night
from agents.night_cli import follow_as_json, report_command, verify_command
from contracts import Event
from ledger.log import Ledger
from ledger.view import NightView
from tests.night.rehearsal import NIGHT, write_night

CHECKOUT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKOUT / "run_night.py"), *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "neither a command (audit, doctor, report, run, schema, verify, watch) nor a night file"),
        (["nosuch.yaml"], "nosuch.yaml: no such file"),
        (["night.yaml", "--hours", "0"], "'--hours'"),
        (["night.yaml", "--hours", "abc"], "'--hours'"),
        (["report"], "Missing argument 'night'"),
        (["--nope"], "No such option: --nope"),
        (["verify", "nosuch", "--json"], "nosuch holds no night"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_machine_s_own_python_is_told_which_one_to_take() -> None:
    command = [sys.executable, "-S", str(CHECKOUT / "run_night.py"), "doctor"]  # -S: without installed packages
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        f"nightgate: {sys.executable} has no typer: `make setup`, then .venv/bin/python"
    ]


def test_a_misspelt_reader_costs_no_baseline(tmp_path: Path) -> None:
    done = run(str(write_night(tmp_path, readers=["batch_limit"])), "--logs", str(tmp_path / "logs"))
    assert done.returncode == 2 and "did you mean batch_limits?" in done.stderr
    assert not (tmp_path / "logs").exists()


def test_what_an_audit_writes_for_a_night_passes_a_dry_run(tmp_path: Path) -> None:
    night, block = write_night(tmp_path), tmp_path / "try.yaml"
    text = night.read_text().split("try_first:")[0]
    night.write_text(text)
    audited = run(
        *("audit", "--arch", "gfx950", "--model", str(CHECKOUT / "configs/models/windows_256_512_31b.json")),
        *("--night", str(night), "--try-first", str(block), "--reader", "defaults", "--json"),
    )
    assert audited.returncode == 0, audited.stderr
    (entry,) = json.loads(audited.stdout)["audits"][0]["try_first"]
    assert (entry["lever"], entry["key"], entry["after"]) == ("engine_flag", "max-num-seqs", None)
    night.write_text(text + block.read_text())
    dry = run(str(night), "--dry-run", "--json", "--logs", str(tmp_path / "logs"))
    assert "max-num-seqs" in [h["change"]["key"] for h in json.loads(dry.stdout)["hypotheses"]], dry.stderr
    night.write_text(text + "try_first:\n" + "".join(f"- {json.dumps(e)}\n" for e in [entry]))
    assert load_night(night).try_first[0].key == "max-num-seqs"


def test_a_dry_run_says_what_its_list_takes_and_what_an_empty_one_means(tmp_path: Path) -> None:
    def end_of(**settings: Any) -> str:
        night, logs = write_night(tmp_path, **settings), str(tmp_path / "logs")
        return " ".join(run(str(night), "--dry-run", "--logs", logs).stdout.split()[-90:])

    assert "a night ends before its minutes. Nothing was started." in end_of()
    slight = {"lever": "engine_flag", "key": "max-num-seqs", "after": 3, "why": "to see", "predicted_gain": 1.001}
    assert "1 to try (1 with a predicted gain under judge.smallest_gain, " in end_of(
        readers=["roofline"], try_first=[slight]
    )
    assert "Nothing would be tried: a night of this file measures its baseline and ends." in end_of(
        readers=["roofline"], try_first=[]
    )


def test_a_dry_run_without_the_model_says_what_preflight_says(tmp_path: Path) -> None:
    engine: dict[str, Any] = NIGHT["engine"]  # type: ignore[assignment]
    night = write_night(tmp_path, engine=engine | {"model": "/nowhere/model"})
    done = run(str(night), "--dry-run", "--logs", str(tmp_path / "logs"))
    said = " ".join(done.stdout.split())
    assert done.returncode == 1 and "PROBLEM: engine.model: /nowhere/model is no folder: correct the path" in said
    assert "What would be tried cannot be told before that is mended" in said and "audit --night CONFIG --arch" in said
    told = json.loads(run(str(night), "--dry-run", "--json", "--logs", str(tmp_path / "logs")).stdout)
    assert told["hypotheses"] is None and told["problems"]


def test_resume_without_a_night_says_how_to_start_one(tmp_path: Path) -> None:
    done = run(str(write_night(tmp_path)), "--resume", "--logs", str(tmp_path / "logs"))
    assert done.returncode == 2 and "leave out --resume" in done.stderr


ENGINE: dict[str, Any] = NIGHT["engine"]  # type: ignore[assignment]
BROKEN = ENGINE | {"env": ENGINE["env"] | {"STANDIN_CRASH_AT_START": "1"}}


def a_night(tmp_path: Path, on_event: Any = None) -> tuple[Path, int]:
    """The shortest: its engine crashes at start."""
    return runner.start(load_night(write_night(tmp_path, engine=BROKEN)), tmp_path / "logs", on_event)


@pytest.mark.parametrize("at", ["stage_entered", "night_finished"])
def test_ctrl_c_at_any_line_leaves_an_end_and_a_report(at: str, tmp_path: Path) -> None:
    """Also at the very last line, when a signal that was raised would have torn the night out of writing its report."""

    def press(event: Event, _view: NightView) -> None:
        if event.kind == at:
            os.kill(os.getpid(), signal.SIGINT)

    night, code = a_night(tmp_path, press)
    assert code == 1 and (night / "report.md").exists() and (night / "report.html").exists()
    last = json.loads((night / "ledger.jsonl").read_text().splitlines()[-1])
    assert last["data"]["outcome"] == ("interrupted" if at == "stage_entered" else "problem")


def test_a_night_may_be_named_by_its_ledger_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    night, _ = a_night(tmp_path)
    assert verify_command(night / "ledger.jsonl", as_json=False) == 0
    assert report_command(night / "ledger.jsonl", as_json=False) == 0
    assert "the chain holds" in capsys.readouterr().out


def test_two_nights_of_one_name_may_begin_in_the_same_second(tmp_path: Path) -> None:
    config = load_night(write_night(tmp_path))
    folders = [runner.new_folder(tmp_path / "logs", config) for _ in range(5)]
    assert len(set(folders)) == 5


def test_following_as_json_ends_when_the_writer_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A night that was killed writes no end: a script that follows it must not wait for ever."""
    night, _ = a_night(tmp_path)
    lines = (night / "ledger.jsonl").read_text().splitlines(keepends=True)
    (night / "ledger.jsonl").write_text("".join(lines[:-1]))
    assert follow_as_json(night) == 1
    told = capsys.readouterr()
    assert [json.loads(line)["seq"] for line in told.out.splitlines()] == list(range(1, len(lines)))
    assert "--resume" in told.err


def test_resume_of_a_night_that_wrote_no_line(tmp_path: Path) -> None:
    night = runner.new_folder(tmp_path / "logs", load_night(write_night(tmp_path)))
    with Ledger.create(night):
        pass
    with pytest.raises(runner.NightProblem, match="without --resume"):
        runner.resume(night)


def test_a_night_whose_folder_was_deleted_meanwhile_is_a_problem_not_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def delete(event: Event, _view: NightView) -> None:
        if event.kind == "stage_entered":
            shutil.rmtree(next((tmp_path / "logs").iterdir()))

    night, code = a_night(tmp_path, delete)
    assert (code, closing_words(night, code, as_json=False)) == (1, 1)
    told = capsys.readouterr().err
    assert "was deleted or cut while the night was writing it" in told and "start a new night" in told


def test_no_report_is_promised_that_was_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    night, code = a_night(tmp_path)
    (night / "report.md").unlink()  # as on a full disk
    assert closing_words(night, code, as_json=False) == 1
    assert "report.md" not in capsys.readouterr().out


def test_ctrl_c_while_a_command_is_being_imported(tmp_path: Path) -> None:
    code = (
        "import sys, run_night\n"
        "sys.meta_path.insert(0, type('F', (), {'find_spec': staticmethod(lambda name, *_: "
        "(_ for _ in ()).throw(KeyboardInterrupt) if name == 'agents.cli' else None)}))\n"
        "sys.argv = ['run_night.py', 'doctor']\n"
        "run_night.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "nightgate: stopped; nothing had begun\n")
