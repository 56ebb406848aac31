"""The model's score through vLLM: asks a running engine held-out problems and counts the right answers.

    python -m accuracy_gate.arithmetic.measure --python .venv-engine/bin/python --count 1000 --dtype bfloat16

starts one engine of its own, asks every split as a chat with INSTRUCTION, greedily, and prints one JSON line a split.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import httpx
from pydantic import JsonValue
from scipy.stats import binomtest

from accuracy_gate.arithmetic.generate import DATA_VERSION, Split, problems
from accuracy_gate.arithmetic.problem import Problem, final_number
from accuracy_gate.arithmetic.training.documents import INSTRUCTION
from contracts import EngineSpec, Limits
from engine.client import http_client
from engine.running import EngineFailure, RunningEngine
from engine.server import Engine

MODEL = Path(__file__).resolve().parents[1] / "arithmetic_model"
MOST_TOKENS = 200  # of an answer; the longest in the data has about 120
SEED = 20_261_129  # the problems of the published scores


@dataclass(frozen=True)
class Score:
    """`seconds` from the first request to the last answer."""

    right: int
    asked: int
    errors: int  # requests without an answer; not counted as wrong
    wrong: tuple[tuple[Problem, str], ...]
    seconds: float
    output_tokens: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Exact (Clopper-Pearson), 95 %, of the share of answered problems that are right. None: nothing answered."""
        if self.asked == self.errors:
            return None
        found = binomtest(self.right, self.asked - self.errors).proportion_ci(0.95, "exact")
        return float(found.low), float(found.high)

    def summary(self) -> dict[str, JsonValue]:
        return {
            "right": self.right, "asked": self.asked, "errors": self.errors,
            "interval": list(self.interval) if self.interval else None,
            "seconds": round(self.seconds, 1), "output_tokens": self.output_tokens,
            "wrong_by_family": dict(Counter(problem.family for problem, _ in self.wrong).most_common(8)),
        }  # fmt: skip


def ask(engine: RunningEngine, asked: Sequence[Problem], concurrency: int = 16) -> Score:
    """Greedy, `concurrency` at once. Raises EngineFailure when the engine is not (or no longer) ours."""
    engine.check()
    begun = time.monotonic()
    with (
        http_client(engine.base_url, 120.0, connections=concurrency) as http,
        ThreadPoolExecutor(max_workers=concurrency) as pool,
    ):
        answered = list(pool.map(lambda problem: _one(http, engine.served_name, problem), asked))
    seconds = time.monotonic() - begun
    engine.check()
    wrong = tuple(
        (problem, text)
        for problem, (text, _) in zip(asked, answered, strict=True)
        if text is not None and final_number(text) != problem.result
    )
    errors = sum(text is None for text, _ in answered)
    right = len(asked) - errors - len(wrong)
    return Score(right, len(asked), errors, wrong, seconds, sum(tokens for _, tokens in answered))


def _one(client: httpx.Client, model: str, problem: Problem) -> tuple[str | None, int]:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{problem.question}\n{INSTRUCTION}"}],
        "max_tokens": MOST_TOKENS,
        "temperature": 0,
    }
    try:
        response = client.post("/v1/chat/completions", json=body)
        response.raise_for_status()
        answer = response.json()
        return answer["choices"][0]["message"]["content"] or "", int(answer["usage"]["completion_tokens"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
        return None, 0


def spec(python: Path, dtype: str = "bfloat16") -> EngineSpec:
    """Small, and quick to start: no graphs are compiled."""
    return EngineSpec(
        python=str(python.absolute()), model=str(MODEL), env={"VLLM_CPU_KVCACHE_SPACE": "1"},
        flags={"enforce-eager": True, "dtype": dtype, "max-model-len": 1024, "max-num-seqs": 16},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Score the arithmetic model through vLLM.")
    parser.add_argument("--python", type=Path, required=True, help="the engine's interpreter")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "--splits",
        nargs="+",
        choices=get_args(Split),
        default=["held_out_numbers", "held_out_stories", "held_out_families"],
    )
    asked = parser.parse_args()
    splits: list[Split] = asked.splits
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            Engine.start(spec(asked.python, asked.dtype), "L000", Path(folder), Limits()) as engine,
        ):
            engine.wait_ready()
            for split in splits:
                line = {"split": split, "dtype": asked.dtype, "data": DATA_VERSION}
                print(json.dumps(line | ask(engine, problems(split, asked.count, SEED)).summary()), flush=True)
    except EngineFailure as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
