"""Is this machine, engine and night file fit for a night? Every answer that is no names its fix.

Nothing here starts an engine, opens a card or changes a file; the slowest look takes half a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agents import engine_fit, machine_fit
from agents.card_guard import FIX, in_use
from agents.config import ROOT, engine_python
from cards.choose import MAKER, choose_card, pick_card
from cards.detect import detect, free_memory
from cards.installed import installed
from contracts import Card, CardRule, Frozen, NightConfig

GIB = 1 << 30
LOGS = ROOT / "logs"
# Seconds from an engine's start to its readiness, on the low side: SmolLM2-135M with vLLM 0.32 on 2 cores took 19 to
# 22 s eager and 63 s compiled with a warm cache, an 8B shape with vLLM 0.26 on one H200 75 s warm (2026-11-29).
START_EAGER_CPU_S, START_COMPILED_CPU_S, START_GPU_S = 20.0, 60.0, 75.0
SHORTEST_RUN_S = 5.0  # a guess: the budget warning is a lower bound, and says so
# How far above the arithmetic the free memory must be before two engines share it: pages that the first has not
# touched yet, and what the machine itself wants.
TWIN_RESERVE = 0.10
UNITS = {"amd": "CUs", "nvidia": "SMs", "cpu": "cores"}


class Problem(Frozen):
    what: str
    fix: str
    fatal: bool = True  # false: the night can run, and this is worth knowing

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"


class Diagnosis(Frozen):
    """What `run_night.py doctor` prints."""

    found: dict[str, str]
    cards: tuple[Card, ...]
    card: Card
    card_reason: str
    problems: tuple[Problem, ...]

    @property
    def fit(self) -> bool:
        return not any(problem.fatal for problem in self.problems)

    def lines(self) -> list[str]:
        """The same for a terminal: what was found, each problem with its fix, and the answer last."""
        cards = [
            f"{c.name} ({c.arch}, {c.memory_bytes / GIB:.0f} GiB, {c.compute_units} {UNITS[c.kind]})"
            for c in self.cards
        ]
        return [
            *(f"{name}: {value}" for name, value in self.found.items()),
            f"cards: {', '.join(cards)}",
            f"the night's card: {self.card_reason}",
            *(f"{'PROBLEM' if p.fatal else 'warning'}: {p}" for p in self.problems),
            "fit for a night" if self.fit else "not fit for a night: mend what is marked PROBLEM",
        ]


def preflight(config: NightConfig, card: Card, night_dir: Path | None) -> tuple[Problem, ...]:
    """All that is wrong, fatal problems first. `night_dir` need not exist yet; None: this checkout's logs/."""
    problems = [
        *_interpreter(config.engine.python, card),
        *_tenants(card, config.card),
        *_model_and_memory(config, card),
        *_machine(night_dir or LOGS, config.limits.disk_free_bytes),
        *_tools(config, card),
        *_budget(config, card),
    ]
    if config.engine.port is not None and (taken := machine_fit.port_problem(config.engine.port)):
        problems.append(Problem(what=taken[0], fix=taken[1]))
    return tuple(sorted(problems, key=lambda p: not p.fatal))


def doctor(config: NightConfig | None) -> Diagnosis:
    """The same checks, and what was found. Without a night file: the machine and the interpreter that set-up chose."""
    if config is not None:
        card, reason = choose_card(config)
        problems = preflight(config, card, None)
        return Diagnosis(
            found=_found(config.engine.python), cards=detect(), card=card, card_reason=reason, problems=problems
        )
    problems = (*_machine(LOGS, GIB), *_git())
    cards = detect()
    try:
        python = str(engine_python())
    except ValueError as error:
        card, reason = pick_card(cards, None, {})
        problems = (Problem(what="engine.python", fix=str(error)), *problems)
        return Diagnosis(found={}, cards=cards, card=card, card_reason=reason, problems=problems)
    card, reason = pick_card(cards, installed(python).build, {})
    problems = (*_interpreter(python, card), *_tenants(card, CardRule()), *problems)
    return Diagnosis(found=_found(python), cards=cards, card=card, card_reason=reason, problems=problems)


def engine_versions(python: str) -> dict[str, str | None]:
    """Of the engine's interpreter: python, vllm, torch, and build (rocm, cuda or cpu). None: absent or unknown."""
    answer = installed(python)
    return {"python": answer.python, "vllm": answer.vllm, "torch": answer.torch, "build": answer.build}


def memory_for_twins(config: NightConfig, card: Card, one_engine_bytes: int | None) -> tuple[bool, str]:
    """Asked while one engine is up: does the card hold a second one beside it? The reason in words and numbers.

    `one_engine_bytes` is that engine's resident memory in host RAM (meant for CPU engines; None: not known).
    """
    free = free_memory(card)
    if free is None:
        return False, "one engine at a time: the card does not say how much of its memory is free"
    model = engine_fit.read_model(Path(config.engine.model))
    need = engine_fit.engine_bytes(config.engine, card, model) if model else 0
    if card.kind == "cpu":
        need = max(need, one_engine_bytes or 0)
        if not engine_fit.explicit_kv(config.engine):
            share = engine_fit.memory_share(config.engine)
            return False, f"one engine at a time: each would take {share:.0%} of the memory (no KV cache size is set)"
    need = int(need * (1 + TWIN_RESERVE))
    words = f"{free / GIB:.1f} GiB are free beside the first engine, and a second wants {need / GIB:.1f}"
    return (True, f"two engines at once: {words}") if 0 < need <= free else (False, f"one engine at a time: {words}")


