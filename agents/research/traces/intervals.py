"""Sums over intervals of time that may overlap. Arrays of whole ns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]


def covered(start: Times, end: Times) -> int:
    """Length of the union, ns. `start` must be sorted; zero for none."""
    if not len(start):
        return 0
    reach = np.maximum.accumulate(end)
    holes = np.maximum(start[1:] - reach[:-1], 0)
    return int(reach[-1] - start[0] - holes.sum())
