"""The vLLM that `make setup` installed, read as the night reads it, with any card before it: its tree holds the AMD and
NVIDIA platforms' source too, whatever it was built for. What stands in is the card alone, taken from its sheet."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.research.dossier import Dossier
from agents.research.installed_vllm import read_knobs
from agents.research.knobs import Knobs
from agents.research.model_shape import model_shape
from agents.tuning.static_check import static_check
from cards.sheet import read_sheet
from contracts import Change, EngineSpec
from tests.agents.examples import CPU, spec, workload
from tests.real import ROOT, engine_python

DENSE, MIXED = "dense_gqa_8b", "windows_256_512_31b"  # heads of 128; of 256 with a window, and of 512


def knobs() -> Knobs:
    """Skips the test where no engine is installed."""
    return _knobs(engine_python())


@lru_cache(maxsize=1)
def _knobs(python: str) -> Knobs:
    return read_knobs(python)


def about(arch: str, model: str = DENSE, load: dict[str, Any] | None = None, **fields: Any) -> Dossier:
    """`arch`: a card's sheet, or "cpu". `fields` are the engine's."""
    config = json.loads((ROOT / "configs" / "models" / f"{model}.json").read_text())
    engine = spec(**fields)
    sheet = None if arch == "cpu" else read_sheet(arch)
    return Dossier(
        spec=engine,
        knobs=knobs(),
        workload=workload(**(load or {})),
        card=sheet.card() if sheet else CPU,
        sheet=sheet,
        model_config_json=config,
        model=model_shape(config),
    )


def checked(change: Change, known: Dossier, engine: EngineSpec | None = None) -> str | None:
    return static_check(change, engine or known.spec, known.knobs, subject=known)


def cited_line(reason: str, file: str) -> str:
    """The line of the installed source that a reason names."""
    number = int(reason.split(f"vllm/{file}:")[1].split(")")[0].split(",")[0])
    return (Path(knobs().path) / file).read_text().splitlines()[number - 1]
