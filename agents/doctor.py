"""`run_night.py doctor`: what this machine is, what is wrong with it for a night, and what to do about each thing.

Nothing here starts an engine or opens a card, but for --measure, which runs the copy test. A few seconds at most:
asking the interpreter takes a tenth of one, reading a vLLM's libraries for their archs about one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence

from agents import host_fit, preflight
from agents.config import engine_python
from agents.host_fit import Host
from agents.preflight import GIB, LOGS, UNITS, Problem
from agents.tuning.levers.environment import NOT_OURS
from cards.choose import MAKER, choose_card, pick_card
from cards.copy_test import CopyTestError, copy_test
from cards.detect import HERE, detect
from cards.driver import Software, read_software
from cards.findings import card_problems
from cards.installed import Installed, installed
from cards.sheet import sheet_if_any, with_measured
from cards.visible import card_environment, engine_cards
from contracts import Card, Frozen, MeasuredSheet, NightConfig
from engine.ports import FIRST, LAST, free_port

OF_THE_NIGHT = ("engine.model", "gate.")  # problems of the night file, with which no software for a card helps
WORDS_OF_LACK = {"mfma": "matrix cores", "bf16": "bf16 arithmetic", "fp8": "FP8", "mx": "MXFP4"}


class Diagnosis(Frozen):
    """What `run_night.py doctor` prints."""

    found: dict[str, str]
    cards: tuple[Card, ...]
    card: Card  # the night's; the CPU where no other can be it yet
    card_reason: str
    versions: tuple[str, ...] = ()  # what is known of the versions that are here, on the card that is here
    measured: MeasuredSheet | None = None  # by --measure
    problems: tuple[Problem, ...]

    @property
    def fit(self) -> bool:
        return not any(problem.fatal for problem in self.problems)

    def lines(self) -> list[str]:
        """The same for a terminal: what was found, each problem with its fix under it, and the answer last."""
        stops = sum(problem.fatal for problem in self.problems)
        marked = "what is marked PROBLEM" if stops == 1 else f"the {stops} marked PROBLEM"
        stacked = any(p.fatal and not p.what.startswith(OF_THE_NIGHT) for p in self.problems)
        amd = stacked and any(c.kind == "amd" for c in self.cards)
        more = " (docs/cards.md says what to install for it)" if amd else ""
        return [
            *(f"{name}: {value}" for name, value in self.found.items()),
            f"cards: {'; '.join(_card_words(card) for card in self.cards)}",
            f"the night's card: {self.card_reason}",
            *(["known of these versions on this card (sources: configs/versions.yaml):"] if self.versions else []),
            *(f"  {line}" for line in self.versions),
            *(line for p in self.problems for line in _problem_lines(p)),
            "fit for a night" if self.fit else f"not fit for a night: mend {marked}{more}",
        ]


def _card_words(card: Card) -> str:
    where = "".join(f", {name}" for name in (card.place, card.uuid) if name)  # what engine.card may say
    return (
        f"{card.name} ({card.arch}, {card.memory_bytes / GIB:.0f} GiB, {card.compute_units} {UNITS[card.kind]}{where})"
    )


def _problem_lines(problem: Problem) -> tuple[str, str]:
    return f"{'PROBLEM' if problem.fatal else 'warning'}: {problem.what}", f"  fix: {problem.fix}"


def doctor(config: NightConfig | None, host: Host | None = None, measure: bool = False) -> Diagnosis:
    """Without a night file: the machine, and the interpreter that set-up chose. Another `host` is a machine written
    down as a folder; its interpreter, disk and CPU are then still this machine's. Never raises for what it finds."""
    host = host or Host()
    cards, software = detect(host.root), read_software(host.root, host.env)
    problems: list[Problem] = []
    python: str | None = None
    try:
        python = config.engine.python if config else str(engine_python())
    except ValueError as error:
        problems.append(Problem(what="engine.python", fix=str(error)))
    container = config.engine.container if config else None
    answer = installed(python, container) if python else Installed()
    if config is not None and host.root == HERE:
        card, reason = choose_card(config)
    else:
        named = config.engine.card if config else None
        card, reason = pick_card(cards, answer.build, config.engine.env if config else {}, named)
    subject, reason = _subject(cards, card, answer, reason)
    if config is not None and card.kind != "cpu" and (many := engine_cards(config.engine.flags)) > 1:
        reason += f"; of the engine's {many} cards it is the one that is watched"
    if container is None:  # driver and device files first: without them nothing that is installed finds its card
        problems += _of_host(host, software, answer)
    if config is not None:
        later = preflight.preflight(config, card, None, host)
    else:
        later = preflight.without_night(python, subject, host)
    lacks = answer.build == "rocm" and not any(c.kind == "amd" for c in cards)
    problems += not_said_yet(card_problems(host.root, host.root / "dev"), [*problems, *later], fatal=lacks)
    problems += later
    problems += _of_versions(subject, answer, software, host)
    problems += _of_the_shell(config, host)
    problems += _of_ports()
    measured = None
    if measure and python:
        measured, said = _measure(python, card, config)
        problems += said
    return Diagnosis(
        found=_found(python, answer, host, software, cards, subject, config, measured),
        cards=cards,
        card=card,
        card_reason=reason,
        versions=tuple(str(t) for t in host_fit.versions_told(subject.arch, answer, software)),
        measured=measured,
        problems=_sorted(problems),
    )


