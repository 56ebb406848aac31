"""Which format could the KV cache have on this card, does this vLLM know it, and what would it buy?

The comparison is data (configs/kv_dtypes.yaml); the gain is the roofline's, worked out with the one flag changed.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from agents.research.dossier import Dossier
from agents.research.knobs import Knobs
from agents.research.regular_file import read_regular
from agents.research.roofline import Roofline, roofline
from cards.sheet import WORDS, CardSheet
from contracts import Frozen

FILE = Path(__file__).resolve().parents[2] / "configs" / "kv_dtypes.yaml"
FLAG = "kv-cache-dtype"
DECLARED = ("config/cache.py", "CacheDType")  # where vLLM lists the values if the flag's own type does not say them
MOST_BYTES = 2_000_000


class KvFormatsError(ValueError):
    """configs/kv_dtypes.yaml cannot be used. One line."""


class KvFormat(Frozen):
    """One row of the comparison. `loss_percent` and `effort_hours` are from, to, as the source has them."""

    name: str
    bits: float = Field(gt=0)
    of_bf16: float = Field(gt=0, le=1)  # bytes, scales included, over those of bf16
    needs: tuple[str, ...]  # one of these words in the sheet's `native`
    flags: tuple[str, ...]  # values of --kv-cache-dtype
    loss_percent: tuple[float, float] | None  # None: the source says nothing
    effort_hours: tuple[float, float]
    where: str
    source: str
    notes: tuple[str, ...] = ()

    @property
    def loss_words(self) -> str:
        if self.loss_percent is None:
            return "loss not known"
        low, high = self.loss_percent
        return f"loss {low:g} to {high:g} % (unchecked)"

    def runs_on(self, sheet: CardSheet) -> bool:
        return not self.needs or any(word in sheet.native for word in self.needs)


class Gain(Frozen):
    """What a format changes, both rooflines at the same load."""

    value: str  # of the flag
    before: Roofline
    after: Roofline

    @property
    def attention(self) -> float:
        """Speed-up of decode's attention at best."""
        return self.before.decode["attention"].seconds / self.after.decode["attention"].seconds

    @property
    def words(self) -> str:
        a, b = self.before, self.after
        return (
            f"{a.kv_bytes_per_token:,.0f} -> {b.kv_bytes_per_token:,.0f} bytes a token and card, "
            f"{a.sequences_fit} -> {b.sequences_fit} of the longest sequences fit, "
            f"decode step at best {a.decode_step_s * 1e3:.2f} -> {b.decode_step_s * 1e3:.2f} ms"
        )


def read_formats(path: Path = FILE) -> tuple[KvFormat, ...]:
    """Raises KvFormatsError."""
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = tuple(KvFormat.model_validate(row) for row in raw["formats"])
    except (OSError, yaml.YAMLError, ValidationError, KeyError, TypeError) as error:
        raise KvFormatsError(f"{path.name} cannot be used: {' '.join(str(error).split())[:200]}") from None
    unknown = sorted({word for f in found for word in f.needs} - WORDS)
    if unknown:
        raise KvFormatsError(f"{path.name} needs {', '.join(unknown)}, which cards/sheet.py does not explain")
    return found


def values_of(knobs: Knobs) -> tuple[tuple[str, ...], str]:
    """(the values that this vLLM's --kv-cache-dtype takes, where that stands). Empty: not known, or no such flag."""
    knob = knobs.flags.get(FLAG)
    if knob is None:
        return (), ""
    if knob.choices:
        return tuple(str(c) for c in knob.choices), f"vllm/{knob.source}"
    file, name = DECLARED  # 0.32.0 and later: an open type, CacheDType or any string that a platform registers
    path = Path(knobs.path) / file
    try:
        tree = ast.parse(read_regular(path, MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return (), ""
    for node in tree.body:
        named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name
        if named and isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            inner = node.value.slice
            listed = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            values = tuple(e.value for e in listed if isinstance(e, ast.Constant) and isinstance(e.value, str))
            return values, f"vllm/{file}:{node.lineno}"
    return (), ""


def gain(dossier: Dossier, value: str) -> Gain | None:
    """Of setting the flag to `value`. None where there is no roofline. The number of running sequences is held, so that
    a step is compared with a step; what more sequences in the cache bring is told by sequences_fit."""
    before = roofline(dossier)
    if before is None:
        return None
    held = dossier.model_copy(update={"profile": {**dossier.profile, "running_mean": before.running}})
    flags = {**dossier.spec.flags, FLAG: value}
    after = roofline(held.model_copy(update={"spec": dossier.spec.model_copy(update={"flags": flags})}))
    return None if after is None else Gain(value=value, before=before, after=after)
