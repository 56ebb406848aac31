"""What a night file must keep beyond its keys' types: names that the levers can compare, changes that change something.

Pure: a NightConfig in, (key path, what is wrong and what to write) out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import JsonValue

from accuracy_gate.gsm8k import STYLES
from agents.config_words import nearest
from agents.research.knobs import Knobs
from agents.strict_yaml import KeyPath
from agents.tuning.levers import LEVERS
from agents.tuning.levers.in_overlay import SECTIONS, container_fault
from cards.choose import spelled_card
from cards.visible import CUDA, HIP, ROCR, engine_cards
from contracts import EngineSettings, Lever, NightConfig, TryItem, Workload
from engine.container import asked_mount
from engine.metrics import LATENCIES, metric_names
from judge.void import samples_for

Problem = tuple[KeyPath, str]

# Set by the launch itself, because identity depends on them; or written elsewhere in the night file.
TAKEN_FLAGS = {
    "model": "is engine.model's",
    "compilation-config": "is engine.compilation's",
    "port": "is engine.port's",
    "host": "is set by nightgate, which binds to loopback",
    "uds": "is set by nightgate, which binds to loopback",
    "served-model-name": "is set by nightgate, which puts its nonce there",
    "api-key": "would lock nightgate out of the engine",
    "config": "would hide flags from the night; write them here",
}
TAKEN_ENV = {"PYTHONPATH": "is set by nightgate; name folders in engine.plugin_paths"}
# Of engine.container.extra: what finding, watching and ending the engine rests on.
TAKEN_OPTIONS = {
    **dict.fromkeys(("--name", "--cidfile"), "names the container, and each launch gives its own"),
    **dict.fromkeys(("-d", "--detach"), "would cut the engine's log off"),
    **dict.fromkeys(("-t", "--tty", "-it", "-ti", "-i", "--interactive"), "is for a person at a terminal"),
    **dict.fromkeys(("--network", "--net"), "is set by nightgate, which asks the engine on loopback"),
    **dict.fromkeys(("-w", "--workdir"), "is set by nightgate to the launch's own folder"),
    "--entrypoint": "is engine.container.python's",
    "--restart": "would start engines that nobody asked for",
    "--pull": "is set by nightgate, which never fetches an image",
    "--gpus": "is engine.container.devices' (auto gives the night's card)",
}
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_MINUTES = 31 * 24 * 60  # beyond a month somebody meant seconds, or infinity
MOST_PROMPTS = 512  # the generator's shortest prompts run out somewhere above a thousand
DRIFT_CONTEXT = 512  # tokens: a text of the drift check and what is decoded after it
NIGHT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def broken_rules(config: NightConfig) -> list[Problem]:
    return [
        *_nul(config.model_dump(mode="json")),
        *_night(config),
        *_engine(config.engine),
        *(problem for i, item in enumerate(config.try_first) for problem in broken_item(i, item, config.engine)),
    ]


def _nul(value: JsonValue, path: KeyPath = ()) -> Iterator[Problem]:
    """No path, flag, image or name can hold a NUL character; engine.env has words of its own for it."""
    if isinstance(value, str) and "\0" in value and path[:2] != ("engine", "env"):
        yield path, "holds a NUL character, which can be given to no program and no file"
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _nul(one, (*path, key))


def _night(config: NightConfig) -> Iterator[Problem]:
    if not NIGHT_NAME.fullmatch(config.name):
        yield ("name",), "must be 1 to 64 letters, digits, dots, dashes or underscores: it names the night's folder"
    rule, limits = config.judge, config.limits
    if rule.max_launch_pairs < rule.min_launch_pairs:
        words = f"must be at least judge.min_launch_pairs ({rule.min_launch_pairs}), got {rule.max_launch_pairs}"
        yield ("judge", "max_launch_pairs"), words
    sums = config.gate.gsm8k
    if sums is not None and sums.style not in STYLES:
        yield ("gate", "gsm8k", "style"), f"must be one of {', '.join(STYLES)}, got {sums.style}"
    gate = config.gate
    if gate.prompts > MOST_PROMPTS:
        yield ("gate", "prompts"), f"must be at most {MOST_PROMPTS}, got {gate.prompts}"
    if 0 < gate.drift_texts < 4:
        yield ("gate", "drift_texts"), f"must be 0 or at least 4 (fewer texts show no spread), got {gate.drift_texts}"
    context = config.engine.flags.get("max-model-len")
    if gate.drift_texts and isinstance(context, int) and context < DRIFT_CONTEXT:
        words = f"needs engine.flags.max-model-len of at least {DRIFT_CONTEXT} (it is {context}); raise it, or set 0"
        yield ("gate", "drift_texts"), words
    yield from _metrics(config.workload)
    if not config.minutes <= MOST_MINUTES:
        yield ("minutes",), f"must be at most {MOST_MINUTES} (31 days), got {config.minutes:g}"
    reserved = limits.report_reserve_s + limits.confirm_reserve_s
    if reserved >= config.minutes * 60:
        words = f"is {config.minutes:g}, all of it reserved ({reserved:g} s) for confirmation and report; give more"
        yield ("minutes",), words


def _metrics(workload: Workload) -> Iterator[Problem]:
    """A metric that no run measures would be found out after the baseline, and a limit on one by no verdict at all."""
    known, objective = metric_names(workload), workload.objective
    for key, metric in [
        (("metric",), objective.metric),
        *((("limits", i, "metric"), x.metric) for i, x in enumerate(objective.limits)),
    ]:
        if metric not in known:
            near = nearest(metric, list(known))
            meant = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            yield ("workload", "objective", *key), f"is {metric}, which no run of this workload measures; {meant}"
        elif (least := samples_for(metric)) > workload.requests:
            words = f"{metric} needs at least {least} requests a run, workload.requests is {workload.requests}"
            yield ("workload", "objective", *key), words
    for i, limit in enumerate(objective.limits):
        place = ("workload", "objective", "limits", i)
        if limit.metric in known and limit.metric not in LATENCIES:
            yield (
                (*place, "metric"),
                f"{limit.metric} is better higher, and a limit is the most allowed; limit a latency",
            )
        if limit.at_most is not None and limit.at_most <= 0:
            yield (*place, "at_most"), f"must be above 0, got {limit.at_most:g}"


def _card(engine: EngineSettings) -> Iterator[Problem]:
    if engine.card is None:
        return
    key = ("engine", "card")
    if wrong := spelled_card(engine.card):
        yield key, wrong
    elif (many := engine_cards(engine.flags)) > 1:
        yield key, f"names one card, and engine.flags give each engine {many}; remove it, and hide others in engine.env"
    for name in (ROCR, HIP, CUDA):
        if name in engine.env:
            yield key, f"and engine.env.{name} both choose a card; keep one of them"


def _engine(engine: EngineSettings) -> Iterator[Problem]:
    yield from _card(engine)
    for flag, value in engine.flags.items():
        wrong = flag_problem(flag)
        if wrong:
            yield ("engine", "flags", flag), wrong
        elif value is None:
            yield ("engine", "flags", flag), "has no value; remove the key to leave the engine's default"
    for name, text in engine.env.items():
        wrong = env_problem(name)
        if wrong:
            yield ("engine", "env", name), wrong
        elif "\0" in text:
            yield ("engine", "env", name), "holds a NUL character, which no environment can carry"
    for name, value in engine.compilation.items():
        if value is None:
            yield ("engine", "compilation", name), "has no value; remove the key to leave the engine's default"
    for lever, section in engine.overlay.items():
        if section and (wrong := container_fault(lever, engine.container)):
            yield ("engine", "overlay", lever.value), f"cannot be used: {wrong}"
        for name, value in section.items():
            if wrong := overlay_problem(lever, name, value):
                yield ("engine", "overlay", lever.value, name), wrong
    yield from _container(engine)


def _container(engine: EngineSettings) -> Iterator[Problem]:
    container, key = engine.container, ("engine", "container")
    if container is None:
        return
    if engine.python not in ("auto", container.python):
        yield ("engine", "python"), "is the container's own: write engine.container.python, and leave this out"
    if container.image.startswith("-") or container.image.split() != [container.image]:
        yield (*key, "image"), f"is no image's name: {container.image}"
    for i, text in enumerate(container.mounts):
        try:
            asked_mount(text)
        except ValueError as error:
            yield (*key, "mounts", i), str(error)
    if not container.python.strip() or container.python.startswith("-"):
        yield (*key, "python"), "is no interpreter; write its path inside the image, or its name there (python3)"
    for name, values in (("devices", container.devices), ("groups", container.groups)):
        for i, value in enumerate(values):
            if not value.strip() or value.startswith("-"):
                yield (*key, name, i), f"is no value of --{'device' if name == 'devices' else 'group-add'}: {value!r}"
    for i, option in enumerate(container.extra):
        short = re.fullmatch(r"-[ditPq]{2,}", option)  # "-tid": several of one letter in one word
        names = (
            [f"-{letter}" for letter in option[1:]] if short and option not in TAKEN_OPTIONS else [option.split("=")[0]]
        )
        wrong = next((f"{name} {TAKEN_OPTIONS[name]}" for name in names if name in TAKEN_OPTIONS), None)
        if wrong is not None:
            yield (*key, "extra", i), wrong
        elif not option.startswith("-") or option in ("-", "--"):  # the first such word would be taken for the image
            yield (
                (*key, "extra", i),
                f"is no option: {option!r}; write an option and its value as one: --ulimit=memlock=-1",
            )


def broken_item(i: int, item: TryItem, engine: EngineSettings) -> Iterator[Problem]:
    """Of entry `i` of try_first."""
    key: KeyPath = ("try_first", i, "key")
    now: JsonValue
    if item.lever is Lever.ENGINE_FLAG:
        wrong, now = flag_problem(item.key), engine.flags.get(item.key)
    elif item.lever is Lever.ENVIRONMENT:
        wrong, now = env_problem(item.key), engine.env.get(item.key)
        if item.after is not None and not isinstance(item.after, str):
            yield ("try_first", i, "after"), 'must be text, as environment values are; put it in quotes, e.g. "1"'
    elif item.lever in SECTIONS:
        now = engine.overlay.get(item.lever, {}).get(item.key)
        wrong = overlay_problem(item.lever, item.key, item.after) if item.after is not None else None
        wrong = wrong or container_fault(item.lever, engine.container)
    else:
        wrong = None if item.key else "is empty; name a key of vLLM's compilation config"
        now = engine.compilation.get(item.key)
    if wrong:
        yield key, wrong
    elif item.after == now and type(item.after) is type(now):
        shown = "not set" if now is None else "that already" if item.lever in SECTIONS else f"{now} already"
        yield ("try_first", i, "after"), f"changes nothing: {item.key} is {shown}"
    if item.probe is not None:
        try:
            re.compile(item.probe.pattern.replace("{after}", "0"))
        except re.error as error:
            yield ("try_first", i, "probe", "pattern"), f"is no regular expression: {error}"
        if not item.probe.pattern and item.probe.kind in ("log_line", "counter", "kernel"):
            kind = item.probe.kind
            yield ("try_first", i, "probe", "pattern"), f"is empty; a {kind} probe needs a regular expression"


def flag_problem(flag: str) -> str | None:
    """Flags are compared by name, so each has one spelling: long, lower case, dashes. None: it is spelled so."""
    head, dot, rest = flag.partition(".")  # vLLM takes --kernel-config.moe_backend; below the dot its spelling counts
    plain = head.lstrip("-").replace("_", "-")
    if flag.startswith("-") or "_" in head:
        return f"is written without leading dashes and with - for _: {plain}{dot}{rest}"
    if plain in TAKEN_FLAGS:
        return TAKEN_FLAGS[plain]
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]+", head):
        return "is no long flag name; write for example max-num-seqs"
    if head.startswith("no-"):
        return f"is written {head.removeprefix('no-')}: false"
    return None


def overlay_problem(lever: Lever, key: str, value: JsonValue) -> str | None:
    """What can be said of a table's row or of a patch without the installed files."""
    actions = LEVERS.get(lever)
    if actions is None or actions.place is None:
        held = ", ".join(name for name in SECTIONS if name in LEVERS)
        return f"cannot be laid over installed files by {lever}; levers that can: {held}"
    if value is None:
        return "has no value; remove the key to leave what is installed"
    if actions.normalise(key) != key:
        return f"is written {actions.normalise(key)}"
    wrong = actions.validate(key, value, Knobs(version="", path=""))
    return f"cannot be used: {wrong}" if wrong else None


def env_problem(name: str) -> str | None:
    if name in TAKEN_ENV:
        return TAKEN_ENV[name]
    return None if ENV_NAME.fullmatch(name) else "is no environment variable's name: letters, digits, underscores"
