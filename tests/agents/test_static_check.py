"""What is known without the card."""

from __future__ import annotations

from typing import Any

from agents.tuning.static_check import static_check
from contracts import Change, Lever
from tests.agents.examples import KNOBS, spec
from tests.agents.test_source_patch import ADDED, LIMIT


def flag(key: str, before: Any = None, after: Any = None) -> Change:
    return Change(lever=Lever.ENGINE_FLAG, key=key, before=before, after=after)


def test_a_good_change_passes() -> None:
    assert static_check(flag("max-num-seqs", 4, 16), spec(flags={"max-num-seqs": 4}), KNOBS) is None


def test_each_fault_has_its_line() -> None:
    engine = spec(flags={"max-num-seqs": 4})
    good = flag("max-num-seqs", 4, 16)
    assert "did you mean" in str(static_check(flag("max-num-seq", None, 4), engine, KNOBS))
    assert "type int" in str(static_check(flag("max-num-seqs", 4, "x"), engine, KNOBS))
    assert "already has" in str(static_check(flag("max-num-seqs", 4, 4), engine, KNOBS))
    assert "already has dtype at its default" in str(static_check(flag("dtype"), engine, KNOBS))
    assert "now, not 8" in str(static_check(flag("max-num-seqs", 8, 16), engine, KNOBS))
    assert "by itself" in str(static_check(flag("enforce-eager", None, False), engine, KNOBS))
    assert "refused before" in str(static_check(good, engine, KNOBS, refused={good.id}))
    assert "not allowed" in str(static_check(good, engine, KNOBS, allowed={Lever.ENVIRONMENT}))
    assert "write the key as 'max-num-seqs'" in str(static_check(flag("max_num_seqs", 4, 16), engine, KNOBS))


def test_a_patch_is_checked_and_told_in_a_few_words() -> None:
    good = Change(lever=Lever.SOURCE_PATCH, key="toy/x", after=LIMIT)
    bare, patched = spec(), spec(overlay={Lever.SOURCE_PATCH: {"toy/x": LIMIT}})
    assert static_check(good, bare, KNOBS) is None
    assert static_check(good, patched, KNOBS) == "the engine already has toy/x = toy/limits.py +1/-1"
    other = good.model_copy(update={"after": ADDED})
    assert static_check(other, patched, KNOBS) == "the engine has toy/x = toy/limits.py +1/-1 now, not nothing set"
    assert "changes no file" in str(static_check(good.model_copy(update={"after": "x"}), bare, KNOBS))
