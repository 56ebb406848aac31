"""The plugins of our own that every engine gets on its path, whichever arm, and the variables that they read.

nightgate_evidence is switched on in every engine: so it cannot be what two arms differ in, and the log of an incumbent
that was started before anybody knew what would be tried has the lines to compare with. The others do nothing at all
until one of their variables is set. Therefore no EngineSpec holds them: the launch adds them (engine/command.py). This
is the one list; a plugin of ours that engines need is added here and nowhere else.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable
from pathlib import Path

from cards.kernel_files import entries

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

# vLLM loads only the plugins whose names this variable lists, where it is set (0.15 to 0.33: plugins/__init__.py). A
# night file, or an image, that names its own with it would switch ours off, and with them all proof of what is in use.
LISTED, GROUP = "VLLM_PLUGINS", "vllm.general_plugins"


def with_ours(listed: str, folders: Iterable[Path | str] = FOLDERS) -> str:
    """The value of VLLM_PLUGINS, and after it the names of the plugins in `folders` that it leaves out. What it holds
    stays as it is and where it is: an empty value, by which vLLM loads none, then loads ours alone."""
    held = listed.split(",")  # as vLLM does: " x" is no plugin's name
    added = [name for folder in folders for name in plugin_names(Path(folder)) if name not in held]
    return ",".join([*([listed] if listed else []), *dict.fromkeys(added)])


def plugin_names(folder: Path) -> tuple[str, ...]:
    """Names of vLLM's general plugins of the distributions in a folder of the engine's path, by their own metadata; ()
    where there are none, or none that can be read."""
    found: list[str] = []
    for file in (*entries(folder, "*.dist-info/entry_points.txt"), *entries(folder, "*.egg-info/entry_points.txt")):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        found += [name for name, _ in entry_points(text, GROUP)]
    return tuple(found)


def entry_points(text: str, group: str) -> list[tuple[str, str]]:
    """(name, target) of each entry point of a group, from a distribution's entry_points.txt; [] for what is none."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except (ValueError, configparser.Error):
        return []
    return parser.items(group) if parser.has_section(group) else []


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
