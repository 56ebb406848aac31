"""A patched vLLM that serves: the real CPU engine, started from an overlay, says which patched functions ran."""

from __future__ import annotations

import difflib
import time
from pathlib import Path

import httpx
import pytest

from agents.tuning.packages import need_package
from agents.tuning.placing import place
from agents.tuning.probes import ArmSeen, judge_path, probe_for
from agents.tuning.seen import of_kind, seen_in
from contracts import Change, Lever
from engine.own_plugins import TOLD_WITHIN_S
from engine.server import Engine
from tests.agents.examples import KNOBS
from tests.real import LIMITS, real_spec

# (file, a line of it, what is put before that line): nothing that changes what the engine does.
EDITS = (
    ("v1/core/sched/scheduler.py", "        self.current_step += 1\n", "        self.current_step += 0\n"),
    ("v1/core/sched/scheduler.py", "class Scheduler(", "def nobody_calls_this():\n    return 1\n\n\n"),
)
QUEUE = ("v1/core/sched/request_queue.py", "class RequestQueue(", "def nor_this():\n    return 1\n\n\n")
SILENT_A = 'nightgate-evidence active {"pid": 7, "version": "0.1.0"}\n'  # stands in for the log of an unpatched engine


def diff(package: Path, *edits: tuple[str, str, str]) -> str:
    """In git's form, against what is installed."""
    found = ""
    for path in dict.fromkeys(path for path, _, _ in edits):
        old = new = (package / path).read_text()
        for _, line, more in [edit for edit in edits if edit[0] == path]:
            if old.count(line) != 1:
                pytest.skip(f"another vLLM: {path} has no such line")
            new = new.replace(line, more + line)
        names = f"a/vllm/{path}", f"b/vllm/{path}"
        found += "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), *names))
    return found


@pytest.mark.engine_python
@pytest.mark.timeout(600)
def test_functions_of_a_real_engine_that_ran_and_that_did_not(tmp_path: Path) -> None:
    spec = real_spec()
    package = need_package(spec.python, "vllm")
    used, unused = diff(package, *EDITS), diff(package, QUEUE)
    spec = spec.model_copy(update={"overlay": {Lever.SOURCE_PATCH: {"vllm/used": used, "vllm/unused": unused}}})
    with Engine.start(spec, "L001", tmp_path, LIMITS, placement=place(spec, tmp_path / "overlay")) as engine:
        engine.wait_ready()
        body = {"model": engine.served_name, "prompt": "17+25=", "temperature": 0, "max_tokens": 3}
        assert httpx.post(engine.base_url + "/v1/completions", json=body, trust_env=False, timeout=120).is_success
        time.sleep(TOLD_WITHIN_S)
        log = engine.log_since(0)
    assert of_kind(seen_in(log), "problem") == []
    outcomes = {}
    for key, text in (("vllm/used", used), ("vllm/unused", unused)):
        change = Change(lever=Lever.SOURCE_PATCH, key=key, after=text)
        outcomes[key] = judge_path(change, probe_for(change, KNOBS), ArmSeen(log=SILENT_A), ArmSeen(log=log))
    assert outcomes["vllm/used"].outcome == "proven", outcomes["vllm/used"].reason
    assert outcomes["vllm/used"].b["functions"] == {
        "vllm/v1/core/sched/scheduler.py": {"Scheduler.schedule": "called", "nobody_calls_this": "not called"}
    }
    assert outcomes["vllm/unused"].outcome == "absent"
    assert outcomes["vllm/unused"].reason.startswith("imported, and nor_this was never called under the workload")
