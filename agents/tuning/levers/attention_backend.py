"""Rules of the attention back end, which can be changed three ways:

- the flag `--attention-backend NAME`: one for all layers, an invalid one ends the start;
- the order of priorities, NIGHTGATE_ATTENTION_PRIORITY="NAME,NAME": each layer takes the first that is valid for it.
  Upstream has no setting for it; our plugin nightgate_attention puts these names first in the platform's own function;
- a class of one's own, NIGHTGATE_ATTENTION_CLASS="NAME=package.module:Class": the plugin registers it for a name of the
  registry (vLLM's register_backend).

What the installed version's source says is looked up before an engine is started. What it leaves open (the three-valued
answers of attention_backends.py) refuses nothing: path evidence decides. On a CPU the platform takes its own back end
whatever the flag says, and that too is left to path evidence, which shows it.

After a team's decision record of 2026-06, which compares these three levels. Nothing here was run on an AMD card.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from agents.research.attention_backends import ENUM, PLATFORMS, BackendsError, registered, registry, tree_of
from agents.research.attention_order import ORDER, named_in, order_line
from agents.research.backend_choice import Choice, backend_choice, first_valid
from agents.research.dossier import Dossier
from agents.research.knobs import near
from agents.research.source_line import cited, line_of
from agents.tuning.levers import LEVERS
from contracts import Change, EngineSpec, Lever
from engine.own_plugins import CLASS, PRIORITY, classes_of, priority_of

FLAG = "attention-backend"
KEYS = frozenset({(Lever.ENGINE_FLAG, FLAG), (Lever.ENVIRONMENT, PRIORITY), (Lever.ENVIRONMENT, CLASS)})


def problem(change: Change, spec: EngineSpec, subject: Dossier) -> str | None:
    """Why this change of the attention back end is not worth an engine start, in one line, or None. `spec` is the
    engine without the change; `subject` is what is known without a start: card, source tree, model."""
    package = Path(subject.knobs.path)
    if subject.knobs.platforms and subject.card.kind != "cpu":
        return None  # a platform plugin names, orders and refuses its own: path evidence shows what it took
    try:
        names = {entry.name for entry in registered(package)}
    except BackendsError:
        return None  # no tree to look at
    rule = {FLAG: _flag, PRIORITY: _order, CLASS: _class}[change.key]
    return rule(change, spec, subject, names)


# --- by flag ---


def _flag(change: Change, spec: EngineSpec, subject: Dossier, names: set[str]) -> str | None:
    asked = change.after
    config = spec.flags.get("attention-config")
    if asked is not None and isinstance(config, dict) and config.get("backend") is not None:
        where = line_of(subject.knobs.path, "engine/arg_utils.py", "attention_backend and attention_config.backend")
        return f"attention-config sets a backend already, another spelling of the same{cited(where)}"
    if isinstance(asked, str) and asked.lower() != "auto":
        unknown = _unknown([asked], names, subject)
        if unknown:
            return unknown
    if subject.card.kind == "cpu":
        return None
    return _useful(change, spec, subject)


def _useful(change: Change, spec: EngineSpec, subject: Dossier) -> str | None:
    try:
        now = backend_choice(subject.model_copy(update={"spec": spec}))
        changed = LEVERS[change.lever].write(spec, change.key, change.after)
        then = backend_choice(after := subject.model_copy(update={"spec": changed}))
    except BackendsError:
        return None
    name = then.asked
    if name is not None:
        option = then.option(after, name)
        if option is None:
            return f"{name} has no class of its own: {CLASS} registers one"
        lacking = [size for size in then.sizes if option.reading.head_sizes.get(size) is False]
        why = option.hindrance or (f"it takes no heads of {', '.join(map(str, lacking))}" if lacking else "")
        if why:
            return f"{name} cannot serve every layer: {why}{cited(option.reading.file)}; vLLM would end the start"
    before, new = _taken(now, subject, spec), _taken(then, subject, changed)
    if None not in new.values() and before == new:
        return f"vLLM takes {_each(new)} without it too{cited(_decides(now))}"
    return None


def _taken(choice: Choice, subject: Dossier, spec: EngineSpec) -> dict[int, str | None]:
    """By head size."""
    if choice.current is not None:
        return dict.fromkeys(choice.sizes, choice.current)
    if choice.by_model is not None:  # a condition of the model's class is not known
        return dict.fromkeys(choice.sizes)
    options = choice.options(subject.model_copy(update={"spec": spec}))
    return {size: first_valid(choice.tried, options, size) for size in choice.sizes}


def _each(taken: dict[int, str | None]) -> str:
    names = set(taken.values())
    if len(names) == 1:
        return str(names.pop())
    return ", ".join(f"{name} for heads of {size}" for size, name in taken.items())


def _decides(choice: Choice) -> str:
    if choice.by_model is not None and choice.by_model.holds:
        return choice.by_model.where
    return order_line(choice.package, choice.platform)


# --- by the order of priorities ---


def _order(change: Change, spec: EngineSpec, subject: Dossier, names: set[str]) -> str | None:
    package, platform = Path(subject.knobs.path), PLATFORMS[subject.card.kind]
    if change.after is not None:
        text = str(change.after)
        wanted = priority_of(text)
        plain = ",".join(dict.fromkeys(name.upper() for name in wanted))
        if not wanted:
            return f"{PRIORITY} takes names with commas between, for example TRITON_ATTN,ROCM_ATTN"
        if plain != text:
            return f"write {PRIORITY} as {plain}, or one order would be two changes"
        unknown = _unknown(wanted, names, subject)
        if unknown:
            return unknown
    if subject.card.kind == "cpu":
        where = named_in(package, platform, "get_attn_backend_cls")[1]
        return f"a CPU build has no order of priorities, its platform takes its own back end{cited(where)}"
    if not order_line(package, platform):
        return f"{subject.knobs.named} has no {ORDER} in vllm/{platform}: the plugin would refuse to start"
    try:
        now = backend_choice(subject.model_copy(update={"spec": spec}))
    except BackendsError:
        return None
    if now.current is not None:
        who = "a flag" if now.asked else f"the model's class in vLLM{cited(now.by_model.where if now.by_model else '')}"
        return f"{who} sets {now.current} for all layers, so no order is asked"
    return _useful_order(change, spec, subject, now)


def _useful_order(change: Change, spec: EngineSpec, subject: Dossier, now: Choice) -> str | None:
    changed = LEVERS[change.lever].write(spec, change.key, change.after)
    after = subject.model_copy(update={"spec": changed})
    for name in priority_of(str(change.after or "")):
        option = now.option(after, name)
        if option is None:
            return f"{name} has no class of its own: {CLASS} registers one"
        if (".mla." in option.backend.path) != bool(now.facts["use_mla"]) and option.reading.file:
            kind = "another" if now.facts["use_mla"] else "latent"
            return f"{name} can serve no layer here: it is made for {kind} attention{cited(option.backend.where)}"
        none = "" if option.heads else f"it takes no heads of {', '.join(map(str, now.sizes))}"
        if option.hindrance or none:
            return f"{name} can serve no layer here: {option.hindrance or none}{cited(option.reading.file)}"
    before = _taken(now, subject, spec)
    new = _taken(backend_choice(after), subject, changed)
    if None not in before.values() and before == new:
        return f"vLLM takes {_each(new)} without it too{cited(_decides(now))}"
    return None


# --- by a registered class ---


def _class(change: Change, spec: EngineSpec, subject: Dossier, names: set[str]) -> str | None:
    package = Path(subject.knobs.path)
    if change.after is None:
        return None
    text = str(change.after)
    wanted = classes_of(text)
    if not wanted or ",".join(_spelled(n, p) for n, p in wanted.items()) != text:
        return f"{CLASS} takes NAME=package.module:Class, for example TRITON_ATTN=own_attention:Backend; not {text!r}"
    unknown = _unknown(wanted, names, subject)
    if unknown:
        return unknown
    for path in wanted.values():
        missing = _no_class(path, spec, package)
        if missing:
            return missing
    return _never_asked(wanted, spec, subject)


def _spelled(name: str, path: str) -> str:
    module, _, own = path.rpartition(".")
    return f"{name}={module}:{own}"


def _no_class(path: str, spec: EngineSpec, package: Path) -> str | None:
    """Looked for where the engine's interpreter would find it: its plugin folders, then beside vLLM itself."""
    module, _, own = path.rpartition(".")
    inside = module.replace(".", "/")
    places = [*map(Path, spec.plugin_paths), package.parent]
    files = [place / end for place in places for end in (f"{inside}.py", f"{inside}/__init__.py")]
    tree = next((tree for file in files if (tree := tree_of(str(file))) is not None), None)
    if tree is None:
        where = "in the engine's plugin folders or beside its vLLM"
        return f"no file of module {module} {where}: add its folder to engine.plugin_paths"
    held = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    if own in held:
        return None
    meant = near(own, held)
    return f"module {module} has no class {own}" + (f"; did you mean {meant}?" if meant else "")


