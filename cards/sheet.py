"""The card's sheet: peaks, bandwidth, memory, registers, and what is native, each with its source.
configs/cards/<arch>.yaml, one file an arch; a number that nobody published is absent, never invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from contracts import Card, Frozen

FOLDER = Path(__file__).resolve().parents[1] / "configs" / "cards"


class SheetError(ValueError):
    """No such card, or a sheet that cannot be used. One line with the fix."""


class Number(Frozen):
    """A figure and where it is from. Units are in the field's name that holds it."""

    value: float = Field(gt=0)
    source: str


class CardSheet(Frozen):
    """`tflops` by dtype: dense peak, matrix cores where the card has them. Absent dtype: the card cannot multiply it
    natively."""

    arch: str
    name: str  # the card that the numbers are of
    also: tuple[str, ...] = ()  # other cards of this arch
    kind: Literal["amd", "nvidia"]
    wavefront: int
    compute_units: Number
    memory_gib: Number
    bandwidth_gb_s: Number
    tflops: dict[str, Number]  # "fp16", "bf16", "fp32", "fp8", "int8", "fp4"
    lds_bytes: Number  # a workgroup's limit
    vgprs: Number  # of 32 bits, a SIMD lane's budget over all waves (512 on CDNA)
    native: tuple[str, ...] = ()  # "mfma", "dot2", "fp8", "int8_dot4", "mx"
    absent: tuple[str, ...] = ()  # what code wrongly assumes of it
    notes: tuple[str, ...] = ()

    def card(self) -> Card:
        """As if it were in this machine: for an audit without the card."""
        return Card(
            arch=self.arch,
            kind=self.kind,
            name=self.name,
            memory_bytes=int(self.memory_gib.value * 2**30),
            compute_units=int(self.compute_units.value),
            wavefront=self.wavefront,
            source=f"configs/cards/{self.arch}.yaml",
        )


def known_sheets() -> list[str]:
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def read_sheet(arch: str) -> CardSheet:
    """Raises SheetError naming the archs there are."""
    path = FOLDER / f"{arch}.yaml"
    if arch not in known_sheets():
        raise SheetError(f"there is no sheet for {arch}; there are {', '.join(known_sheets())} (configs/cards/)")
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return CardSheet.model_validate(raw)
    except (yaml.YAMLError, ValidationError) as error:
        raise SheetError(f"configs/cards/{arch}.yaml cannot be used: {' '.join(str(error).split())[:200]}") from None
