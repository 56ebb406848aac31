"""Is this machine, engine and night file fit for a night? Every answer that is no names its fix.

Nothing here starts an engine, opens a card or changes a file; the slowest look takes half a second.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from accuracy_gate import gsm8k
from agents import container_fit, engine_fit, machine_fit
from agents.card_guard import FIX, in_use
from agents.config import ROOT
from agents.host_fit import Host, amd_problems, limit_problems, time_problems
from cards.access import container as kind_of_container
from cards.choose import MAKER, choose_card
from cards.detect import detect, free_memory
from cards.driver import read_software
from cards.installed import installed
from cards.visible import exported_words
from contracts import Card, CardRule, Container, Frozen, NightConfig, SumsRule

GIB = 1 << 30
LOGS = ROOT / "logs"
# Seconds from an engine's start to its readiness, on the low side: SmolLM2-135M with vLLM 0.32 on 2 cores took 19 to
# 22 s eager and 63 s compiled with a warm cache, an 8B shape with vLLM 0.26 on one H200 75 s warm (2026-11-29).
START_EAGER_CPU_S, START_COMPILED_CPU_S, START_GPU_S = 20.0, 60.0, 75.0
SHORTEST_RUN_S = 5.0  # a guess: the budget warning is a lower bound, and says so
# How far above the arithmetic the free memory must be before two engines share it: pages that the first has not
# touched yet, and what the machine itself wants.
TWIN_RESERVE = 0.10
TWIN_SHARE = 0.45  # of the card: twice that leaves a tenth
UNITS = {"amd": "CUs", "nvidia": "SMs", "cpu": "cores"}


class Problem(Frozen):
    what: str
    fix: str
    fatal: bool = True  # false: the night can run, and this is worth knowing

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"


def preflight(config: NightConfig, card: Card, night_dir: Path | None, host: Host | None = None) -> tuple[Problem, ...]:
    """All that is wrong, fatal problems first. `night_dir` need not exist yet; None: this checkout's logs/. `host`
    None: this machine."""
    host = host or Host()
    problems = [
        *_interpreter(config.engine.python, card, host, config.engine.container),
        *_chosen(config, card),
        *_host(config, card, host),
        *_tenants(card, config.card, host),
        *_model_and_memory(config, card),
        *_machine(night_dir or LOGS, config.limits.disk_free_bytes),
        *_tools(config, card),
        *_questions(config.gate.gsm8k),
        *_budget(config, card),
        *_process(host, card, config),
    ]
    if config.engine.port is not None and (taken := machine_fit.port_problem(config.engine.port)):
        problems.append(Problem(what=taken[0], fix=taken[1]))
    return tuple(sorted(problems, key=lambda p: not p.fatal))


def without_night(python: str | None, card: Card, host: Host | None = None) -> tuple[Problem, ...]:
    """What can be said before there is a night file. `python` None: set-up has chosen no interpreter."""
    host = host or Host()
    problems = [*_interpreter(python, card, host)] if python else []
    return (*problems, *_tenants(card, CardRule(), host), *_machine(LOGS, GIB), *_git(), *_process(host, card, None))


def engine_versions(python: str, container: Container | None = None) -> dict[str, str | None]:
    """Of the engine's interpreter: python, vllm, torch, and build (rocm, cuda or cpu). None: absent or unknown."""
    answer = installed(python, container)
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


def foresee_twins(config: NightConfig, card: Card) -> tuple[bool, str]:
    """Before any engine is up: will the card hold two of them? An estimate; memory_for_twins decides once one is up."""
    free, model = free_memory(card), engine_fit.read_model(Path(config.engine.model))
    if free is None or model is None:
        return False, "no telling: " + ("the card does not say what is free" if free is None else "no model was read")
    need = engine_fit.engine_bytes(config.engine, card, model)
    words = f"each wants about {need / GIB:.1f} GiB, and {free / GIB:.1f} are free on {card.name}"
    if need + int(need * (1 + TWIN_RESERVE)) <= free:
        return True, f"yes: {words}"
    wanted = (
        "set VLLM_CPU_KVCACHE_SPACE"
        if card.kind == "cpu"
        else f"set engine.flags.gpu-memory-utilization to {TWIN_SHARE:g} or less, where the model fits in that"
    )
    return False, f"no, one after the other: {words}; for two, {wanted}"


