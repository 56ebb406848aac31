"""Starts the engines of benchmarks/gate.py and keeps what each process answered, one file a process.

Each process is asked whole gates, each from a secret of its own: token IDs, drift and sums, as agents/gating.py asks
them in a night, but nothing stops at the first failure.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from accuracy_gate import gsm8k, held_out
from accuracy_gate.collect import Mode, TokenRun, collect
from accuracy_gate.drift_collect import DriftRun, collect_drift
from accuracy_gate.gsm8k import Answers, QuestionSet
from accuracy_gate.gsm8k.paired import stop_on_harm
from accuracy_gate.texts import fixed_texts
from accuracy_gate.widths import plan
from agents.gating import READ_BACK
from contracts import EngineSpec, Frozen, Limits
from engine.running import RunningEngine
from engine.server import Engine

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "accuracy_gate/arithmetic_model"
LIMITS = Limits(engine_start_s=400, request_s=120)
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Size:
    """How much one gate asks. The defaults are the gate's own, with the embedded night's sums."""

    prompts: int = 24
    alone: int = 6
    tokens: int = 60
    width: int = 8
    more_widths: int = 2
    texts: int = 16
    sums: int = 250
    sums_width: int = 16


@dataclass(frozen=True)
class Place:
    """Where the engines run and what all of them are given."""

    python: Path
    device: Device = "cpu"
    dtype: str = "bfloat16"
    flags: tuple[tuple[str, JsonValue], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()  # on the engine's PYTHONPATH


class Gate(Frozen):
    """What one process answered to one secret's questions."""

    secret: str
    tokens: tuple[TokenRun, ...]
    drift: tuple[DriftRun, ...]
    answers: Answers | None


class Process(Frozen):
    name: str
    flags: dict[str, JsonValue]
    env: dict[str, str]
    start_s: float
    widths: str  # in words, what the token runs leave out
    gates: tuple[Gate, ...]
    failed: str | None = None  # it did not start, or broke

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with gzip.open(part, "wt", compresslevel=3) as file:
            file.write(self.model_dump_json(exclude_defaults=True))
        os.replace(part, path)

    @classmethod
    def load(cls, path: Path) -> Process:
        with gzip.open(path, "rt") as file:
            return cls.model_validate_json(file.read())


def secret(number: int) -> str:
    """Of the benchmark's own sets, so that they can be made again; a night draws its secret."""
    return f"{number:032x}"


def questions_of(name: str, size: Size) -> QuestionSet:
    return gsm8k.read("arithmetic:held_out_stories", size.sums, held_out.seed(name, "problems"))


def spec(place: Place, core: int | None, flags: dict[str, JsonValue], env: dict[str, str]) -> EngineSpec:
    """The arithmetic model. On a CPU eager (a graph takes a minute to compile) and, where several run side by side,
    each on a core of its own; on CUDA with its graphs, and a KV cache of fixed size, so that several fit."""
    own: dict[str, JsonValue] = {"dtype": place.dtype, "max-model-len": 1024, "max-num-seqs": 16}
    around: dict[str, str] = {}
    if place.device == "cpu":
        own["enforce-eager"] = True
        around["VLLM_CPU_KVCACHE_SPACE"] = "1"
        if core is not None:
            around["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
    else:
        own |= {"kv-cache-memory-bytes": 2 << 30, "gpu-memory-utilization": 0.1}
    return EngineSpec(
        python=str(place.python.absolute()), model=str(MODEL), flags=own | dict(place.flags) | flags,
        env=around | dict(place.env) | env, plugin_paths=(*place.paths, str(ROOT / "tests/planted")),
    )  # fmt: skip


def run_process(
    name: str, engine_spec: EngineSpec, sets: Sequence[int], size: Size, known: Callable[[str], Answers | None],
    both_modes: bool, path: Path, widths: Sequence[int] | None = None,
) -> Process:  # fmt: skip
    """One fresh engine through all sets, saved at `path` after each. `known`: the unchanged engine's sums, by secret,
    to stop where harm is shown. `both_modes`: drift alone as well as concurrent, as a reference needs it. `widths`: of
    the reference, which a candidate is asked at whatever its own are; None: this engine's own. An engine that fails is
    a result."""
    began = time.monotonic()
    done = Process(name=name, flags=engine_spec.flags, env=engine_spec.env, start_s=0.0, widths="", gates=())
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            Engine.start(engine_spec, "L000", Path(folder), LIMITS) as engine,
        ):
            record = engine.wait_ready()
            own = plan(record.realised, size.more_widths, asked_anyway=(1, size.width))
            done = done.model_copy(update={"start_s": time.monotonic() - began, "widths": own.sentence})
            for number in sets:
                gate = _gate(engine, name, secret(number), widths or own.widths, size, known, both_modes)
                done = done.model_copy(update={"gates": (*done.gates, gate)})
                done.save(path)
    except Exception as error:  # a fault may break the engine in any way: that is what the table then says
        done = done.model_copy(update={"failed": f"{type(error).__name__}: {error}"[:300]})
        done.save(path)
    return done


def _gate(
    engine: RunningEngine, process: str, name: str, widths: Sequence[int], size: Size,
    known: Callable[[str], Answers | None], both_modes: bool,
) -> Gate:  # fmt: skip
    forms: list[tuple[Mode, int, int]] = [("concurrent", size.width, size.prompts), ("alone", 1, size.alone)]
    forms += [("concurrent", width, width) for width in widths]
    prompts = held_out.mixed_prompts(max(size.prompts, *(width for _, width, _ in forms)), 7, name)
    tokens = [collect(engine, prompts[:count], size.tokens, mode, width) for mode, width, count in forms]
    texts = fixed_texts(size.texts, held_out.seed(name, "texts"))
    modes: tuple[Mode, ...] = ("concurrent", "alone") if both_modes else ("concurrent",)
    read_back = READ_BACK if both_modes else 0
    drifts = [collect_drift(engine, texts, mode, size.width, decode=read_back) for mode in modes]
    reference = known(name)
    answers = gsm8k.ask(
        engine, questions_of(name, size), gsm8k.style("mi355x_night", max_tokens=200), size.sums_width,
        after_wave=stop_on_harm(reference.answers) if reference else None,
    )  # fmt: skip
    own = {"launch_id": process}  # the engines' own are all alike here
    return Gate(
        secret=name,
        tokens=tuple(run.model_copy(update=own) for run in tokens),
        drift=tuple(run.model_copy(update=own) for run in drifts),
        answers=answers.model_copy(update=own),
    )
