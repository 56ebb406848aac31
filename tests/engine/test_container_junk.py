"""A runtime that answers with junk, or with nothing: the launch fails in words, and the client is ended. Scripts stand
in docker's place; what real ones print when they are broken is not known here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from engine import link


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (r"printf '\377\376\n'", "did not say within 1 s which process it started"),  # no text in UTF-8
        (
            r"printf '\302\262\n'",
            "did not say within 1 s which process it started",
        ),  # superscript two: a digit, no number
        ("echo 99999999999999999999", "did not say within 1 s which process it started"),
        ("echo -1", "did not say within 1 s which process it started"),
        ("echo 1", "is not to be seen here: "),  # somebody else's: older than the client that was to make it
    ],
)
def test_an_answer_that_names_no_process_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, words: str
) -> None:
    monkeypatch.setattr(link, "CONTAINER_START_S", 1.0)
    script = tmp_path / "docker"
    script.write_text(
        "#!/bin/sh\ncase $1 in\n"
        f"run) printf '\\377abc' > $CID; echo $$ > {tmp_path}/client; exec sleep 600;;\n"
        f"inspect) {answer};;\nesac\n"
    )
    script.chmod(0o755)
    env = {"CID": str(tmp_path / "cid"), "PATH": os.environ["PATH"]}
    with pytest.raises(link.NotStarted, match=words):
        link.KeeperLink([str(script), "run"], env, tmp_path, tmp_path / "log", 0.5, tmp_path / "cid")
    client = int((tmp_path / "client").read_text())
    deadline = time.monotonic() + 120  # a loaded machine; nothing here depends on how long it takes
    while psutil.pid_exists(client):
        assert time.monotonic() < deadline, "the client was left behind"
        time.sleep(0.05)
