"""Which Triton kernels are compiled again for other batches or lengths, in the middle of serving?

From the sources: a constexpr parameter, or a heuristic's value, that follows the batch (agents/research/compile/flow.py
states the rules) makes one variant for each value. Variants are counted over 16 batch sizes by Triton's own binder
where the engine's interpreter has Triton, else by the number of different values. From logs: what vLLM's JIT monitor
saw compiled after the warm-up.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

from agents.research.attention_backends import calls_aiter
from agents.research.compile.evidence import Toolchain, find_toolchain, run_jobs
from agents.research.compile.fixes import by_hand, diff
from agents.research.compile.flow import Vary
from agents.research.compile.modules import Sources
from agents.research.compile.storms import BATCHES, Storm, count_job, storms, worst
from agents.research.compile.used_by import Uses, other_models, uses
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms, plural
from agents.research.regular_file import open_regular
from agents.research.remembered import default_cache, recall, remember, stamp
from contracts import Evidence, Frozen, content_hash

NAME = "compile_storms"
MAX_KERNELS = 15  # told one by one, a tree; the rest in one line
MAX_NAMED = 12  # rows of evidence in a line that stands for many
MAX_LOG_BYTES = 64 << 20
MAX_LOG_LINES = 2_000_000

# "Triton kernel JIT compilation during inference: NAME.", also "CuTeDSL JIT compilation ..."
# (vllm/utils/jit_monitor.py, 0.32.0 and 0.33.0). Without --jit-monitor-verbose each kernel is named once only.
MONITOR = re.compile(r"(\w+) (?:kernel )?JIT compilation during inference: ([\w.<>]+?)(?=[.]?(?:\s|$|\())")

# A variant takes 0.06 to 0.5 s to compile (2-core x86 machine, Triton 3.9.0) and holds up one step once: 16 of them are
# about 1 % of ten minutes. Judged; no profile splits this off.
SHARE = 0.01


class Told(Frozen):
    """A tree's findings, as they are remembered."""

    findings: tuple[Finding, ...]


def look(dossier: Dossier, cache: Path | None = None) -> list[Finding]:
    """`cache`: where counts and a tree's findings are remembered, the user's cache folder by default."""
    logged = _logged(dossier.engine_logs)
    found = [_from_log(kernel, seen) for kernel, seen in logged.items()]
    if dossier.card.kind == "cpu":
        return found
    toolchain = find_toolchain(dossier.spec.python) if dossier.card.kind == "amd" else None
    cache, mine = cache or default_cache("compile"), uses(dossier)
    for tree in _trees(dossier):
        key = _key(dossier, tree, sorted(logged), toolchain, mine)
        told = recall(cache, key, Told)
        if told is None:
            sources = Sources(tree)
            here = [s for s in storms(sources) if _of_this_card(s, dossier.card.kind)]
            not_mine = _not_mine(here, mine, set(logged))
            here = worst([s for s in here if s not in not_mine])
            findings, counted = _of_tree(dossier, sources, here, set(logged), toolchain, cache)
            told = Told(findings=(*findings, *_told_apart(not_mine, mine, sources)))
            if counted:  # a compiler that crashed or hung may do better the next time
                remember(cache, key, told)
        found += told.findings
    return found


def _key(dossier: Dossier, tree: Path, logged: list[str], toolchain: Toolchain | None, mine: Uses | None) -> str:
    """Of everything that these findings rest on: the tree's files, this code, and what is used of the dossier."""
    own = stamp(Path(__file__).parents[1])
    compiler = toolchain.model_dump(mode="json") if toolchain else None
    card = [dossier.card.arch, dossier.card.kind]
    model = mine.model_dump(mode="json") if mine else None
    return content_hash([own, stamp(tree), *card, [*logged], compiler, dossier.cost_s(), model], length=32)


def dropped(dossier: Dossier) -> list[str]:
    if dossier.card.kind != "cpu" and _trees(dossier) and find_toolchain(dossier.spec.python) is None:
        python = dossier.spec.python
        who = f"{python} has no Triton" if python else "no interpreter with Triton was named (--python)"
        return [f"{NAME}: {who}, so variants are counted by different values alone"]
    return []


