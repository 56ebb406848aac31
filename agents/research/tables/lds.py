"""What a tile takes of a workgroup's LDS, estimated from the table alone. A compiled kernel says it exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from contracts import Frozen

_BITS = re.compile(r"A(?P<fa>FP)?(?P<a>\d+)W(?P<fb>FP)?(?P<b>\d+)")


class LdsNeed(Frozen):
    """Bytes of both operand tiles in every buffer of the software pipeline. How many buffers there are is the
    compiler's choice: `bytes` counts num_stages of them (Triton 3.9 with loads straight into LDS), `lean` one fewer."""

    bytes: int
    lean: int
    tile: str  # "128x256x64, 2 stages"


def operand_bits(family: str) -> tuple[int, int] | None:
    """Bits of an element of A and of W by a family's name: GEMM-A8W8_BLOCKSCALE is (8, 8), GEMM-AFP4WFP4 (4, 4).
    None for fused families, which hold two tiles of different kinds, and for preshuffled ones, whose weights are laid
    out so that they need not pass through LDS."""
    found = _BITS.search(family)
    if found is None or any(word in family for word in ("FUSED", "FF-", "PRESHUFFLED")):
        return None
    return int(found["a"]), int(found["b"])


def lds_need(config: Mapping[str, Any], bits: tuple[int, int]) -> LdsNeed | None:
    """(m k bits_a + k n bits_b) / 8 x stages of an entry; None where it has no whole tile."""
    sizes = [config.get(f"BLOCK_SIZE_{axis}", config.get(f"BLOCK_{axis}")) for axis in "MNK"]
    stages = config.get("num_stages", 2)
    if not all(_whole(v) for v in (*sizes, stages)):
        return None
    m, n, k = (int(v) for v in sizes if v is not None)
    pair = (m * k * bits[0] + k * n * bits[1]) // 8
    return LdsNeed(bytes=pair * max(stages, 1), lean=pair * max(stages - 1, 1), tile=f"{m}x{n}x{k}, {stages} stages")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def not_powers_of_two(config: Mapping[str, Any]) -> list[str]:
    """Tile sizes and warps that Triton refuses: it takes powers of two only."""
    names = [k for k in config if k.startswith("BLOCK_") or k == "num_warps"]
    return [f"{k} {config[k]}" for k in names if _whole(config[k]) and (config[k] < 1 or config[k] & (config[k] - 1))]
