"""What an audit is about: a card, a model, trees and whatever is known, from the command line to a Dossier. Every fault
of the input is one line (SubjectError)."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agents.research.dossier import Dossier, PhaseProfile
from agents.research.image_tree import vllm_of
from agents.research.installed_vllm import find_vllm
from agents.research.knobs import UNTOLD, Knobs, KnobsError
from agents.research.model_shape import ModelShapeError, model_shape
from agents.research.refused import refused
from agents.research.regular_file import open_regular, read_regular
from agents.research.vllm_source import knobs_from_source
from agents.tuning.levers import compilation, engine_flag
from cards.detect import detect
from cards.sheet import CardSheet, SheetError, arch_of, read_sheet, sheet_if_any
from contracts import Card, Container, EngineSpec, NightConfig, Workload

MOST_CONFIG_BYTES = 4 << 20
# A long prompt and a short answer, many at a time: what batch work and agents send. Told in the audit's first line.
WORKLOAD = Workload(
    name="audit",
    concurrency=64,
    requests=256,
    warmup_requests=0,
    input_tokens=(10_000, 10_000),
    output_tokens=(500, 500),
)


class SubjectError(ValueError):
    """Input that cannot be audited. One line with the fix."""


@dataclass(frozen=True)
class Asked:
    """As typed. `night` gives what the other options leave out."""

    arch: str = "auto"
    model: Path | None = None
    night: NightConfig | None = None
    vllm: Path | None = None
    aiter: Path | None = None
    python: str = ""
    flags: dict[str, JsonValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    compilation: dict[str, JsonValue] = field(default_factory=dict)
    phases: tuple[PhaseProfile, ...] = ()
    traces: tuple[Path, ...] = ()
    engine_logs: tuple[Path, ...] = ()
    priors: tuple[Path, ...] = ()
    concurrency: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


def subject(asked: Asked) -> Dossier:
    """Raises SubjectError."""
    card, sheet = _card(asked.arch)
    config, model = _config(asked)
    night = asked.night
    engine = night.engine if night else None
    python = os.path.abspath(asked.python) if asked.python else engine.python if engine else ""
    container = engine.container if engine and not asked.python else None
    knobs = _knobs(asked, python, container)
    spec = EngineSpec(
        # Absolute, since it is run from a neutral folder; a link stays one, or a venv would be its base.
        python=python,
        model=model,
        flags={_flag(k, knobs): v for k, v in (*(engine.flags if engine else {}).items(), *asked.flags.items())},
        env={**(engine.env if engine else {}), **asked.env},
        compilation={
            compilation.normalise(k): v
            for k, v in (*(engine.compilation if engine else {}).items(), *asked.compilation.items())
        },
        container=container,
    )
    if asked.python and not os.access(asked.python, os.X_OK):
        raise SubjectError(f"{asked.python} cannot be run: give an interpreter that has Triton, or leave --python out")
    for path in (*asked.traces, *asked.engine_logs):
        if not path.is_file():
            raise SubjectError(f"{path} is no file: give the path of a trace or a log")
    for path in asked.engine_logs:
        _readable(path)
    try:
        shape = model_shape(config) if config else None
    except ModelShapeError as error:
        raise SubjectError(f"{model}: {error}") from None
    fault = refused(spec, knobs, shape)
    if fault:
        raise SubjectError(fault)
    return Dossier(
        spec=spec,
        knobs=knobs,
        workload=_workload(asked),
        card=card,
        model_config_json=config,
        try_first=night.try_first if night else (),
        priors=tuple(map(str, asked.priors)) or (night.priors if night else ()),
        model=shape,
        sheet=sheet,
        aiter=str(package(asked.aiter, "aiter", "ops")) if asked.aiter else "",
        phases=asked.phases,
        traces=tuple(map(str, asked.traces)),
        engine_logs=tuple(map(str, asked.engine_logs)),
    )


def _readable(log: Path) -> None:
    """Raises SubjectError for what no reader could use."""
    try:
        with open_regular(log) as file:
            head = file.read(4096)
    except OSError as error:
        raise SubjectError(f"{log} cannot be read ({error.strerror}): give the log of an engine") from None
    if not head or b"\0" in head:
        raise SubjectError(f"{log} is {'no text' if head else 'empty'}: give the log of an engine")


def _flag(name: str, knobs: Knobs) -> str:
    """Readers look flags up by one spelling: "tensor-parallel-size" for --tensor_parallel_size and for --tp."""
    plain = engine_flag.normalise(name)
    return knobs.aliases.get(plain, plain)


def package(place: Path, name: str, inside: str) -> Path:
    """The folder of package `name` at or under `place`: a checkout, an unpacked wheel, site-packages or the folder
    itself. Raises SubjectError where there is none."""
    for folder in (place, place / name, *sorted(place.glob(f"*/{name}"))):
        if folder.name == name and (folder / inside).exists():
            return folder.resolve()
    where = place if place != Path() else "the current folder (which an empty path means)"
    raise SubjectError(f"{where} holds no {name}: give an unpacked wheel, a checkout or the folder {name} itself")


def _card(arch: str) -> tuple[Card, CardSheet | None]:
    if arch == "auto":
        cards = detect()
        card = next((c for c in cards if c.kind != "cpu"), cards[0])
        return card, sheet_if_any(card.arch)
    try:
        sheet = read_sheet(arch_of(arch))
    except SheetError as error:
        raise SubjectError(str(error)) from None
    card = sheet.card()
    if arch.lower() != sheet.arch and not re.search(rf"\b{re.escape(arch.lower())}\b", sheet.name.lower()):
        card = card.model_copy(update={"source": f"{card.source}, whose figures stand for {arch} too"})
    return card, sheet


def _config(asked: Asked) -> tuple[dict[str, Any], str]:
    place = asked.model or (Path(asked.night.engine.model) if asked.night else None)
    if place is None:
        return {}, ""
    path = place / "config.json" if place.is_dir() else place
    try:
        config = json.loads(read_regular(path, MOST_CONFIG_BYTES).decode("utf-8"))
        json.dumps(config, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise SubjectError(f"{path} holds half a character (\\ud800 to \\udfff): write it whole, or out") from None
    except OSError as error:
        raise SubjectError(f"{path} cannot be read ({error.strerror}): give a model's config.json or folder") from None
    except (ValueError, RecursionError):
        raise SubjectError(f"{path} is not JSON: give a model's config.json or folder") from None
    if not isinstance(config, dict):
        raise SubjectError(f"{path} holds no JSON object: give a model's config.json or folder")
    return config, str(place)


def _knobs(asked: Asked, python: str, container: Container | None) -> Knobs:
    """Of the tree that was named, else of the interpreter; empty where there is neither."""
    try:
        if asked.vllm:
            return knobs_from_source(package(asked.vllm, "vllm", "engine"))
        if container is not None:
            return knobs_from_source(vllm_of(container))
        return knobs_from_source(find_vllm(python)) if python else Knobs(version=UNTOLD, path="")
    except KnobsError as error:
        if asked.vllm or asked.night:
            raise SubjectError(str(error)) from None
        return Knobs(version=UNTOLD, path="")


def _workload(asked: Asked) -> Workload:
    base = asked.night.workload if asked.night else WORKLOAD
    update: dict[str, Any] = {}
    if asked.concurrency:
        update |= {"concurrency": asked.concurrency, "rate_per_s": None}
    if asked.input_tokens:
        update["input_tokens"] = (asked.input_tokens, asked.input_tokens)
    if asked.output_tokens:
        update["output_tokens"] = (asked.output_tokens, asked.output_tokens)
    return base.model_copy(update=update)
