"""What of an audit goes into a night file, and by what means each finding can be tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.audit_try import block, may_write, tries, way
from agents.config import load_night
from agents.research.audit import Audit, order
from agents.research.finding import Finding
from agents.research.subject import SubjectError
from contracts import Change, Evidence, Lever
from tests.agents.examples import dossier, spec
from tests.agents.night_files import checkout, good, night
from tests.agents.test_audit import opportunity

__all__ = ["checkout"]  # a fixture
RUNNING = dossier(spec=spec(flags={"max-num-seqs": 4}, env={"VLLM_CPU_KVCACHE_SPACE": "1"}))  # night_files.GOOD's
FLAG = Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=4, after=16)
ENV = Change(lever=Lever.ENVIRONMENT, key="VLLM_CPU_KVCACHE_SPACE", before="1", after="4")
SIZES = Change(lever=Lever.COMPILATION, key="cudagraph_capture_sizes", after=[1, 2, 4])
JSON = Change(lever=Lever.ENGINE_FLAG, key="kernel-config", after={"ir_op_priority": {"rms_norm": ["native"]}})
SIZE = Change(lever=Lever.ENGINE_FLAG, key="stream-interval", after=32)  # without a rule in configs/probes


def found() -> Audit:
    title = 'users: 16, "slots": 4\n# not a comment \x1b[2J \U0001f600'
    changes = [opportunity(title, change=c) for c in (FLAG, ENV, SIZES, JSON, SIZE)]
    return Audit(findings=order([*changes, opportunity("a table entry, by hand")]))


def test_the_block_is_taken_by_a_night_file(checkout: Path) -> None:
    text = block(found(), RUNNING)
    config = load_night(night(checkout, good(checkout) + text))
    assert config.try_first == tuple(item for _, _, item in tries(found(), RUNNING))
    assert {(item.key, str(item.after)) for item in config.try_first} == {
        (c.key, str(c.after)) for c in (FLAG, ENV, SIZES, JSON, SIZE)
    }
    assert "5 of 6 things worth trying" in text and "# share 43%: profile.json" in text
    assert text.count("No way is known to see this change in use") == 1


def test_entries_that_a_night_file_refuses_are_left_out() -> None:
    flag = opportunity("port is nightgate's own", change=Change(lever=Lever.ENGINE_FLAG, key="port", after=8001))
    assert "try_first: []" in block(Audit(findings=(flag,)), RUNNING)


def test_a_file_of_the_users_own_is_not_written_over(tmp_path: Path) -> None:
    mine, ours = tmp_path / "night.yaml", tmp_path / "try.yaml"
    mine.write_text("minutes: 10\n")
    ours.write_text(block(found(), RUNNING))
    may_write(ours)
    may_write(tmp_path / "new.yaml")
    with pytest.raises(SubjectError, match="was not written by --try-first"):
        may_write(mine)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"change": FLAG}, "flag"),
        ({"change": ENV}, "env"),
        ({"change": SIZES}, "compilation"),
        ({"fix": "--- a/vllm/x.py\n+++ b/vllm/x.py\n"}, "patch"),
        ({"reader": "gemm_tables", "evidence": (Evidence(source="aiter/configs/x.csv", detail="no row"),)}, "table"),
        ({"reader": "attention_tables"}, "patch"),  # its evidence is a line of Python
        ({"reader": "known_priors", "fix": "update AITER"}, "person"),
    ],
)
def test_by_what_means(given: dict[str, object], expected: str) -> None:
    finding: Finding = opportunity("t", **given)
    assert way(finding) == expected
