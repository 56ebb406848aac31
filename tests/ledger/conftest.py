"""A whole made-up night, made once."""

from __future__ import annotations

import pytest

from contracts import Event
from ledger.line import read_events
from ledger.view import NightView, fold
from tests.ledger.nights import whole_night


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    return list(read_events(whole_night(tmp_path_factory.mktemp("whole"))))


@pytest.fixture(scope="session")
def view(events: list[Event]) -> NightView:
    return fold(events)
