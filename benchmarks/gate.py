"""What does the accuracy gate catch, how often does it blame an unchanged engine, and what does it cost?

    python -m benchmarks.gate --out FOLDER [--parts aa faults] [--runs 200] [--python .venv-engine/bin/python]

Real vLLM engines with the embedded arithmetic model, each in a fresh process. Two processes are the reference, as in a
night. `aa`: further unchanged processes through whole gates, each with prompts, texts and problems of its own.
`faults`: one process for each planted fault (tests/planted), and for each harmless change. FOLDER keeps every answer;
started again, only what is missing there is asked, and with --parts (nothing) the tables are made from what is there.

On 2 cores about 70 minutes for everything. Results are kept in docs/accuracy_gate.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from pydantic import JsonValue
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from accuracy_gate import drift, gate
from accuracy_gate.gsm8k import Answers
from accuracy_gate.gsm8k.check import check as check_sums
from accuracy_gate.reference import NightReference
from benchmarks.gate_collect import Gate, Place, Process, Size, questions_of, run_process, secret, spec
from contracts import GateResult

FLOOR, MARGIN = 0.965, 0.03  # the embedded night's


@dataclass(frozen=True)
class Change:
    name: str
    what: str
    env: tuple[tuple[str, str], ...] = ()
    flags: tuple[tuple[str, JsonValue], ...] = ()
    processes: int = 1


def planted(fault: str, what: str, processes: int = 1) -> Change:
    return Change(fault.replace(":", "-"), what, env=(("NIGHTGATE_PLANTED_FAULT", fault),), processes=processes)


FAULTS = (
    planted("skip_layer", "skip one layer of 8"),
    planted("scale_layer:1.01", "one layer's output times 1.01"),
    planted("scale_layer:1.001", "one layer's output times 1.001"),
    planted("rope_base:1.01", "RoPE base off by 1 %"),
    planted("drop_last_kv_block", "the last KV block is not read"),
    planted("stale_kv_block", "one stale KV block is read"),
    planted("kv_8bit", "KV cache crudely rounded to 8 bits"),
    planted("swap_heads", "two heads swapped in one layer"),
    planted("rms_eps", "RMSNorm epsilon 1e-2"),
    planted("fp16_sums", "float16 sums where float32 was"),
    planted("big_batch:8", "wrong only in batches above 8"),
    planted("late_tokens:40", "wrong only from the 40th token on"),
    planted("one_in_five", "wrong in one of five processes", processes=12),
    planted("stop_token", "a stop-token bug truncates answers"),
    planted("not_greedy", "the sampler is not greedy"),
)
HARMLESS = (
    Change("max-num-seqs-4", "max-num-seqs 4 instead of 16", flags=(("max-num-seqs", 4),)),
    Change("compiled", "compiled instead of eager", flags=(("enforce-eager", False),)),
    Change("float32", "float32 instead of bfloat16", flags=(("dtype", "float32"),)),
)


Job = tuple[str, Change, list[int], bool]  # name, change, sets of questions, both modes


class Bench:
    """Where the processes' answers are, and how to get those that are missing."""

    def __init__(self, out: Path, place: Place, parallel: int, size: Size) -> None:
        self.out, self.place, self.parallel, self.size = out, place, parallel, size

    def collect(self, jobs: list[Job], known: dict[str, Answers], widths: tuple[int, ...] | None = None) -> None:
        """(name, change, sets, both modes) for each process that has no file yet, `parallel` side by side."""
        missing = [job for job in jobs if not self.answered(job[0], len(job[2]))]
        cores: SimpleQueue[int] = SimpleQueue()
        for core in range(self.parallel):
            cores.put(core)

        def one(job: Job) -> None:
            name, change, sets, both = job
            core = cores.get()
            try:
                pinned = core if self.place.device == "cpu" and self.parallel > 1 else None
                engine = spec(self.place, pinned, dict(change.flags), dict(change.env))
                done = run_process(name, engine, sets, self.size, known.get, both, self.path(name), widths)
            finally:
                cores.put(core)
            print(f"{name}: {done.failed or f'{len(done.gates)} gates, ready after {done.start_s:.0f} s'}", flush=True)

        with ThreadPoolExecutor(max_workers=self.parallel) as pool:
            list(pool.map(one, missing))

    def path(self, name: str) -> Path:
        return self.out / f"{name}.json.gz"

    def load(self, name: str) -> Process | None:
        return Process.load(self.path(name)) if self.path(name).exists() else None

    def answered(self, name: str, sets: int) -> bool:
        """All sets, or it broke. One that was stopped in between is asked again."""
        known = self.load(name)
        return known is not None and (known.failed is not None or len(known.gates) >= sets)

    def references(self, sets: list[int]) -> dict[str, NightReference]:
        """By secret, from the two reference processes."""
        first, second = self.load("reference-0"), self.load("reference-1")
        if first is None or second is None or first.failed or second.failed:
            why = next((p.failed for p in (first, second) if p and p.failed), None)
            mend = f"{why}: mend that and delete {self.out}/reference-*" if why else "run --parts aa"
            sys.exit(f"no reference: {mend}")
        found: dict[str, NightReference] = {}
        for one, other in zip(first.gates, second.gates, strict=False):
            found[one.secret] = NightReference(
                tokens=gate.calibrate([*one.tokens, *other.tokens]),
                drift=drift.calibrate([*one.drift, *other.drift]),
                questions=questions_of(one.secret, self.size),
                answers=one.answers,
                widths=first.widths,
            )
        return {secret(number): found[secret(number)] for number in sets if secret(number) in found}


