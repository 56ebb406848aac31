"""The readers, one file each, one question each. A reader is a module here that exports

- `NAME`, and `read(dossier) -> list[Hypothesis]` or `look(dossier) -> list[Finding]`, or both: a hypothesis is for a
  night, a finding is for a person who audits;
- if a night is to try its findings too, where a lever can apply their change, `FOR_NIGHTS = True` (looking then takes a
  night a few seconds at most: 0.4 to 4 s for the readers of tables on whole trees). The others parse
  whole trees or compile for minutes and propose nothing that a lever can apply, or say what another one reads;
- if it leaves things out knowingly, `dropped(dossier) -> list[str]`: one line each, with the reason.

Adding a file adds a reader; a night file may choose among them by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from agents.research.dossier import Dossier
from agents.research.finding import Finding
from contracts import Hypothesis


@dataclass(frozen=True)
class Reader:
    name: str
    read: Callable[[Dossier], list[Hypothesis]]
    look: Callable[[Dossier], list[Finding]]
    dropped: Callable[[Dossier], list[str]]
    for_nights: bool = False

    def hypotheses(self, dossier: Dossier) -> list[Hypothesis]:
        """What a night may try."""
        found = self.look(dossier) if self.for_nights else []
        return [*self.read(dossier), *(h for finding in found if (h := finding.hypothesis()))]


def _nothing(_dossier: Dossier) -> list[Any]:
    return []


def _reader(module: ModuleType) -> Reader:
    read, look, dropped = (getattr(module, name, _nothing) for name in ("read", "look", "dropped"))
    return Reader(module.NAME, read, look, dropped, getattr(module, "FOR_NIGHTS", False))


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        _reader(importlib.import_module(f"{__name__}.{found.name}")) for found in pkgutil.iter_modules(__path__)
    )
}
