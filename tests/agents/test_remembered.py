"""What was computed before is found again, and losing it, or a tree with odd names, costs time only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.research.remembered import default_cache, recall, remember, stamp
from contracts import Evidence

SEEN = Evidence(source="a.py:1", detail="x")


def test_found_again(tmp_path: Path) -> None:
    remember(tmp_path / "new", "key", SEEN)
    assert recall(tmp_path / "new", "key", Evidence) == SEEN
    assert recall(tmp_path / "new", "other", Evidence) is None


def test_a_cache_that_cannot_be_written_keeps_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "key.json").mkdir()  # os.replace fails
    remember(tmp_path, "key", SEEN)
    remember(tmp_path / "key.json" / "x", "key", Evidence(source="\udcff", detail="no UTF-8"))
    assert [p.name for p in tmp_path.rglob("*")] == ["key.json"]


def test_nor_does_one_who_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        remember(tmp_path, "key", SEEN)
    assert list(tmp_path.iterdir()) == []


def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_cache("x") == Path("/cache/nightgate/x")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_cache("x") == Path("/home/somebody/.cache/nightgate/x")
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)  # no such user: nothing can be kept
    assert default_cache("x").is_relative_to(os.devnull)


def test_a_thousand_folders_in_each_other_are_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = stamp(tmp_path)
    (tmp_path / "a.py").touch()
    monkeypatch.chdir(tmp_path)
    for _ in range(1200):
        os.mkdir("d")
        os.chdir("d")
    try:
        assert stamp(tmp_path) != empty
    finally:  # pytest's own clearing up recurses too
        for _ in range(1200):
            os.chdir("..")
            os.rmdir("d")


def test_a_name_that_is_no_unicode_counts(tmp_path: Path) -> None:
    empty = stamp(tmp_path)
    (tmp_path / os.fsdecode(b"bad\xff.py")).touch()
    one = stamp(tmp_path)
    (tmp_path / os.fsdecode(b"bad\xff.py")).rename(tmp_path / os.fsdecode(b"bad\xfe.py"))
    assert len({empty, one, stamp(tmp_path)}) == 3
