"""The loop's side of the numerics check: how a process can end, and what its words become. No torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from accuracy_gate.numerics.check import check, result
from accuracy_gate.numerics.launch import Ended, Kernel, Limits, environment, run_inside
from accuracy_gate.numerics.summary import summaries

ONE = (Kernel("add_rms_norm", "some.module:kernel"),)
TWO = (*ONE, Kernel("add_rms_norm", "some.module:other"))
MACHINE = {"event": "machine", "device": "cpu", "name": "x86", "torch": "2.13.0", "triton": None, "python": "3.11.7"}
KERNEL = {"event": "kernel", "index": 0, "level": "small", "items": 2, "left_out": [], "interpreted": False}
END = {"event": "end", "index": 0, "seconds": 1.0, "stopped": None}


def seen(what: str, *findings: tuple[str, str], event: str = "seen", **other: object) -> dict[str, Any]:
    numbers = {"calls": 3, "rms_ratio": 1.0, "largest": 0.5, "plain_largest": 0.5, "mean": 0.0}
    return {"event": event, "index": 0, "what": what, "label": "rows edges", "findings": findings} | numbers | other


def replay(*findings: tuple[str, str]) -> dict[str, Any]:
    return seen("", *findings, event="replay", mode="op trace", captures=5, steps=11)


def said(*lines: dict[str, Any], how: str = "finished", words: str = "") -> Ended:
    return Ended(how, words, (MACHINE, KERNEL, *lines))  # type: ignore[arg-type]


def judged(ended: Ended, kernels: tuple[Kernel, ...] = ONE) -> Any:
    return [result(one) for one in summaries(kernels, ended)]


def test_all_right_is_a_pass_with_its_numbers_and_its_limits() -> None:
    (found,) = judged(said(seen("a"), seen("b", rms_ratio=1.2), replay(), END))
    assert found.check == "numerics" and found.outcome == "pass"
    assert "2 sizes and views, 9 calls: rms at most 1.20 times a plain implementation's" in found.reason
    assert "11 replays of 5 captures (op trace) are right" in found.reason
    assert "a mean shift of 0.1 ulp" in found.power and "what only compiled code or a real graph does" in found.power
    assert found.statistic["classes"]["rows edges"]["tried"] == 2


def test_one_finding_fails_and_the_gravest_is_told() -> None:
    (found,) = judged(said(seen("a", ("values", "off")), seen("b", ("outside", "wrote")), replay(), END))
    assert found.outcome == "fail"
    assert found.reason.startswith("some.module:kernel: outside: b: wrote (2 of 2 sizes and views fail")
    assert found.statistic["failed_checks"] == {"outside": 1, "values": 1}


def test_a_fault_of_replay_alone_fails() -> None:
    (found,) = judged(said(seen("a"), replay(("replay", "op trace of 8, 5 tokens after 16: off")), END))
    assert found.outcome == "fail" and "graph replay fails" in found.reason


def test_a_crash_fails_the_kernel_that_ran_and_leaves_the_next_untried() -> None:
    ended = said(seen("a"), {"event": "try", "index": 0, "what": "b"}, how="crashed", words="died of SIGSEGV")
    first, second = judged(ended, TWO)
    assert first.outcome == "fail" and "died of SIGSEGV, at b (after 1 sizes and views" in first.reason
    assert second.outcome == "not_run" and "not reached: died of SIGSEGV" in second.reason


def test_running_out_of_time_is_inconclusive_unless_something_was_found() -> None:
    late = END | {"stopped": "out of time (5 s) after 1 of 2 sizes and views"}
    (found,) = judged(said(seen("a"), late))
    assert found.outcome == "inconclusive" and "out of time" in found.reason
    (found,) = judged(said(seen("a", ("values", "off")), late))
    assert found.outcome == "fail"


def test_a_kernel_that_cannot_be_tried_says_why() -> None:
    not_run = {"event": "kernel", "index": 0, "not_run": "k needs Triton, which this interpreter does not have"}
    (found,) = judged(Ended("finished", "", (MACHINE, not_run)))
    assert found.outcome == "not_run" and "needs Triton" in found.reason and found.power is None
    (found,) = judged(Ended("finished", "", (MACHINE, {"event": "kernel", "index": 0, "raises": "SyntaxError: x"})))
    assert found.outcome == "fail" and "SyntaxError" in found.reason


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_without_torch_is_told_with_the_way_out() -> None:
    (found,) = check(sys.executable, ONE, [])
    assert found.outcome == "not_run"
    assert "has no torch: set engine.python, or run `make setup`" in found.reason


@pytest.mark.parametrize(
    ("text", "how", "words"),
    [
        ("kill -SEGV $$", "crashed", "died of SIGSEGV"),
        ("echo 'no such device' >&2; exit 7", "crashed", "ended with code 7; it said: no such device"),
        ("sleep 100", "silent", "no answer for 0.2 s"),
    ],
)
def test_how_a_process_can_end(tmp_path: Path, text: str, how: str, words: str) -> None:
    ended = run_inside(script(tmp_path / "python", text), ONE, [], limits=Limits(silent_s=0.2))
    assert ended.how == how and words in ended.words
    (found,) = (result(one) for one in summaries(ONE, ended))
    assert found.outcome == "not_run" and words in found.reason


def test_no_interpreter_at_all() -> None:
    ended = run_inside("/nowhere/python", ONE, [])
    assert ended.how == "not_started" and "set engine.python" in ended.words


def test_the_process_gets_its_folders_and_not_the_checkout() -> None:
    inherited = {"PYTHONPATH": "/checkout", "TRITON_INTERPRET": "1", "HOME": "/home/x", "CUDA_VISIBLE_DEVICES": "0"}
    env = environment([Path("/kernels")], inherited, Path("/cache"))
    first, second = env["PYTHONPATH"].split(":")
    assert first.endswith("accuracy_gate/numerics/inside") and second == "/kernels"
    assert env["CUDA_VISIBLE_DEVICES"] == "0" and "TRITON_INTERPRET" not in env
