"""How the suite is divided over two processes (pytest -n 2 --dist loadgroup, see the Makefile).

A file's tests stay together, since they share costly fixtures; all files that start a real engine are one group, since
two engines' tests at once would starve each other; the longest groups begin first. Without -n none of this matters.
"""

from __future__ import annotations

import pytest

ENGINES = "engines"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)  # stable: the order within a file stays


def _group(item: pytest.Item) -> str:
    return ENGINES if item.get_closest_marker("real_engine") else str(item.path)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("real_engine"):
        return 0
    return 1 if item.get_closest_marker("whole_night") else 2
