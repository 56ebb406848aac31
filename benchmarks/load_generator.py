"""Our load generator beside `vllm bench serve`, on one running engine, in turn. Prints the table of
docs/load_generator.md.

    python -m benchmarks.load_generator --python .venv-engine/bin/python --model .models/smollm2-135m-instruct

Three callers in rotating order, `--runs` times each, every call with prompts that the engine has not seen:

| caller | requests                                | window                                                  |
| ------ | --------------------------------------- | ------------------------------------------------------- |
| theirs | vllm bench serve, random dataset         | all of them, ramp-up and drain included                 |
| ours   | the same number, lengths, concurrency    | the same: warm-up and fill requests are left out         |
| steady | as a night measures: engine.measure      | after a warm-up and with fill requests to its end       |

`ours / theirs` tells whether the two clients measure alike; `steady / ours` what the window's edges cost.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from contracts import EngineSpec, Limits, Workload
from engine import interpreter
from engine.corpus import corpus_tokens
from engine.load import run_load
from engine.measure import measure
from engine.metrics import run_metrics
from engine.prompts import plan
from engine.server import Engine

METRICS = (
    "output_tokens_per_s",
    "ttft_ms_p50",
    "ttft_ms_p95",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "itl_ms_p50",
    "e2e_ms_p50",
)
THEIR_NAMES = {
    "output_tokens_per_s": "output_throughput",
    "ttft_ms_p50": "median_ttft_ms",
    "ttft_ms_p95": "p95_ttft_ms",
    "tpot_ms_p50": "median_tpot_ms",
    "tpot_ms_p95": "p95_tpot_ms",
    "itl_ms_p50": "median_itl_ms",
    "e2e_ms_p50": "median_e2el_ms",
}
Row = dict[str, float | None]  # METRICS, and "seconds", "cpu_s" of the whole call


def theirs(engine: Engine, workload: Workload, seed: int, folder: Path) -> Row:
    """One call of `vllm bench serve` in the engine's interpreter. Raises RuntimeError with its last words."""
    python, model = engine.spec.python, engine.spec.model
    out = folder / f"bench-{seed}.json"
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai",
        "--endpoint", "/v1/completions", "--base-url", engine.base_url, "--model", model,
        "--served-model-name", engine.served_name, "--tokenizer", model, "--dataset-name", "random",
        "--random-input-len", str(workload.input_tokens[0]), "--random-output-len", str(workload.output_tokens[0]),
        "--num-prompts", str(workload.requests), "--max-concurrency", str(workload.concurrency), "--seed", str(seed),
        "--ignore-eos", "--temperature", "0", "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--metric-percentiles", "50,95,99", "--save-result", "--result-dir", str(folder), "--result-filename", out.name,
        "--disable-tqdm",
    ]  # fmt: skip
    shim = ":".join(map(str, interpreter.shims(python, folder / "shim")))
    env = {"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "HOME": str(folder)}
    done = subprocess.run(
        command,
        env=env | ({"PYTHONPATH": shim} if shim else {}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError("vllm bench serve failed: " + " | ".join(done.stderr.strip().splitlines()[-3:]))
    found = json.loads(out.read_text())
    if found["failed"]:
        raise RuntimeError(f"vllm bench serve: {found['failed']} requests failed")
    return {name: found[their] for name, their in THEIR_NAMES.items()}


def ours(engine: Engine, workload: Workload, seed: int, folder: Path) -> Row:
    """The same requests by our generator, with the window that `vllm bench serve` has."""
    requests = [
        r for r in plan(workload, seed, corpus_tokens(engine.base_url, engine.served_name)) if r.phase == "measured"
    ]
    result = run_load(
        engine.base_url, engine.served_name, requests, concurrency=workload.concurrency, request_s=300, run_s=600
    )
    if bad := [s for s in result.samples if not s.ok]:
        raise RuntimeError(f"{len(bad)} of our requests failed: {bad[0].error}: {bad[0].detail}")
    return run_metrics(result, workload)


def steady(engine: Engine, workload: Workload, seed: int, folder: Path) -> Row:
    """As a night measures."""
    found = measure(engine, workload, seed, "A", 0, seed, folder / "artifacts", Limits(request_s=300, run_s=600))
    if found.failed:
        raise RuntimeError(f"{found.failed} requests failed: {found.conditions['first_error']}")
    print(f"  conditions: {found.conditions}", file=sys.stderr)
    return found.metrics


def timed(call: Callable[[Engine, Workload, int, Path], Row], *args: object) -> Row:
    """The call's row with its wall seconds and the CPU seconds of this process and its ended children."""

    def used() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds))

    wall, cpu = time.monotonic(), used()
    row = call(*args)  # type: ignore[arg-type]
    return row | {"seconds": time.monotonic() - wall, "cpu_s": used() - cpu}


def table(rows: dict[str, list[Row]]) -> str:
    """Median (smallest to largest) of each caller, and the ratios of medians with the range of run-by-run ratios."""

    def cell(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"

    def ratio(over: list[float], under: list[float]) -> str:
        each = [a / b for a, b in zip(over, under, strict=True)]
        return f"{statistics.median(over) / statistics.median(under):.3f} ({min(each):.3f} to {max(each):.3f})"

    lines = ["| metric | theirs | ours | steady | ours / theirs | steady / ours |", "|---|---|---|---|---|---|"]
    for name in (*METRICS, "seconds", "cpu_s"):
        t, o, s = ([float(row[name] or "nan") for row in rows[who]] for who in ("theirs", "ours", "steady"))
        lines.append(f"| {name} | {cell(t)} | {cell(o)} | {cell(s)} | {ratio(o, t)} | {ratio(s, o)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter that has vLLM")
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--flags", type=json.loads, default={"enforce-eager": True, "max-model-len": 1024})
    parser.add_argument("--env", type=json.loads, default={"VLLM_CPU_KVCACHE_SPACE": "1"})
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=48)
    args = parser.parse_args()
    workload = Workload(
        name="compare", concurrency=args.concurrency, requests=args.requests, warmup_requests=args.concurrency,
        input_tokens=(args.input, args.input), output_tokens=(args.output, args.output),
    )  # fmt: skip
    spec = EngineSpec(
        python=str(Path(args.python).absolute()), model=str(Path(args.model).absolute()), flags=args.flags, env=args.env
    )
    callers = (theirs, ours, steady)
    rows: dict[str, list[Row]] = {call.__name__: [] for call in callers}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = Engine.start(spec, "bench", folder, Limits())
        try:
            engine.wait_ready()
            ours(engine, workload, 999, folder)  # nobody's first run
            for run in range(args.runs):
                for turn in range(len(callers)):
                    call = callers[(run + turn) % len(callers)]
                    row = timed(call, engine, workload, 1000 + 10 * run + turn, folder)
                    rows[call.__name__].append(row)
                    print(f"run {run} {call.__name__}: {json.dumps(row)}", file=sys.stderr)
        finally:
            engine.stop()
    _, version = interpreter.distribution(spec.python)
    cores, memory = psutil.cpu_count(), psutil.virtual_memory().total / 2**30
    print(
        f"{datetime.date.today()}, {platform.machine()}, {cores} cores, {memory:.0f} GiB, load average at the end "
        f"{psutil.getloadavg()[0]:.1f}, vLLM {version}, Python {platform.python_version()}; {args.requests} requests "
        f"of {args.input} + {args.output} tokens, concurrency {args.concurrency}, engine flags "
        f"{json.dumps(args.flags)}, "
        f"{args.runs} runs each\n"
    )
    print(table(rows))


if __name__ == "__main__":
    main()
