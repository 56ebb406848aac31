"""The watcher that every engine carries: kernels/nightgate_evidence, on its path and switched on.

Every engine of a night has it, whichever arm: so it cannot be what two arms differ in, no scope holds it, and the log
of an incumbent that was started before anybody knew what would be tried has the lines to compare with.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "kernels" / "nightgate_evidence"
SWITCH = {"NIGHTGATE_EVIDENCE": "1"}
# What an overlay sets for its own engine: the patched files, absolute, joined by os.pathsep.
FILES = "NIGHTGATE_EVIDENCE_FILES"
