"""Night files for the tests of reading them: a good one, and ways to spoil it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from agents.config import ConfigError, load_night

CHECKOUT = Path(__file__).resolve().parents[2]
FIRST_NIGHT = CHECKOUT / "configs/nights/first_night.yaml"
GOOD = """\
minutes: 10
engine:
  python: {python}
  model: models/tiny
  flags: {{max-num-seqs: 4}}
  env: {{VLLM_CPU_KVCACHE_SPACE: 1}}
workload:
  concurrency: 4
  requests: 8
  warmup_requests: 2
  input_tokens: [8, 16]
  output_tokens: [8, 8]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the tests' own: relative paths in its files count from here."""
    (tmp_path / "run_night.py").touch()
    (tmp_path / "nights").mkdir()
    return tmp_path


def night(checkout: Path, text: str) -> Path:
    path = checkout / "nights/x.yaml"
    path.write_text(text)
    return path


def good(checkout: Path, **changes: str) -> str:
    """A good night's text, with words replaced: good(checkout, minutes="minutes: -1")."""
    text = GOOD.format(python=sys.executable)
    for name, line in changes.items():
        (old,) = re.findall(rf"(?m)^ *{name}:.*$", text)
        indent = old[: len(old) - len(old.lstrip())]
        text = text.replace(old, indent + line)
    return text


def refused(path: Path, overrides: dict[str, object] | None = None) -> list[str]:
    """The lines of the refusal, without the path."""
    with pytest.raises(ConfigError) as caught:
        load_night(path, overrides or {})  # type: ignore[arg-type]
    lines = str(caught.value).splitlines()
    assert lines == list(caught.value.lines)
    return [line.replace(str(path), "x.yaml") for line in lines]
