"""Questions that a night file names and that nobody could ask."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agents import machine_fit
from agents.preflight import preflight
from contracts import SumsRule
from tests.agents.test_preflight import CPU, night


def test_sums_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said by doctor and a dry run, not only once the night has begun and nobody looks."""
    monkeypatch.setattr(machine_fit, "LOOK_S", 0.02)
    config = night(tmp_path)

    def asked(questions: str) -> list[str]:
        gate = config.gate.model_copy(update={"gsm8k": SumsRule(questions=questions)})
        found = preflight(config.model_copy(update={"gate": gate}), CPU, None)
        return [str(p) for p in found if p.fatal and "gsm8k" in p.what]

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # as where it is not installed
    (absent,) = asked("datasets:openai/gsm8k")
    assert "needs the library datasets" in absent and f"{sys.executable} -m pip install datasets" in absent
    rows = tmp_path / "test.jsonl"
    rows.write_text('{"question": "2 + 2?"}\n')
    (broken,) = asked(str(rows))
    assert "gate.gsm8k.questions cannot be used" in broken and '"answer"' in broken
    rows.write_text('{"question": "2 + 2?", "answer": "#### 4"}\n')
    assert asked(str(rows)) == [] and asked("arithmetic:held_out_stories") == []
