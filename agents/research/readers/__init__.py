"""The readers, one file each, one question each. A reader is a module here that exports

- `NAME`, and `read(dossier) -> list[Hypothesis]`;
- if it leaves things out knowingly, `dropped(dossier) -> list[str]`: one line each, with the reason.

Adding a file adds a reader; a night file may choose among them by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from agents.research.dossier import Dossier
from contracts import Hypothesis


@dataclass(frozen=True)
class Reader:
    name: str
    read: Callable[[Dossier], list[Hypothesis]]
    dropped: Callable[[Dossier], list[str]]


def _nothing(_dossier: Dossier) -> list[str]:
    return []


def _reader(module: ModuleType) -> Reader:
    return Reader(module.NAME, module.read, getattr(module, "dropped", _nothing))


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        _reader(importlib.import_module(f"{__name__}.{found.name}")) for found in pkgutil.iter_modules(__path__)
    )
}
