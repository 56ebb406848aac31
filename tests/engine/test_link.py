"""The loop's end of the line to an engine's keeper, heard by one thread and closed by another."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import link


def test_a_line_that_another_thread_closes_is_not_read_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = link.KeeperLink(["sleep", "60"], dict(os.environ), tmp_path, tmp_path / "engine.log", 1.0)
    os.kill(line.keeper_pid, signal.SIGKILL)  # the line ends: there is something to read, namely its end
    closer = threading.Thread(target=line.close)
    look = select.select

    def closed_after_the_look(*waited: Any) -> Any:
        found = look(*waited)
        closer.start()
        closer.join(0.3)
        return found

    monkeypatch.setattr(link.select, "select", closed_after_the_look)
    try:
        with pytest.raises(link.KeeperLost):
            line.exit_code(wait_s=5.0)
    finally:
        closer.join()
        os.kill(line.pid, signal.SIGKILL)
