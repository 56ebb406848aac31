"""`run_night.py audit`: what would be tried first, and why. Needs no GPU and no server."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError
from rich.console import Console

from agents.audit_json import as_json
from agents.audit_missing import missing
from agents.audit_try import block, may_write
from agents.audit_words import print_audit
from agents.command import DONE, USAGE, guarded_command, print_json, say
from agents.config import ROOT, load_night
from agents.consult_words import print_consulted
from agents.llm import Client
from agents.llm_call import LlmSettings
from agents.research.audit import audit
from agents.research.consult import consult
from agents.research.dossier import PhaseProfile
from agents.research.rank import reader_names
from agents.research.regular_file import open_regular
from agents.research.subject import Asked, SubjectError, subject
from agents.research.traces.profiles import SEE, ProfileError, phase_profiles, profiles_from_json
from agents.research.traces.read import TraceError, read_trace

LEAST_COLUMNS = 20
PROCESSES = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class ModelOptions:
    """--llm and what belongs to it, as typed."""

    url: str = ""
    model: str = ""
    tokens: int | None = None
    price: str = ""
    money: float | None = None
    seconds: float | None = None


def audit_command(
    arch: str,
    model: Path | None,
    night: Path | None,
    vllm: Sequence[Path],
    aiter: Path | None,
    python: str,
    flags: Sequence[str],
    env: Sequence[str],
    compilation: Sequence[str],
    profiles: Sequence[Path],
    engine_logs: Sequence[Path],
    workload: tuple[int | None, int | None, int | None],
    readers: Sequence[str],
    without: Sequence[str],
    top: int,
    json_wanted: bool,
    llm: ModelOptions | None = None,
    try_first: Path | None = None,
    everything: bool = False,
) -> int:
    """One audit for each tree of vLLM (or one without)."""

    def work() -> int:
        told = []
        try:
            left = set(reader_names(list(without)) if without else [])
            asked = [name for name in reader_names(list(readers) or None) if name not in left]
            if not asked:
                raise SubjectError("no reader is left to ask: --without takes away all that --reader names")
            model_client = client(llm) if llm else None
            if try_first and len(vllm) > 1:
                raise SubjectError("--try-first writes for one engine: give one --vllm")
            if try_first:
                may_write(try_first)
            phases, traces = read_profiles(profiles)
            for tree in vllm or (None,):
                began = time.monotonic()
                dossier = subject(
                    Asked(
                        arch=arch,
                        model=model,
                        night=load_night(night) if night else None,
                        vllm=tree,
                        aiter=aiter,
                        python=python,
                        flags=settings(flags),
                        env={name: str(value) for name, value in settings(env, plain=True).items()},
                        compilation=settings(compilation),
                        phases=phases,
                        traces=traces,
                        engine_logs=tuple(engine_logs),
                        priors=tuple(sorted((ROOT / "configs" / "priors").glob("*.yaml"))),
                        concurrency=workload[0],
                        input_tokens=workload[1],
                        output_tokens=workload[2],
                    )
                )
                found = audit(dossier, asked, progress, processes=PROCESSES)
                seconds = time.monotonic() - began
                lacks = missing(dossier, asked, assumed=night is None and None in workload)
                said = None
                if model_client:
                    progress("what the language model says")
                    said = consult(found, dossier, model_client)
                progress("")
                if try_first:
                    try_first.write_text(block(found, dossier), encoding="utf-8")
                if json_wanted:
                    says = {"model_says": said.model_dump(mode="json")} if said else {}
                    told.append(as_json(found, dossier, seconds, lacks) | says)
                else:
                    print_audit(found, dossier, seconds, top, screen(), lacks, everything)
                    if said:
                        print_consulted(said, found.of("opportunity"), screen())
        except SubjectError as error:
            return say([str(error)], USAGE)
        if json_wanted:
            print_json({"audits": told})
        return DONE

    return guarded_command(work)


def client(asked: ModelOptions) -> Client | None:
    """None where no model is asked for. Raises SubjectError."""
    if not asked.url:
        if asked != ModelOptions():
            raise SubjectError("the --llm-... options need --llm URL, for example http://localhost:8000/v1")
        return None
    if not asked.model:
        raise SubjectError("--llm needs --llm-model NAME, as the server names it")
    try:
        prices: list[float | None] = [float(p) for p in asked.price.split(",")] if asked.price else [None, None]
        price_in, price_out = prices
    except ValueError:
        raise SubjectError("--llm-price takes two numbers for a million tokens in and out: --llm-price 0.5,2") from None
    given: dict[str, Any] = {"price_in": price_in, "price_out": price_out, "money_budget": asked.money}
    given |= {k: v for k, v in (("token_budget", asked.tokens), ("timeout_s", asked.seconds)) if v is not None}
    try:
        return Client(LlmSettings(base_url=asked.url, model=asked.model, **given))
    except ValidationError as error:  # its own text would repeat the address, and what may stand in it
        raise SubjectError(f"--llm: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def read_profiles(paths: Sequence[Path]) -> tuple[tuple[PhaseProfile, ...], tuple[Path, ...]]:
    """Known shares, and the paths that are traces. A file written by hand is told from a trace by its key `phases`; of
    several files that speak of one phase the first one counts. Raises SubjectError."""
    phases: list[PhaseProfile] = []
    traces: list[Path] = []
    for path in paths:
        try:
            if is_written_by_hand(path):
                phases += profiles_from_json(path)
            else:
                traces.append(path)
                phases += phase_profiles(read_trace(path))
        except ProfileError as error:
            raise SubjectError(str(error)) from None
        except TraceError as error:
            raise SubjectError(f"neither a trace (traceEvents) nor known shares (phases): {error}; {SEE}") from None
    first = {p.phase: p for p in reversed(phases)}
    return tuple(first.values()), tuple(traces)


def is_written_by_hand(path: Path) -> bool:
    if path.suffix in (".yaml", ".yml"):
        return True
    try:
        with open_regular(path) as file:
            head = file.read(4096).lstrip()
    except OSError as error:
        raise SubjectError(f"{path} cannot be read ({error.strerror}): give a trace or a file of shares") from None
    return head.startswith(b"{") and b'"phases"' in head and b'"traceEvents"' not in head


def screen() -> Console:
    """COLUMNS may say 0, and nothing would be printed."""
    return Console(width=max(LEAST_COLUMNS, Console().width))


def progress(reader: str) -> None:
    """Which reader is at work, on a terminal only."""
    if sys.stderr and sys.stderr.isatty():
        print(f"\r\033[K{'reading: ' + reader if reader else ''}", end="", file=sys.stderr, flush=True)


def settings(texts: Sequence[str], plain: bool = False) -> dict[str, JsonValue]:
    """NAME=VALUE, the value as JSON where it is JSON (8, true, [1,2], {"a":1}), else (or where `plain`) as text; NAME
    alone is true. Raises SubjectError."""
    found: dict[str, JsonValue] = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not name.strip("-"):
            raise SubjectError(f"{text!r} names nothing: write NAME=VALUE, for example max-num-seqs=64")
        found[name.strip().lstrip("-")] = _value(value, plain) if given else True
    return found


def _value(text: str, plain: bool) -> JsonValue:
    if plain:
        return text
    try:
        value: JsonValue = json.loads(text, parse_float=_finite, parse_constant=_finite)
        return value
    except ValueError:
        return text


def _finite(text: str) -> float:
    """NaN, Infinity and 1e999 are words here: no setting has such a value, and no JSON may hold one."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
