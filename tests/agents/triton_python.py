"""Which interpreter with Triton the compiling tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.research.compile.evidence import Toolchain, find_toolchain

CHECKOUT = Path(__file__).resolve().parents[2]


def toolchain() -> Toolchain:
    chosen = CHECKOUT / ".engine-python"
    python = chosen.read_text().strip() if chosen.exists() else os.environ.get("NIGHTGATE_TRITON_PYTHON", "")
    found = find_toolchain(python) if python else None
    if found is None:
        pytest.skip("no interpreter with Triton: run `make setup`, or name one in NIGHTGATE_TRITON_PYTHON")
    return found