def _interpreter(python: str, card: Card) -> Iterator[Problem]:
    answer = installed(python)
    fix = "run `make setup`, or set engine.python to an interpreter that has vLLM"
    if answer.problem is not None:
        yield Problem(what=f"engine.python: {python} {answer.problem}", fix=fix)
    elif not answer.has_vllm:
        yield Problem(what=f"engine.python: {python} has no vLLM", fix=fix)
    elif answer.build in MAKER and MAKER[answer.build] != card.kind:
        what = f"the engine's vLLM is a {answer.build} build, and no {MAKER[answer.build].upper()} card is visible here"
        yield Problem(what=what, fix="check the driver and the container's devices, or use a CPU build of vLLM")


def _tenants(card: Card, rule: CardRule) -> Iterator[Problem]:
    """Somebody else on the night's card. It is only said where the night will wait for it."""
    found = in_use(card)
    if found and rule.when_busy == "wait":
        fix = f"the night waits until it is free, at most {rule.wait_minutes:g} minutes (card.wait_minutes)"
        yield Problem(what=found, fix=fix, fatal=False)
    elif found:
        yield Problem(what=found, fix=FIX)


def _model_and_memory(config: NightConfig, card: Card) -> Iterator[Problem]:
    folder = Path(config.engine.model)
    for what, fix in engine_fit.folder_problems(folder, config.engine.flags):
        yield Problem(what=what, fix=fix)
    model = engine_fit.read_model(folder)
    if model is None:
        return
    space = config.engine.env.get("VLLM_CPU_KVCACHE_SPACE", "").strip()
    if card.kind == "cpu" and space and not space.isdigit():
        yield Problem(what=f"VLLM_CPU_KVCACHE_SPACE is {space!r}, and vLLM reads whole GiB", fix='write "1" or more')
        return
    for what, fix in engine_fit.workload_problems(config, card, model):
        yield Problem(what=what, fix=fix)
    need, free = engine_fit.engine_bytes(config.engine, card, model), free_memory(card)
    if free is None:
        return
    sized = card.kind == "cpu" and engine_fit.explicit_kv(config.engine)
    smaller = (
        "lower VLLM_CPU_KVCACHE_SPACE"
        if sized
        else "set VLLM_CPU_KVCACHE_SPACE"
        if card.kind == "cpu"
        else ("lower engine.flags.gpu-memory-utilization")
    )
    if need > free:
        what = f"one engine wants about {need / GIB:.1f} GiB and {free / GIB:.1f} are free on {card.name}"
        yield Problem(what=what, fix=f"end what else is on it, or {smaller}")
    elif config.arms == "twin" and 2 * need > free:
        what = f"arms is twin; two engines want about {2 * need / GIB:.1f} GiB and {free / GIB:.1f} are free"
        yield Problem(what=what, fix=f"set arms to auto or alternate, or {smaller}")


def _machine(folder: Path, least_free: int) -> Iterator[Problem]:
    for what, fix in machine_fit.folder_problems(folder, least_free):
        yield Problem(what=what, fix=fix)
    for found in (machine_fit.busy_problem(), machine_fit.clock_problem()):
        if found is not None:
            yield Problem(what=found[0], fix=found[1], fatal=False)


def _git() -> Iterator[Problem]:
    if found := machine_fit.git_problem():
        yield Problem(what=found[0], fix=found[1])


def _tools(config: NightConfig, card: Card) -> Iterator[Problem]:
    yield from _git()
    headers = installed(config.engine.python).headers
    if found := machine_fit.compiler_problem(card.kind == "cpu", headers, config.engine.env):
        yield Problem(what=found[0], fix=found[1], fatal=False)


def _budget(config: NightConfig, card: Card) -> Iterator[Problem]:
    """The least that a baseline, one experiment and the confirmation can take, against the night's minutes."""
    rule = config.judge
    pairs = rule.aa_launch_pairs + rule.min_launch_pairs + rule.confirm_launch_pairs
    eager = config.engine.flags.get("enforce-eager") is True
    start = START_GPU_S if card.kind != "cpu" else START_EAGER_CPU_S if eager else START_COMPILED_CPU_S
    starts = pairs * (2 if config.arms == "alternate" else 1)  # twins start together
    least = starts * start + pairs * rule.runs_per_launch * 2 * SHORTEST_RUN_S
    least += config.limits.report_reserve_s
    if least > config.minutes * 60:
        what = (
            f"minutes is {config.minutes:g}; a baseline, one experiment and the confirmation are {pairs} launch pairs, "
            f"at the very least {least / 60:.0f} minutes here"
        )
        yield Problem(what=what, fix="raise minutes (or --hours), or lower judge.aa_launch_pairs", fatal=False)


def _found(python: str) -> dict[str, str]:
    found = {name: value for name, value in engine_versions(python).items() if value is not None}
    return {"engine.python": python, **found}
