"""Runs a night that kills itself with SIGKILL at a named ledger line: `killed.py KIND STAGE [run_night arguments]`.

A real kill -9, at a place that a signal from outside could not hit reliably. KIND is stage_entered (the node has
begun), stage_left (the node is done, its checkpoint not yet written) or any other kind of line, then STAGE is "-".
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ledger.log import Ledger

kind, stage = sys.argv[1:3]
sys.argv = ["run_night.py", *sys.argv[3:]]
append = Ledger.append


def append_then_die(self: Ledger, event_kind: str, data: Any) -> Any:
    event = append(self, event_kind, data)
    if event_kind == kind and stage in ("-", getattr(data, "stage", None)):
        os.kill(os.getpid(), signal.SIGKILL)
    return event


Ledger.append = append_then_die  # type: ignore[method-assign]

import run_night  # noqa: E402

run_night.main()