def _interpreter(python: str, card: Card, host: Host, container: Container | None = None) -> Iterator[Problem]:
    if container is not None and (found := container_fit.problem(container, kind_of_container(host.root))):
        yield Problem(what=found[0], fix=found[1])
        return
    answer = installed(python, container)
    fix = "run `make setup`, or set engine.python to an interpreter that has vLLM"
    if container is not None:
        python, fix = f"{python} in {container.image}", "correct engine.container.image or engine.container.python"
    elif card.kind == "amd" or (host.wants_amd() and answer.build not in ("cpu", "cuda")):
        which = card.arch if card.kind == "amd" else "your card"
        fix = f"install a vLLM for {which} (docs/cards.md) and name its interpreter in NIGHTGATE_ENGINE_PYTHON; "
        fix += "`make setup` brings one for the CPU only"
    if answer.problem is not None:
        yield Problem(what=f"engine.python: {python} {answer.problem}", fix=fix)
    elif not answer.has_vllm:
        yield Problem(what=f"engine.python: {python} has no vLLM", fix=fix)
    elif answer.build in MAKER and MAKER[answer.build] != card.kind:
        what = f"the engine's vLLM is a {answer.build} build, and no {MAKER[answer.build].upper()} card is visible here"
        fix = "mend what else `run_night.py doctor` says of driver, cards and device files, or use a CPU build of vLLM"
        yield Problem(what=what, fix=fix)


def _tenants(card: Card, rule: CardRule, host: Host) -> Iterator[Problem]:
    """Somebody else on the night's card. It is only said where the night will wait for it."""
    found = in_use(card, root=host.root)
    if found and rule.when_busy == "wait":
        fix = f"the night waits until it is free, at most {rule.wait_minutes:g} minutes (card.wait_minutes)"
        yield Problem(what=found, fix=fix, fatal=False)
    elif found:
        yield Problem(what=found, fix=FIX)


def _host(config: NightConfig, card: Card, host: Host) -> Iterator[Problem]:
    """Driver and device files, where the engine needs an AMD card: also when none of them is seen. A container's engine
    gets the device files from its runtime, whoever the user is."""
    if config.engine.container is not None:
        return
    if card.kind == "amd" or (installed(config.engine.python).build == "rocm" and host.wants_amd()):
        for what, fix, fatal in amd_problems(host, read_software(host.root, host.env)):
            yield Problem(what=what, fix=fix, fatal=fatal)


def _process(host: Host, card: Card, config: NightConfig | None) -> Iterator[Problem]:
    """Limits of this process, and what would end it early."""
    for what, fix, fatal in (*limit_problems(host, card, config), *time_problems(host, config)):
        yield Problem(what=what, fix=fix, fatal=fatal)


def _chosen(config: NightConfig, card: Card) -> Iterator[Problem]:
    """The card that the night file names, and how the engine is given it."""
    named, build = config.engine.card, installed(config.engine.python, config.engine.container).build
    maker = MAKER.get(build) if build else None
    if card.kind == "cpu" and (named is not None or any(c.kind == maker for c in detect())):
        what = f"engine.card is {named}: " if named is not None else ""
        fix = "name one of this machine's cards that the engine can serve on, or none, in engine.card and engine.env"
        yield Problem(what=f"{what}{choose_card(config)[1]}", fix=fix)
    elif weak := exported_words(card):
        yield Problem(what=weak, fix="look at the card's address in the report after a reboot", fatal=False)
    if config.card.copy_test and config.engine.container is not None:
        what = "card.copy_test does not run in a container yet"
        yield Problem(what=what, fix="leave it out: the sheet's bandwidth stands", fatal=False)


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
    unasked = card.kind == "cpu" and installed(config.engine.python, config.engine.container).problem is not None
    if free is None or unasked:  # an interpreter that does not answer may be any card's
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
    if config.engine.container is not None:
        return  # compilers are the image's, and so are headers
    headers = installed(config.engine.python).headers
    if found := machine_fit.compiler_problem(card.kind == "cpu", headers, config.engine.env):
        yield Problem(what=found[0], fix=found[1], fatal=False)


def _questions(rule: SumsRule | None) -> Iterator[Problem]:
    """Sums that the night would ask for and not find. A data set is not fetched here, only its library looked for."""
    if rule is None:
        return
    kind = gsm8k.kind_of(rule.questions)
    if kind == "datasets" and importlib.util.find_spec("datasets") is None:
        yield Problem(
            what=f"gate.gsm8k.questions: {rule.questions} needs the library datasets, which nightgate's Python has not",
            fix=f"{sys.executable} -m pip install datasets (and go online once for the set), or name a JSONL",
        )
    if kind == "file":
        try:
            gsm8k.read(rule.questions, rule.count)
        except (OSError, ValueError) as error:
            yield Problem(what=f"gate.gsm8k.questions cannot be used: {error}", fix="correct the path or the file")


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
