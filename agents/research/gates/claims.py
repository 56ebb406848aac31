"""What a gate's name promises about the card, and whether the card's sheet agrees.

A gate is a flag or a function that sorts cards: `on_cdna()`, `supports_fp8()`, FP8_ARCHS. Its name says what a yes
means; a name that promises nothing (is_navi, use_custom_allreduce) can be no contradiction here.
"""

from __future__ import annotations

import re

from cards.sheet import CardSheet

# Word of a name -> what a sheet calls the unit. CDNA means matrix cores: that is what code behind such a gate uses.
PROMISES: dict[str, str] = {
    "cdna": "mfma",
    "mfma": "mfma",
    "mi3xx": "mfma",
    "mi300": "mfma",
    "fp8": "fp8",
    "float8": "fp8",
    "e4m3": "fp8",
    "mx": "mx",
    "mxfp4": "mx",
    "mxfp6": "mx",
    "mxfp8": "mx",
    "fp4": "fp4",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "wmma": "wmma",
}
SERIES = {"mi3xx", "mi300"}  # chips by their series: a yes promises matrix cores, a no says nothing of an older chip
SPELLED = {"bf16": ("bf16", "bf16_matrix"), "fp4": ("fp4", "mx"), "mx": ("mx", "fp4")}  # in sheets
# Which of several formats or layouts, which version, or which one chip: a no there says nothing about the card.
NO_PROMISE = {"fnuz", "version", "dtype", "layout", "swizzle", "shuffle", "preshuffling", "tuned", "config", "prefers"}
ASKS = re.compile(
    r"^_*(is|on|has|have|supports?|supported|can|use|using|available|avail|native|enable[sd]?|should)(_|$)"
    r"|(_available|_avail|_supported|_archs|_arches|_native)$",
    re.IGNORECASE,
)


def words(name: str) -> list[str]:
    """ "_supportsFp8" and "SUPPORTS_FP8" -> ["supports", "fp8"]."""
    spread = name if name.isupper() else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [w for w in spread.lower().split("_") if w]


def promises(name: str) -> frozenset[str]:
    """What a yes of a gate of this name means: {"fp8"}; empty where it is no gate or promises nothing of the card."""
    parts = words(name)
    if not ASKS.search(name) or NO_PROMISE & set(parts):
        return frozenset()
    return frozenset(PROMISES[w] for w in parts if w in PROMISES)


def mentioned(text: str) -> frozenset[str]:
    """Units whose words stand anywhere in a piece of code."""
    parts = set(re.findall(r"[a-z0-9]+", text.lower().replace("_", " ")))
    return frozenset(PROMISES[w] for w in parts & PROMISES.keys())


def lacks(sheet: CardSheet, unit: str) -> bool:
    """The sheet says that the card has no such unit."""
    return any(name in sheet.absent for name in SPELLED.get(unit, (unit,))) and not has(sheet, unit)


def has(sheet: CardSheet, unit: str) -> bool:
    """The sheet says that the card has it."""
    return any(name in sheet.native for name in SPELLED.get(unit, (unit,))) or unit in sheet.tflops
