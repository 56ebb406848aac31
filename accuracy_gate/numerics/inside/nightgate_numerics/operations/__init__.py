"""The operations that the gate knows, by name. A new kernel of one of them needs nothing here."""

from __future__ import annotations

from ..case import Case
from .add_rms_norm import CASE as ADD_RMS_NORM
from .w4a16_linear import CASE as W4A16_LINEAR
from .w4a16_zeros import CASE as W4A16_ZEROS

CASES: dict[str, Case] = {case.name: case for case in (ADD_RMS_NORM, W4A16_LINEAR, W4A16_ZEROS)}
