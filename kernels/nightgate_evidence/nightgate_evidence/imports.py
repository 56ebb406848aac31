"""Which files of an overlay the process really imported: how a source patch is seen to be in use.

NIGHTGATE_EVIDENCE_FILES names the patched files (absolute paths, joined by os.pathsep); whoever lays the overlay sets
it for that engine alone. Each line carries the hash of the file as it lies there, so that two patches of one file are
told apart.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from .hooks import after_import
from .say import line

FILES = "NIGHTGATE_EVIDENCE_FILES"


def watch_all() -> None:
    for path in os.environ.get(FILES, "").split(os.pathsep):
        if path.endswith(".py"):
            for name in module_names(path):
                after_import(name, lambda module, path=path: _imported(module, path))  # type: ignore[misc]


def module_names(path: str) -> Iterator[str]:
    """The names under which the file can be imported: one for each folder of sys.path that it lies in."""
    for folder in {os.path.abspath(entry) for entry in sys.path if entry}:
        if path.startswith(folder + os.sep):
            parts = os.path.relpath(path, folder)[: -len(".py")].split(os.sep)
            if parts[-1] == "__init__":
                parts.pop()
            if parts and all(part.isidentifier() for part in parts):
                yield ".".join(parts)


def _imported(module: ModuleType, path: str) -> None:
    found = getattr(module, "__file__", None)
    if found and os.path.abspath(found) == os.path.abspath(path):
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        line("imported", {"module": module.__name__, "file": path, "sha256": digest, "pid": os.getpid()})