def _never_asked(wanted: Iterable[str], spec: EngineSpec, subject: Dossier) -> str | None:
    """A class under a name that the engine does not take is never loaded."""
    package = Path(subject.knobs.path)
    if subject.card.kind == "cpu":
        takes, where = named_in(package, PLATFORMS["cpu"], "get_attn_backend_cls")
        idle = [name for name in wanted if takes and name not in takes]
        return (
            f"a CPU build never asks for {', '.join(idle)}, only for {', '.join(takes)}{cited(where)}" if idle else None
        )
    try:
        now = backend_choice(subject.model_copy(update={"spec": spec}))
    except BackendsError:
        return None
    taken = _taken(now, subject, spec)
    if None in taken.values() or any(name in taken.values() for name in wanted):
        return None
    return (
        f"the layers take {_each(taken)}{cited(_decides(now))}, so a class for {', '.join(wanted)} is never loaded: "
        f"change {FLAG} or {PRIORITY} first"
    )


# --- what all three need ---


def _unknown(wanted: Iterable[str], names: set[str], subject: Dossier) -> str | None:
    for name in wanted:
        if name.upper() in names:
            continue
        meant = near(name, names)
        where = line_of(subject.knobs.path, registry(Path(subject.knobs.path)), f"class {ENUM}")
        hint = f"; did you mean {meant}?" if meant else ""
        return f"{subject.knobs.named} has no attention back end {name}{cited(where)}{hint}"
    return None