def _sorted(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Each once, those that stop a night first."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda p: not p.fatal))


def _subject(cards: Sequence[Card], card: Card, answer: Installed, reason: str) -> tuple[Card, str]:
    """The card that the checks are about, and why: the night's, or, where no vLLM is installed yet, the one it would
    be. Without a vLLM nothing is said of what it is built for."""
    others = [c for c in cards if c.kind != "cpu" and (answer.build not in MAKER or MAKER[answer.build] == c.kind)]
    lacks = (
        "the engine's interpreter does not answer"
        if answer.problem
        else "nobody knows what its vLLM is built for"
        if answer.has_vllm
        else "the engine's interpreter has no vLLM"
    )
    if answer.build == "cpu" or (answer.has_vllm and answer.build is not None):
        return card, reason
    if not others:
        return card, f"none yet: {lacks}, and no card but the CPU is seen here"
    first = card if card.kind != "cpu" else others[0]
    return first, f"none yet: {lacks}; it would be {first.name} ({first.arch})"


def _of_host(host: Host, software: Software, answer: Installed) -> Iterator[Problem]:
    """Of a machine that has an AMD or Hygon card, whether the engine's interpreter is ready for it or not. Cards that
    the engine's build does not use are only looked at."""
    if host.wants_amd() and answer.build not in ("cpu", "cuda"):
        yield from (Problem(what=w, fix=f, fatal=fatal) for w, f, fatal in host_fit.amd_problems(host, software))


def not_said_yet(found: Sequence[tuple[str, str]], said: Sequence[Problem], fatal: bool = False) -> Iterator[Problem]:
    """What is wrong with cards, but for cards and device files that a problem in `said` is about already. It stops a
    night (`fatal`) only where the engine needs such a card and none is left: then it is why."""
    told = " ".join(problem.what for problem in said)
    for what, fix in found:
        names = re.findall(r"/dev/[\w/]+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", what)
        if not names or any(name not in told for name in names):
            yield Problem(what=what, fix=fix, fatal=fatal)


def _of_versions(card: Card, answer: Installed, software: Software, host: Host) -> Iterator[Problem]:
    if card.kind == "cpu":
        return
    for what, fix, fatal in host_fit.version_problems(card, answer, software, host.root):
        yield Problem(what=what, fix=fix, fatal=fatal)
    if sheet_if_any(card.arch) is None:
        what = (
            f"there is no sheet of {card.arch} in configs/cards/, so no roofline is drawn and no gain is bounded by one"
        )
        yield Problem(what=what, fix=f"write configs/cards/{card.arch}.yaml, each number with its source", fatal=False)


def _of_the_shell(config: NightConfig | None, host: Host) -> Iterator[Problem]:
    """Recipes say `export VLLM_...`; a night gives its engines what its file says, and nothing such of the shell's."""
    names = [n for n in sorted(host.env) if n.startswith(("VLLM_", "AITER_")) and n not in NOT_OURS]
    left = [n for n in names if config is not None and n not in config.engine.env]
    if left:
        more = f" and {len(left) - 4} more" if len(left) > 4 else ""
        what = f"this shell sets {', '.join(left[:4])}{more}, and engines get them from the night file alone"
        yield Problem(what=what, fix="write what you serve with into engine.env, or unset them", fatal=False)


def _of_ports() -> Iterator[Problem]:
    try:
        free_port()
    except OSError as error:
        yield Problem(what="no engine can listen on 127.0.0.1", fix=str(error))


def _measure(python: str, card: Card, config: NightConfig | None) -> tuple[MeasuredSheet | None, list[Problem]]:
    if config is not None and config.engine.container is not None:
        what, fix = "the copy test does not run in a container yet", "name an interpreter of the host in engine.python"
        return None, [Problem(what=what, fix=fix, fatal=False)]
    try:
        return copy_test(python, card, _with_card(card, config, installed(python).vllm)), []
    except CopyTestError as error:
        what, _, fix = str(error).partition(": ")
        return None, [Problem(what=what, fix=fix or "see docs/cards.md", fatal=False)]


def _with_card(card: Card, config: NightConfig | None, vllm: str | None) -> dict[str, str]:
    """The engine's variables, and those that show it the night's card alone."""
    env, flags = (config.engine.env, config.engine.flags) if config else ({}, {})
    return env | card_environment(card, flags, env, vllm)


def _found(
    python: str | None,
    answer: Installed,
    host: Host,
    software: Software,
    cards: Sequence[Card],
    card: Card,
    config: NightConfig | None,
    measured: MeasuredSheet | None,
) -> dict[str, str]:
    found: dict[str, str] = {"engine.python": python} if python else {}
    if config is not None and (container := config.engine.container) is not None:
        found = {"engine.container": f"{container.image} ({container.runtime})"} | found
    told = {"python": answer.python, "vllm": answer.vllm, "torch": answer.torch, "triton": answer.triton}
    hip = f", HIP {answer.hip}" if answer.hip else f", CUDA {answer.cuda}" if answer.cuda else ""
    told |= {"aiter": answer.aiter, "build": f"{answer.build}{hip}" if answer.build else None}
    found |= {name: value for name, value in told.items() if value is not None}
    if answer.platforms:
        found["platform of vLLM"] = f"a plugin's: {', '.join(f'{n} ({d})' for n, d in answer.platforms.items())}"
    found |= host_fit.host_words(host, software, cards)
    place = next(p for p in (LOGS, *LOGS.parents) if p.exists())
    found["disk"] = f"{shutil.disk_usage(place).free / GIB:.0f} GiB free for nights ({place})"
    found["ports"] = f"{FIRST} to {LAST} on 127.0.0.1, a free one for each engine"
    found |= _sheet_words(card, measured)
    if config is not None and (card.kind != "cpu" or answer.build == "cpu"):
        found["two engines at once"] = preflight.foresee_twins(config, card)[1]
    return found


def _sheet_words(card: Card, measured: MeasuredSheet | None) -> dict[str, str]:
    found: dict[str, str] = {}
    sheet = sheet_if_any(card.arch)
    if sheet is not None:
        peaks = ", ".join(f"{name} {peak.value:g}" for name, peak in sheet.tflops.items())
        lacks = ", ".join(words for word, words in WORDS_OF_LACK.items() if word in sheet.absent)
        found[f"sheet of {sheet.arch}"] = (
            f"{sheet.bandwidth_gb_s.value:g} GB/s; TFLOPS: {peaks}{f'; no {lacks}' if lacks else ''} "
            f"(published, of {sheet.name}; --measure measures yours)"
        )
    if measured is not None:
        share = f", {measured.copy_gb_s.value / sheet.bandwidth_gb_s.value:.0%} of the sheet's" if sheet else ""
        odd = sheet is not None and with_measured(sheet, measured)[1] is None
        unsure = "; no card of this arch can have that figure, so it would replace nothing" if odd else ""
        products = ", ".join(f"{name} {rate.value:.3g}" for name, rate in measured.matmul_tflops.items())
        found["measured"] = (
            f"{measured.copy_gb_s.value:.0f} GB/s copied{share}{unsure}; TFLOPS by torch: {products or 'none'}"
        )
    return found
