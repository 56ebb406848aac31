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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The test that stops the shared engine comes after all that ask it."""
    items.sort(key=lambda item: item.name == "test_stopped_and_its_memory_back")
