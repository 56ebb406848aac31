"""Our kernels, and kernels that are wrong on purpose, through the numerics check on this machine. Prints the tables of
docs/kernel_numerics.md.

    python -m benchmarks.kernel_numerics                        the engine's interpreter that set-up chose
    python3 -m benchmarks.kernel_numerics --python python3      another one: it needs torch, and Triton for our kernels

Runs with the standard library alone, so also where nothing of nightgate is set up. Ends with 1 when a kernel of ours
fails or a planted fault is missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
from pathlib import Path

from accuracy_gate.numerics.launch import Limits, run_inside
from accuracy_gate.numerics.summary import Summary, summaries
from tests.kernels.faults import FAULTS, FOLDERS, HONEST, KERNELS, ROOT, broken


def interpreter(asked: str) -> str:
    """Absolute. Raises SystemExit with what to do."""
    chosen = ROOT / ".engine-python"
    if asked:
        if found := shutil.which(asked):
            return str(Path(found).absolute())
        sys.exit(f"there is no interpreter {asked}: give --python a path")
    if not chosen.exists():
        sys.exit("no engine is set up here: run `make setup`, or give --python")
    return chosen.read_text().strip()


def kernel_table(found: tuple[Summary, ...]) -> str:
    lines = [
        "| kernel | sizes and views | tried | wrong | rms, of plain's | largest, ulp (plain's) | mean, ulp |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        name = one.kernel.kernel.split(":")[1]
        for label, c in one.classes.items():
            lines.append(
                f"| {name} | {label} | {c.tried} | {c.failed} | {c.rms_ratio:.2f} "
                f"| {c.largest:.2f} ({c.plain_largest:.2f}) | {c.mean:+.3f} |"
            )
        if replay := one.replay:
            label = f"{replay['mode']}: {replay['steps']} replays of {replay['captures']} captures"
            lines.append(
                f"| {name} | {label} | {replay['steps']} | {int(bool(replay['findings']))} | {replay['rms_ratio']:.2f} "
                f"| {replay['largest']:.2f} ({replay['plain_largest']:.2f}) | {replay['mean']:+.3f} |"
            )
    return "\n".join(lines)


def verdicts(found: tuple[Summary, ...]) -> str:
    lines = []
    for one in found:
        lines.append(f"{one.outcome}: {one.kernel.kernel}: {one.reason} [{one.calls} calls, {one.seconds:.1f} s]")
        lines += [f"    left out: {what}" for what in one.left_out]
    return "\n".join(lines)


def fault_table(found: tuple[Summary, ...]) -> tuple[str, int]:
    """The table, and how many faults were missed or taken for something else."""
    lines = ["| planted fault | caught by | wrong, of tried | replay | first seen as |", "|---|---|---|---|---|"]
    missed = 0
    for name, one in zip(FAULTS, found, strict=True):
        check, _, words = one.reason.partition(": ")
        right = one.outcome == "fail" and check == FAULTS[name]
        missed += not right
        tried, failed = (sum(getattr(c, key) for c in one.classes.values()) for key in ("tried", "failed"))
        replay = "-" if not one.replay else "wrong" if one.replay["findings"] else "right"
        mark = check if right else f"**{one.outcome}: {check}**, expected {FAULTS[name]}"
        lines.append(f"| {name} | {mark} | {failed} of {tried} | {replay} | {words.rpartition(' (')[0]} |")
    return "\n".join(lines), missed


def alarms(found: tuple[Summary, ...]) -> str:
    """How often the check blames kernels that are right."""
    lines = [
        "| honest kernel | checks | blamed | sizes and views | wrong | worst rms, of plain's |",
        "|---|---|---|---|---|---|",
    ]
    for name in HONEST:
        mine = [one for one in found if one.kernel == broken(name)]
        classes = [c for one in mine for c in one.classes.values()]
        blamed, worst = sum(one.outcome != "pass" for one in mine), max((c.rms_ratio for c in classes), default=0.0)
        tried, wrong = sum(c.tried for c in classes), sum(c.failed for c in classes)
        lines.append(f"| {name} | {len(mine)} | {blamed} | {tried} | {wrong} | {worst:.2f} |")
    return "\n".join([*lines, *(f"blamed: {one.reason}" for one in found if one.outcome != "pass")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="", help="an interpreter that has torch")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--level", choices=("auto", "small", "serving"), default="auto", help="sizes for our kernels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=240, help="at most, for one kernel")
    parser.add_argument("--repeats", type=int, default=0, help="also count false alarms: honest kernels, other numbers")
    parser.add_argument("--json", type=Path, help="also keep all that was said, here")
    asked = parser.parse_args()
    python, limits = interpreter(asked.python), Limits(kernel_s=asked.seconds, silent_s=120)
    honest = tuple(broken(name) for name in HONEST)
    faulty = tuple(broken(name) for name in FAULTS)
    ours = run_inside(python, KERNELS, FOLDERS, asked.device, asked.level, asked.seed, limits)
    theirs = run_inside(python, honest + faulty, FOLDERS, asked.device, "small", asked.seed, limits)
    told = summaries(honest + faulty, theirs)
    found, faults = (*summaries(KERNELS, ours), *told[: len(honest)]), told[len(honest) :]
    if asked.json:
        asked.json.write_text(json.dumps({"ours": ours.lines, "faults": theirs.lines}))
    machine = found[0].machine
    print(
        f"{datetime.date.today()}, {machine.get('name')} ({machine.get('device')}), torch {machine.get('torch')}, "
        f"Triton {machine.get('triton')}, Python {machine.get('python')}, seed {asked.seed}\n"
    )
    for ended in (ours, theirs):
        if ended.how != "finished":
            print(f"the process {ended.how}: {ended.words}\n" + "\n".join(ended.log_tail) + "\n")
    table, missed = fault_table(faults)
    print(verdicts(found), kernel_table(found), table, sep="\n\n")
    if asked.repeats:
        many = honest * asked.repeats
        again = run_inside(python, many, FOLDERS, asked.device, "small", asked.seed + 1000, limits)
        print("\n" + alarms(summaries(many, again)))
    sys.exit(1 if missed or any(one.outcome != "pass" for one in found) else 0)


if __name__ == "__main__":
    main()
