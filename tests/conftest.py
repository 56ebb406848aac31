"""One real engine for all tests that only ask it something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.server import Engine
from tests.real import LIMITS, real_spec


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine.start(real_spec(), "L001", tmp_path_factory.mktemp("real"), LIMITS) as engine:
        engine.wait_ready()
        yield engine


# Files of whole nights, each by one worker of three (make test): the longest first, and behind the single test of the
# first a file of many short ones, since a worker is given more files while it has less than three tests.
NIGHTS = ("test_killed.py", "test_rehearsal.py", "test_container_night.py", "test_profiling.py", "test_tampered.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The test that stops the shared engine comes after all that ask it."""
    items.sort(key=lambda item: NIGHTS.index(item.path.name) if item.path.name in NIGHTS else len(NIGHTS))
    items.sort(key=lambda item: item.name == "test_stopped_and_its_memory_back")
