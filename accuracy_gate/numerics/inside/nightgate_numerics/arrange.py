"""Operands as serving passes them: views inside larger buffers. All that is not the view, and every output before the
call, holds poison: a NaN with a bit pattern that no arithmetic makes, so that what was read or written astray, or never
written, can be told from what was computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .case import Pad

# Bits of the poison, two patterns each: a call that is repeated finds other poison than the first time. Integers have
# no NaN; theirs is a number that a kernel which reads it turns into a wrong result.
POISON = {
    torch.float16: (torch.int16, (0x7E5A, 0x7EA5)),
    torch.bfloat16: (torch.int16, (0x7FDA, 0x7FE5)),
    torch.float32: (torch.int32, (0x7FDA5A5A, 0x7FE5A5A5)),
    torch.int32: (torch.int32, (0x5A5A5A5A, 0x25A5A5A5)),
}


@dataclass
class Operand:
    """`view` is what the kernel gets; `whole` is the buffer around it. `last` are the bits of `whole` when it was last
    looked at."""

    name: str
    whole: torch.Tensor
    view: torch.Tensor
    where: tuple[slice, ...]
    poison: int = 0
    last: torch.Tensor | None = None

    @property
    def bits(self) -> torch.Tensor:
        return self.whole.view(POISON[self.whole.dtype][0])

    @property
    def view_bits(self) -> torch.Tensor:
        return self.bits[self.where]

    def lay_poison(self, which: int) -> None:
        """Over the whole buffer."""
        self.poison = POISON[self.whole.dtype][1][which]
        self.bits.fill_(self.poison)

    def remember(self) -> None:
        self.last = self.bits.clone()

    def changed(self, view_may: bool) -> str | None:
        """Where bits differ from what was remembered, in words; with `view_may` only around the view counts."""
        assert self.last is not None, "remember() comes first"
        different = self.bits != self.last
        if view_may:
            different[self.where] = False
        return self._said(different) if bool(different.any()) else None

    def unwritten(self) -> str | None:
        left = self.view_bits == self.poison
        if not bool(left.any()):
            return None
        first = ", ".join(map(str, left.nonzero()[0].tolist()))
        return f"{self.name}: {int(left.sum())} of {left.numel()} elements never written, first [{first}]"

    def _said(self, different: torch.Tensor) -> str:
        first = different.nonzero()[0].tolist()
        place = ", ".join(str(at - (part.start or 0)) for at, part in zip(first, self.where, strict=True))
        shape = ", ".join(map(str, self.view.shape))
        return f"{self.name}: {int(different.sum())} elements, first [{place}] where {self.name} is [{shape}]"


def place(name: str, shape: tuple[int, ...], dtype: torch.dtype, pad: Pad, device: torch.device) -> Operand:
    """A poisoned buffer with a view of `shape` in it. Raises ValueError for a dtype without poison."""
    if dtype not in POISON:
        raise ValueError(f"{name}: no poison for {dtype}; add it to arrange.POISON")
    before, after = pad
    whole = torch.empty(
        [b + size + a for b, size, a in zip(before, shape, after, strict=True)], dtype=dtype, device=device
    )
    where = tuple(slice(b, b + size) for b, size in zip(before, shape, strict=True))
    operand = Operand(name, whole, whole[where], where)
    operand.lay_poison(0)
    return operand
