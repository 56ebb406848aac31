"""What no proposer can know beforehand: made from a secret that only the night's folder holds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from accuracy_gate.held_out import digest, draw, mixed_prompts, read, seed
from accuracy_gate.prompts import prompts


def test_the_secret_is_drawn_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    secret = draw(tmp_path / "secret")
    assert draw(tmp_path / "secret") == secret  # after a resume: the same questions
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    assert draw(tmp_path / "another") != secret
    assert digest(secret) == hashlib.sha256(secret.encode()).hexdigest()


def test_a_secret_that_was_touched_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0" * 31)
    with pytest.raises(ValueError, match="restore it, or start a new night"):
        draw(tmp_path / "secret")
    secret = draw(tmp_path / "other")
    assert read(tmp_path / "other", digest(secret)) == secret
    (tmp_path / "other").write_text("0" * 32)  # well formed, and not what was sealed
    with pytest.raises(ValueError, match="restore it, or start a new night"):
        read(tmp_path / "other", digest(secret))


def test_every_third_prompt_is_secret_and_the_rest_are_known() -> None:
    asked = mixed_prompts(9, 7, "a" * 32)
    known = prompts(9, 7)
    assert [p.id.startswith("secret-") for p in asked] == [False, False, True] * 3
    assert [p for i, p in enumerate(asked) if i % 3 != 2] == [p for i, p in enumerate(known) if i % 3 != 2]
    assert len({p.id for p in asked}) == len({p.text for p in asked}) == 9
    assert asked[:5] == mixed_prompts(5, 7, "a" * 32)
    other = mixed_prompts(9, 7, "b" * 32)
    assert all((a == b) == (i % 3 != 2) for i, (a, b) in enumerate(zip(asked, other, strict=True)))


def test_seeds_of_two_purposes_differ() -> None:
    assert seed("a" * 32, "prompts") != seed("a" * 32, "problems") != seed("b" * 32, "problems")
