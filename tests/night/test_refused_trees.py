"""A night's refused change leaves what it laid and no tree, also when the night is killed before it cleared up."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from agents.tuning.overlay_tree import STAMP
from agents.tuning.refused_trees import THINNED
from tests.night.rehearsal import events, only_night, run, verdicts, write_night

pytestmark = [pytest.mark.whole_night, pytest.mark.timeout(300)]

NEW = "--- /dev/null\n+++ b/vllm/more.py\n@@ -0,0 +1 @@\n+A = 1\n"
TRIED: dict[str, Any] = {
    "lever": "source_patch",
    "key": "vllm/more",
    "after": NEW,
    "why": "planted: nobody imports it",
    "predicted_gain": 1.1,
    "cost_s": 5,
    "planted": True,
}


def test_killed_between_revert_and_removal_the_resume_removes(tmp_path: Path) -> None:
    """With the stand-in, which imports nothing of its folder called vllm: accepted, not in use, void."""
    config, logs = str(write_night(tmp_path, try_first=[TRIED])), tmp_path / "logs"
    died = run(config, "--logs", str(logs), killed_at=("reverted", "-"))
    assert died.returncode == -signal.SIGKILL, died.stderr
    night = only_night(logs)
    (tree,) = night.glob("artifacts/overlays/*/trees/vllm")
    assert (tree / STAMP).exists() and (tree / "vllm/engine/arg_utils.py").is_symlink()

    done = run(config, "--logs", str(logs), "--resume")
    assert done.returncode == 0, done.stderr
    assert verdicts(night)["vllm/more"][0] == "void"
    left = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    assert left == [THINNED, "vllm", "vllm/more.py"] and (tree / "vllm/more.py").read_text() == "A = 1\n"
    assert not [e for e in events(night) if e["kind"] == "warned" and "overlay" in e["data"]["message"]]
