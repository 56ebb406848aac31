"""A night whose files were damaged or taken away is not gone on with as if nothing had happened."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.night.rehearsal import only_night, run, write_night

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(night file, night) of a rehearsal that was killed just after it had kept a change. On a busy machine a night may
    rightly keep nothing: then another."""
    for _ in range(3):
        folder = tmp_path_factory.mktemp("killed")
        config = write_night(folder)
        if run(str(config), "--logs", str(folder / "logs"), killed_at=("kept", "-")).returncode == -signal.SIGKILL:
            return config, only_night(folder / "logs")
    pytest.fail("three nights kept nothing: this machine is too busy for a rehearsal")


def no_checkpoint(night: Path) -> None:
    (night / "checkpoint.sqlite").unlink()


def damaged_checkpoint(night: Path) -> None:
    for log in night.glob("checkpoint.sqlite-*"):  # SQLite would mend the file from it
        log.unlink()
    (night / "checkpoint.sqlite").write_bytes(b"not a database " * 500)


def no_overlay(night: Path) -> None:
    shutil.rmtree(night / "overlay")


def damaged_overlay(night: Path) -> None:
    shutil.rmtree(night / "overlay" / ".git" / "objects")


def other_overlay(night: Path) -> None:
    """One commit back: the kept change is not in it."""
    subprocess.run(["git", "reset", "--hard", "-q", "HEAD~1"], cwd=night / "overlay", check=True)
    engine = night / "overlay" / "engine.json"
    engine.write_text(engine.read_text().replace('"max-num-seqs": 4', '"max-num-seqs": 99'))
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "x"], cwd=night / "overlay")


def softer_rules(night: Path) -> None:
    path = night / "night.yaml"
    path.write_text(path.read_text().replace("smallest_gain: 0.02", "smallest_gain: 0.0"))


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (softer_rules, "night.yaml says another judge than when the night began"),
        (no_checkpoint, "checkpoint.sqlite is gone"),
        (damaged_checkpoint, "checkpoint.sqlite cannot be read"),
        (no_overlay, "overlay with the kept changes is gone"),
        (damaged_overlay, "overlay"),
        (other_overlay, "other changes than this night kept"),
    ],
)
def test_resume_refuses(tamper: Callable[[Path], None], says: str, killed: tuple[Path, Path], tmp_path: Path) -> None:
    """Without its checkpoint a night would begin again and spend its budget of false keeps a second time; without its
    overlay it would keep on top of what nobody measured. Either way the ledger stays as it was."""
    config, night = killed
    copy = tmp_path / night.name
    shutil.copytree(night, copy, symlinks=True)
    tamper(copy)
    before = (copy / "ledger.jsonl").read_bytes()
    done = run(str(config), "--logs", str(tmp_path), "--resume")
    assert done.returncode == 1 and says in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (copy / "ledger.jsonl").read_bytes() == before


def softened_reference(night: Path) -> None:
    """As if the wrong answers had been right all along."""
    path = night / "artifacts" / "gate" / "reference.json"
    text = path.read_text()
    path.write_text(text.replace('"token":', '"token": ', 1))


def other_secret(night: Path) -> None:
    (night / "artifacts" / "gate" / "secret").write_text("0" * 32)


@pytest.mark.parametrize(
    ("tamper", "says"),
    [(softened_reference, "reference.json was changed since the night began"), (other_secret, "secret")],
)
def test_the_gate_is_out_of_the_proposers_reach(
    tamper: Callable[[Path], None], says: str, killed: tuple[Path, Path], tmp_path: Path
) -> None:
    """Nothing is judged any more once the answers to compare with, or what is asked, are not the night's own."""
    config, night = killed
    copy = tmp_path / night.name
    shutil.copytree(night, copy, symlinks=True)
    tamper(copy)
    done = run(str(config), "--logs", str(tmp_path), "--resume")
    assert done.returncode == 1 and says in done.stderr and "start a new night" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    lines = (copy / "ledger.jsonl").read_text().splitlines()
    since = lines[len((night / "ledger.jsonl").read_text().splitlines()) :]
    assert len(since) > 2 and not [line for line in since if json.loads(line)["kind"] == "gated"]
