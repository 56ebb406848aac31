"""The card's sheet: peaks, bandwidth, memory, registers, and what is native, each with its source.
configs/cards/<arch>.yaml, one file an arch; a number that nobody published is absent, never invented.

A sheet describes what the engine sees as one device (of an MI250X: one of its two dies). What `native` and `absent` may
hold; a word in neither was not looked at:

| word | the card has |
| --- | --- |
| packed_fp16, packed_fp32 | two operations in one vector instruction (v_pk_fma_f16, v_pk_fma_f32) |
| dot2 | v_dot2_f32_f16: two FP16 products added to FP32 |
| int8_dot4, int4_dot8 | v_dot4_i32_i8, v_dot8_i32_i4: four or eight integer products added to INT32 |
| dot4 | NVIDIA's dp4a, the same as int8_dot4 |
| mfma, wgmma | matrix instructions: AMD's matrix cores, Hopper's tensor cores |
| bf16 | vector arithmetic on bfloat16; without it bf16 is converted to FP32 first |
| bf16_matrix, int8_matrix | matrix instructions with such operands |
| fp8_fnuz, fp8 | matrix instructions on FP8 in the FNUZ encoding (gfx942) or the OCP encoding (gfx950, Hopper) |
| mx | matrix instructions on microscaled FP4, FP6, FP8 (a scale for every 32 values) |
| agpr | accumulation registers, half of `vgprs` |
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from cards.hygon import arch_of_name, facts
from contracts import Card, Frozen, MeasuredSheet

WORDS = frozenset(
    ["packed_fp16", "packed_fp32", "dot2", "int8_dot4", "int4_dot8", "dot4", "mfma", "wgmma", "bf16", "bf16_matrix"]
    + ["int8_matrix", "fp8_fnuz", "fp8", "mx", "agpr"]
)
# Beyond these multiples of the sheet's bandwidth a copy test says that something else was measured: a cache above it, a
# busy or capped card below. The widest true case above is a gfx942 sheet (5.3 TB/s) and an MI325X (6.0): 1.13.
LEAST_OF_SHEET, MOST_OF_SHEET = 0.2, 1.25
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
    link_gb_s: Number | None = None  # to all peers of one host together, one way; None: not known
    native: tuple[str, ...] = ()  # words of the table above
    absent: tuple[str, ...] = ()  # words of the table above: what code wrongly assumes of it
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def known_words(self) -> CardSheet:
        unknown = sorted({*self.native, *self.absent} - WORDS)
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: not in the table of cards/sheet.py; add it there with its meaning")
        both = sorted({*self.native} & {*self.absent})
        if both:
            raise ValueError(f"{', '.join(both)}: both native and absent")
        return self

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


def with_measured(sheet: CardSheet, measured: MeasuredSheet) -> tuple[CardSheet, str | None]:
    """The sheet with tonight's own bandwidth, and which number that replaces, in words; or the sheet as it was, and
    None: another arch, or a figure that no card of this arch can have. Pure.

    Only the bandwidth is replaced. What torch's library multiplies in a second is no peak: a better kernel may beat it,
    and a bound must not be beaten. A copy comes so near to what the memory gives that it may stand for it; kernels that
    only read may go a few percent faster.
    """
    published, found = sheet.bandwidth_gb_s, measured.copy_gb_s
    share = found.value / published.value
    if measured.arch != sheet.arch or not LEAST_OF_SHEET <= share <= MOST_OF_SHEET:
        return sheet, None
    source = f"measured tonight: {measured.how}; {measured.at}; the sheet says {published.value:g} ({published.source})"
    words = f"the bandwidth of configs/cards/{sheet.arch}.yaml ({published.value:g} GB/s; measured {share:.0%} of it)"
    number = Number(value=found.value, source=source)
    return sheet.model_copy(update={"bandwidth_gb_s": number}), words


def known_sheets() -> list[str]:
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def arch_of(name: str) -> str:
    """The arch of a card by its name in the sheets ("MI355X", "z100"), in any case; an arch stays one. Raises
    SheetError where no card, or cards of several archs, are called so."""
    arch = name.strip().lower()
    if arch in known_sheets():
        return arch
    word = re.compile(rf"(?<![a-z0-9]){re.escape(arch)}(?![a-z0-9])")
    found = {s: names for s in known_sheets() if (names := [n for n in _names(s) if arch and word.search(n.lower())])}
    if len(found) == 1:
        return next(iter(found))
    if found:
        cards = ", ".join(f"{names[0]} ({one})" for one, names in found.items())
        raise SheetError(f"{name} may be {cards}: write more of its name, or the arch")
    if hygon := arch_of_name(name):
        cards = ", ".join(facts().archs[hygon])
        what = f"there is no sheet for {hygon} (Hygon {cards}): nobody published bandwidth and peaks that we found"
        raise SheetError(f"{what}; write configs/cards/{hygon}.yaml, each number with its source, or audit on the card")
    raise SheetError(f"there is no sheet for {name}; there are {_all_names()} (configs/cards/)")


def _names(arch: str) -> tuple[str, ...]:
    sheet = read_sheet(arch)
    return (sheet.name, *sheet.also)


def _all_names() -> str:
    return ", ".join(f"{arch} ({', '.join(_names(arch))})" for arch in known_sheets())


def sheet_if_any(arch: str) -> CardSheet | None:
    """read_sheet, or None where there is none that can be used (a CPU, an arch of which nobody wrote)."""
    try:
        return read_sheet(arch)
    except SheetError:
        return None


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
