"""What is no regular file is told, and neither waited for nor read without end."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.audit_cli import is_written_by_hand
from agents.research.compile.modules import Sources
from agents.research.gates.files import read_files
from agents.research.regular_file import open_regular, read_regular
from agents.research.remembered import recall
from agents.research.source_tree import SourceTree
from agents.research.subject import Asked, SubjectError, subject
from agents.research.tables.reading import read_text
from agents.research.tables.table_file import read_json, read_source
from contracts import Evidence


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """A pipe that is opened to read waits for a writer, and there is none."""

    def late(*_: object) -> None:
        raise AssertionError("waited for a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "config.json")
    return tmp_path / "config.json"


def test_a_file_of_at_most_so_many_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    assert read_regular(tmp_path / "link", 4) == b"1234"
    with pytest.raises(OSError, match="more than the 3 bytes that are read"):
        read_regular(tmp_path / "x", 3)
    with pytest.raises(OSError, match="more than the 0 bytes"):
        read_regular("/proc/self/status", 0)  # says that it has none


def test_pipes_devices_sockets_and_folders_are_none(tmp_path: Path, pipe: Path) -> None:
    with socket.socket(socket.AF_UNIX) as ear:
        ear.bind(str(tmp_path / "s"))
        for path in (pipe, tmp_path, tmp_path / "s", Path("/dev/zero")):
            with pytest.raises(OSError, match="not a regular file"):
                open_regular(path)


def test_every_way_into_an_audit(tmp_path: Path, pipe: Path) -> None:
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(SubjectError, match=r"cannot be read \(not a regular file\): give a model's config.json"):
            subject(Asked(arch="gfx950", model=path if path != tmp_path else pipe.parent))
        with pytest.raises(SubjectError, match="not a regular file"):
            is_written_by_hand(path)
        assert read_source(path) == "" and read_json(path) == "not a regular file"
        assert read_text(path)[0] is None


def test_a_pipe_in_a_tree_or_in_the_cache(tmp_path: Path) -> None:
    tree = tmp_path / "vllm"
    tree.mkdir()
    os.mkfifo(tree / "pipe.py")
    os.mkfifo(tmp_path / "key.json")
    sources = Sources(tree)
    assert list(sources.files(b"triton")) == []
    assert sources.broken == ["vllm/pipe.py cannot be read: not a regular file"]
    assert SourceTree(tree).parse(tree / "pipe.py") is None
    assert read_files(tree).texts == {}
    assert recall(tmp_path, "key", Evidence) is None
