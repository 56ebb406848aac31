"""The plugins of our own that every engine gets on its path, whichever arm, and the variables that they read.

nightgate_evidence is switched on in every engine: so it cannot be what two arms differ in, and the log of an incumbent
that was started before anybody knew what would be tried has the lines to compare with. The others do nothing at all
until one of their variables is set. Therefore no EngineSpec holds them: the launch adds them (engine/command.py). This
is the one list; a plugin of ours that engines need is added here and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
EVIDENCE, ATTENTION = KERNELS / "nightgate_evidence", KERNELS / "nightgate_attention"
FOLDERS: tuple[Path, ...] = (EVIDENCE, ATTENTION)

# Of nightgate_evidence: whether it watches, and what an overlay sets for its own engine: the patched files, absolute,
# joined by os.pathsep, and a JSON file that lists which functions of them each patch changes.
SWITCH = {"NIGHTGATE_EVIDENCE": "1"}
FILES, CODE = "NIGHTGATE_EVIDENCE_FILES", "NIGHTGATE_EVIDENCE_CODE"
# So long after a call its line may come: the watcher looks five times a second where Python tells it nothing, and its
# thread waits for its turn in a busy engine. A log that was read at once after a request lacked it (2026-11-30).
TOLD_WITHIN_S = 2.0

# Of nightgate_attention: which back ends are tried first, and whose class another one's is.
PRIORITY, CLASS = "NIGHTGATE_ATTENTION_PRIORITY", "NIGHTGATE_ATTENTION_CLASS"
VARIABLES: tuple[str, ...] = (PRIORITY, CLASS)


def priority_of(text: str | None) -> tuple[str, ...]:
    """The value of PRIORITY as names: "TRITON_ATTN,ROCM_ATTN"."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def classes_of(text: str | None) -> dict[str, str]:
    """The value of CLASS as name -> class path: "TRITON_ATTN=package.module:Class", several with commas between.
    Parts of another form are left out; the lever's rules refuse them."""
    found = {}
    for part in (text or "").split(","):
        name, equals, place = part.strip().partition("=")
        module, colon, own = place.partition(":")
        if equals and colon and name and module and own:
            found[name] = f"{module}.{own}"
    return found
