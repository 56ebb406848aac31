"""Lives in every process of an engine and writes into its log what is really in use there.

vLLM calls `register` early in each of its processes (group vllm.general_plugins). With NIGHTGATE_EVIDENCE=1 it wraps
the lookups of tuned tables as their modules are imported (tables.py) and watches for patched files (imports.py) and
their functions (called.py); the kernels of nightgate call `count` and `resolved`. One line each, on standard error:

    nightgate-evidence active {"pid": 7, "version": "0.1.0"}
    nightgate-evidence table_row {"table": ..., "asked": {...}, "row": {...}, "row_keys": [...], "file": ...}
    nightgate-evidence imported {"module": ..., "file": ..., "sha256": ...}
    nightgate-evidence code {"patch": ..., "file": ..., "function": ..., "watched": true}
    nightgate-evidence called {"file": ..., "function": ..., "how": "called"}
    nightgate-evidence counter {"name": ..., "count": 4}
    nightgate-evidence compiled {"kernel": ..., "seconds": ...}
    nightgate-evidence problem {"where": ..., "what": ...}

Standard library only. Nothing here may stop an engine: what fails writes a problem line, and the original runs.
agents/tuning/seen.py reads the lines.
"""

from __future__ import annotations

import os

from .counting import count as count
from .say import line, problem
from .tables import resolved as resolved

VERSION = "0.1.0"
SWITCH = "NIGHTGATE_EVIDENCE"
_registered = False


def register() -> None:
    """Called by vLLM, in some processes more than once."""
    global _registered
    if _registered or os.environ.get(SWITCH) != "1":
        return
    _registered = True
    try:
        from . import called, imports, jit, tables

        tables.watch_all()
        imports.watch_all()
        jit.watch()
        line("active", {"pid": os.getpid(), "version": VERSION})
    except Exception as error:  # an engine never fails for want of evidence
        problem("register", error)
        return
    try:
        called.watch_all()
    except Exception as error:
        problem("the list of a patch's functions", error)