def judge(reference: NightReference, asked: Gate) -> Iterator[tuple[str, GateResult, int]]:
    """(part, result, prompts or questions asked) in the order of a night: a quick wave, the token runs, drift, sums."""
    first = asked.tokens[0]
    quick = first.model_copy(update={
        "sequences": first.sequences[: first.concurrency],
        "seconds": first.seconds / math.ceil(len(first.sequences) / first.concurrency),
    })  # fmt: skip
    yield "quick wave", gate.check(reference.tokens, quick), len(quick.sequences)
    for run in asked.tokens:
        yield f"tokens, {run.concurrency} at a time", gate.check(reference.tokens, run), len(run.sequences)
    assert reference.drift is not None and reference.questions is not None and asked.answers is not None
    for texts in asked.drift[:1]:
        yield "drift", drift.check(reference.drift, texts), len(texts.sequences)
    answers = asked.answers
    result = check_sums(reference.questions, reference.answers, answers, FLOOR, MARGIN)
    yield "sums", result.model_copy(update={"seconds": answers.seconds}), len(answers.answers) - answers.not_asked


def aa_table(references: dict[str, NightReference], processes: list[Process], console: Console) -> None:
    """How often an unchanged engine is blamed, by check and for the whole gate."""
    runs = [list(judge(references[g.secret], g)) for p in processes for g in p.gates if g.secret in references]
    table = Table(
        "check", "runs", "pass", "inconclusive", "fail", "fails, 95 % interval", "not passed, 95 % interval",
        "seconds a run",
        title=f"An unchanged engine: {len(runs)} gate runs in {len(processes)} fresh processes", box=box.MARKDOWN,
    )  # fmt: skip
    parts = list(dict.fromkeys(part for run in runs for part, _, _ in run))
    for part in [*parts, "whole gate"]:
        chosen = [[(r.outcome, r.seconds) for name, r, _ in run if part in (name, "whole gate")] for run in runs]
        chosen = [run for run in chosen if run]
        worst = [next((o for o in ("fail", "inconclusive") if any(x == o for x, _ in run)), "pass") for run in chosen]
        # the quick wave is part of the concurrent run: not counted twice
        seconds = [sum(s for _, s in run[1:] or run) for run in chosen]
        n, fails, passes = len(worst), worst.count("fail"), worst.count("pass")
        table.add_row(
            part, str(n), str(passes), str(worst.count("inconclusive")), str(fails), share(fails, n),
            share(n - passes, n), f"{sum(seconds) / max(n, 1):.1f}",
        )  # fmt: skip
    console.print(table)
    for index, run in enumerate(runs):
        for part, result, _ in run:
            if result.outcome != "pass":
                console.print(f"run {index}, {part}: {result.outcome}: {result.reason}", markup=False)


def share(count: int, n: int) -> str:
    """`1.0 % (0.1 to 3.6)`, exact (Clopper-Pearson)."""
    if not n:
        return "–"
    low, high = binomtest(count, n).proportion_ci(0.95, "exact")
    return f"{100 * count / n:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def fault_table(
    references: dict[str, NightReference], found: list[tuple[Change, list[Process]]], title: str, console: Console
) -> None:
    table = Table(
        "change", "quick wave", "tokens", "drift", "sums", "caught by", "after", "start", title=title, box=box.MARKDOWN
    )
    for change, processes in found:
        for process in processes:
            name = change.what + (f" ({process.name.rpartition('-')[2]})" if change.processes > 1 else "")
            if not process.gates:
                table.add_row(name, "–", "–", "–", "–", f"engine: {process.failed}", "–", f"{process.start_s:.0f} s")
                continue
            rows = list(judge(references[process.gates[0].secret], process.gates[0]))
            by: dict[str, list[GateResult]] = {}
            for part, result, _ in rows:
                by.setdefault(part.split(",")[0], []).append(result)
            caught, after = caught_by(rows)
            table.add_row(
                name, *(" ".join(cell(r) for r in by[part]) for part in ("quick wave", "tokens", "drift", "sums")),
                caught, after, f"{process.start_s:.0f} s",
            )  # fmt: skip
    console.print(table)


