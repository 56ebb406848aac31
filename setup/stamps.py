"""Remembers which set-up steps are done, by the content of what they were made from.

A step's stamp is cleared before the step starts and written after it ends, so an interrupted step is done again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path


def key_of(*parts: str | bytes | Path) -> str:
    """One sum over texts and the contents of files. Raises OSError for a file that cannot be read."""
    total = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "little"))
        total.update(content)
    return total.hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that readers see the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


@dataclass(frozen=True)
class Stamps:
    folder: Path

    def is_current(self, step: str, key: str, *made: Path) -> bool:
        """True when the step was finished for this key and everything it made is still there."""
        try:
            stamped = (self.folder / step).read_text(encoding="utf-8").strip()
        except OSError:
            return False
        return stamped == key and all(path.exists() for path in made)

    def clear(self, step: str) -> None:
        (self.folder / step).unlink(missing_ok=True)

    def write(self, step: str, key: str) -> None:
        write_whole(self.folder / step, key + "\n")