def _trees(dossier: Dossier) -> list[Path]:
    """AITER's only where that vLLM calls it on this card."""
    vllm = dossier.knobs.path
    calls = not vllm or calls_aiter(Path(vllm), dossier.card.arch)
    return [Path(p) for p in (vllm, dossier.aiter if calls else "") if p and Path(p).is_dir()]


def _of_this_card(storm: Storm, kind: str) -> bool:
    """vLLM keeps a vendor's own kernels in folders of its name."""
    parts = storm.kernel_at.split("/")
    return {"amd": "nvidia", "nvidia": "amd"}.get(kind) not in parts


def _not_mine(found: list[Storm], mine: Uses | None, logged: set[str]) -> dict[Storm, str]:
    """Those that are for other models, and for what; a kernel that was seen in a log ran."""
    if mine is None:
        return {}
    told = {s: other_models(s, mine) for s in found if s.kernel not in logged}
    return {s: why for s, why in told.items() if why}


def _told_apart(not_mine: dict[Storm, str], mine: Uses | None, sources: Sources) -> list[Finding]:
    if not not_mine or mine is None:
        return []
    kernels = {s.kernel_at: (s, why) for s, why in not_mine.items()}
    counts: dict[str, int] = {}
    for _, why in kernels.values():
        counts[why] = counts.get(why, 0) + 1
    kinds = ", ".join(f"{n} for {why}" for why, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    title = (
        f"{len(kernels)} kernels of {sources.root.name} that are compiled again for other batches are not for "
        f"{mine.architecture}: {kinds}"
    )
    shown = tuple(_evidence(s) for s, _ in list(kernels.values())[:MAX_NAMED])
    return [Finding(reader=NAME, kind="fact", title=title, evidence=shown)]


def _of_one_model(storm: Storm) -> bool:
    """In the code of one model: whether that is tonight's is not known from here."""
    return "/models/" in storm.kernel_at


def _of_tree(
    dossier: Dossier, sources: Sources, found: list[Storm], logged: set[str], toolchain: Toolchain | None, cache: Path
) -> tuple[list[Finding], bool]:
    """What is told, and whether Triton counted everything that it was asked to."""
    each: dict[str, list[Storm]] = {}
    for storm in found:
        if storm.vary == Vary.EACH:
            each.setdefault(storm.kernel_at, []).append(storm)
    groups = sorted(each.values(), key=lambda g: (g[0].kernel not in logged, _of_one_model(g[0])))
    shown = groups[:MAX_KERNELS]
    asked = [s for group in shown for s in group] if toolchain else []
    counts = _counts(dossier.card.arch, asked, toolchain, cache) if toolchain else {}
    result = [_finding(dossier, sources, group, counts, logged, toolchain) for group in shown]
    for kind, rest in (
        ("whenever a batch or a length changes", [s for group in groups[MAX_KERNELS:] for s in group]),
        ("for a few sizes of a batch, such as powers of two", [s for s in found if s.vary == Vary.POWERS]),
    ):
        if rest:
            kernels = len({s.kernel_at for s in rest})
            which = plural(kernels, "further kernel" if kind.startswith("whenever") else "kernel")
            are = "is" if kernels == 1 else "are"
            result.append(
                Finding(
                    reader=NAME,
                    kind="fact",
                    title=f"{which} of {sources.root.name} {are} compiled again {kind}",
                    evidence=tuple(_evidence(s) for s in rest[:MAX_NAMED]),
                )
            )
    if sources.broken:
        files = plural(len(sources.broken), "file")
        result.append(
            Finding(
                reader=NAME,
                kind="fact",
                title=f"{files} of {sources.root.name} could not be read for compile storms",
                evidence=tuple(Evidence(source=line.split(" ")[0], detail=line) for line in sources.broken[:MAX_NAMED]),
            )
        )
    return result, len(counts) == len(set(asked))


def _evidence(storm: Storm) -> Evidence:
    way = {"constexpr": "constexpr", "heuristic": "heuristic of constexpr", "autotune key": "autotune key"}[storm.how]
    return Evidence(
        source=storm.call_at,
        detail=f"{storm.kernel} ({storm.kernel_at}): {way} {storm.parameter} = {storm.expression[:120]}",
    )


Counts = tuple[int, int, int]  # variants over BATCHES: as it is, as a run-time argument, as one not specialised


def _by_values(storm: Storm) -> Counts:
    """Without Triton: the number of values, the three classes of a run-time integer (1, divisible by 16, other), 1."""
    return len(set(storm.values)), len({(v == 1, v % 16 == 0) for v in storm.values}), 1


def _counts(arch: str, found: list[Storm], toolchain: Toolchain, cache: Path) -> dict[Storm, Counts]:
    """By Triton's own binder; a storm whose count crashed or hung is left out."""
    jobs = [count_job(s, arch, way) for s in found for way in ("constexpr", "run time", "not specialised")]
    variants = [result.variants for result in run_jobs(toolchain, jobs, cache)]
    counted = {}
    for index, storm in enumerate(found):
        now, run_time, plain = variants[3 * index : 3 * index + 3]
        if now is not None and run_time is not None and plain is not None:
            counted[storm] = (now, run_time, plain)
    return counted


def _finding(
    dossier: Dossier,
    sources: Sources,
    group: list[Storm],
    counts: dict[Storm, Counts],
    logged: set[str],
    toolchain: Toolchain | None,
) -> Finding:
    """Of one kernel, all its parameters. With a diff where all of them may become run-time arguments."""
    kernel, seen = group[0].kernel, group[0].kernel in logged
    names = " and ".join(s.parameter for s in group)
    if toolchain and all(s in counts for s in group):
        counter = f"Triton {toolchain.triton}'s binder"
    else:
        counter, counts = "different values", {s: _by_values(s) for s in group}
    before = max(counts[s][0] for s in group)
    why = [reason for s in group if (reason := by_hand(sources, s))]
    free = [s.parameter for s in group if not by_hand(sources, s)]
    patch = diff(group[0].module, group[0].node, free) if free else ""
    evidence = [_evidence(s) for s in group]
    for s in group:
        now, run_time, plain = counts[s]
        words = f"{now} variants as it is, {run_time} as a run-time argument, {plain} with do_not_specialize"
        evidence.append(
            Evidence(source=f"counted by {counter}", detail=f"{s.parameter} over {len(BATCHES)} sizes: {words}")
        )
    if seen:
        evidence.append(Evidence(source="engine log", detail=f"{kernel} was compiled while the engine served"))
    title = f"{kernel} is compiled again for other batches: {before} variants over {len(BATCHES)} sizes, by {names}"
    if why:
        text = f"Needs a person. {'; '.join(why)}" + (f"\nThe rest of it:\n{patch}" if patch else "")
        return Finding(reader=NAME, kind="trap", title=title, evidence=tuple(evidence), fix=text, risk="medium")
    after = max(counts[s][2] for s in group)
    return Finding(
        reader=NAME,
        kind="opportunity",
        title=title,
        evidence=tuple(evidence),
        fix=patch,
        terms=Terms(
            phase="all",
            share=SHARE,
            share_from="judged, the share is unknown: 16 compiles of at most 0.5 s in ten minutes",
            speedup=max(1.0, before / after),
            speedup_from=f"{before} variants become {after}, counted by {counter}",
            probability=0.5 if seen else 0.1,
            probability_from="judged: seen in an engine's log" if seen else "judged: not known to run tonight",
            cost_s=dossier.cost_s(),
        ),
        risk="medium",
    )


def _logged(paths: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Kernel -> (file:line, runtime) of every line of the monitor."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        for number, line in _lines(Path(path)):
            hit = MONITOR.search(line)
            if hit:
                found.setdefault(hit.group(2), []).append((f"{Path(path).name}:{number}", hit.group(1)))
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            return
        with io.TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if number > MAX_LOG_LINES:
                    return
                yield number, line
    except OSError:
        return


def _from_log(kernel: str, seen: list[tuple[str, str]]) -> Finding:
    count = f"{len(seen)} times" if len(seen) > 1 else "once"
    return Finding(
        reader=NAME,
        kind="trap",
        title=f"{kernel} was compiled {count} while the engine served, after its warm-up",
        evidence=tuple(
            Evidence(source=where, detail=f"{runtime} JIT compilation during inference: {kernel}")
            for where, runtime in seen[:MAX_NAMED]
        ),
        fix="The first request of each such shape waits for the compiler. Warm the shape up before measuring. Without "
        "--jit-monitor-verbose the log names a kernel once only, so it may have been more.",
    )