def cell(result: GateResult) -> str:
    """The outcome and the number that it rests on."""
    word = {"pass": "pass", "fail": "FAIL", "inconclusive": "unsure", "not_run": "–"}[result.outcome]
    numbers = result.statistic
    if result.check == "gsm8k":
        return f"{word} {numbers['correct']}/{numbers['answered']}"
    ratio = numbers.get("ratio")
    return f"{word} {ratio:.2f}" if isinstance(ratio, float) else word


def caught_by(rows: list[tuple[str, GateResult, int]]) -> tuple[str, str]:
    """The first check that fails, else the first that does not pass, and what it took until then."""
    for outcome in ("fail", "inconclusive"):
        seconds, asked = 0.0, 0
        for part, result, count in rows:
            seconds, asked = seconds + result.seconds, asked + count
            if result.outcome == outcome:
                words = part if outcome == "fail" else f"{part} (unsure: not kept)"
                return words, f"{seconds:.1f} s, {asked} asked"
            if part == "quick wave":
                seconds, asked = 0.0, 0  # it is the first wave of what follows
    return "not seen", "–"


def pairs(texts: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, _, value in (text.partition("=") for text in texts))


def main() -> None:
    parser = argparse.ArgumentParser(description="Catches, false alarms and costs of the accuracy gate.")
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps every answer")
    parser.add_argument("--parts", nargs="*", choices=["aa", "faults"], default=["aa", "faults"])
    parser.add_argument("--runs", type=int, default=200, help="A/A gate runs")
    parser.add_argument("--sets", type=int, default=10, help="prompt sets; each A/A process is asked all of them")
    parser.add_argument("--sums", type=int, default=Size.sums, help="questions of one gate")
    parser.add_argument("--python", type=Path, default=Path(".venv-engine/bin/python"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--parallel", type=int, default=2, help="engines side by side")
    parser.add_argument("--only", nargs="*", help="of the faults, these (names of their files, without number)")
    parser.add_argument("--flag", nargs="*", default=[], metavar="NAME=VALUE", help="more engine flags")
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE", help="more of the engine's environment")
    parser.add_argument("--path", nargs="*", default=[], help="folders on the engine's PYTHONPATH")
    asked = parser.parse_args()
    names = [change.name for change in (*FAULTS, *HARMLESS)]
    if unknown := [name for name in asked.only or () if name not in names]:
        parser.error(f"no fault {unknown[0]}: one of {', '.join(names)}")
    if asked.sums < 1 or asked.runs < 1 or asked.sets < 1 or asked.parallel < 1:
        parser.error("--sums, --runs, --sets and --parallel are at least 1")
    try:
        asked.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {asked.out} cannot be written ({error.strerror}): name another folder")
    place = Place(
        asked.python, asked.device, asked.dtype, pairs(asked.flag), pairs(asked.env), tuple(asked.path)
    )  # fmt: skip
    bench = Bench(asked.out, place, asked.parallel, Size(sums=asked.sums))
    plain, sets = Change("unchanged", "unchanged"), list(range(asked.sets))
    unchanged = [f"unchanged-{number:02d}" for number in range(math.ceil(asked.runs / asked.sets))]
    if asked.parts:  # the unchanged ones need no reference to be asked: all together
        jobs = [(f"reference-{number}", plain, sets, True) for number in (0, 1)]
        jobs += [(name, plain, sets, False) for name in unchanged] if "aa" in asked.parts else []
        bench.collect(jobs, {})
    references = bench.references(sets)
    known = {name: r.answers for name, r in references.items() if r.answers is not None}
    if "faults" in asked.parts:
        jobs = [
            (f"{change.name}-{number}", change, [0], False)
            for change in (*FAULTS, *HARMLESS)
            for number in range(change.processes)
            if asked.only is None or change.name in asked.only
        ]
        runs, usual = references[secret(0)].tokens.runs, (1, bench.size.width)
        bench.collect(jobs, known, tuple(run.concurrency for run in runs if run.concurrency not in usual))
    console = Console(width=220)
    for changes, title in ((FAULTS, "Planted faults"), (HARMLESS, "Harmless changes")):
        found = [
            (change, [p for number in range(change.processes) if (p := bench.load(f"{change.name}-{number}"))])
            for change in changes
        ]
        fault_table(references, found, title, console)
    processes = [p for name in unchanged if (p := bench.load(name))]
    if processes:
        aa_table(references, processes, console)


if __name__ == "__main__":
    main()
