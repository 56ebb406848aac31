"""Which attention back end does this vLLM take on this card, which others could serve the model's layers, and how deep
a change would each need?

Three levels: a flag (--attention-backend NAME, all layers, an invalid choice ends the start), the order of priorities
(each layer takes the first that is valid for it; upstream has no setting for it, our plugin nightgate_attention has),
and a class of one's own that a plugin registers. Where a flag or the model's own class in vLLM sets a back end, the
priorities are not asked, and another order does nothing.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from agents.research.attention_backends import ENUM, MOST_BYTES, PLATFORM, BackendsError
from agents.research.attention_order import CHOOSER, ORDER, Tried, order_line
from agents.research.backend_choice import Option, backend_choice, first_valid
from agents.research.dossier import Dossier, holds
from agents.research.finding import Finding, Terms, plural
from agents.research.gates.ask import answer_of
from agents.research.model_backends import VARIABLE, Chosen
from agents.research.regular_file import read_regular
from agents.research.shares import share
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Lever
from engine.own_plugins import PRIORITY, priority_of

NAME = "attention_backends"
FOR_NIGHTS = True
KEY = "attention-backend"

# No comparison of these back ends on an AMD card is at hand. Judged, and low: the platform's order was chosen by people
# who measured, for shapes that are not this model's.
SPEEDUP = 1.15
PROBABILITY_AITER = 0.3  # vendor kernels for just these cards
PROBABILITY_OTHER = 0.15
# A public vLLM fork for gfx906 (ai-infos/vllm-gfx906-mobydick, 2026-06) puts TRITON_ATTN first there.
WITHOUT_MATRIX, PROBABILITY_WITHOUT_MATRIX = "TRITON_ATTN", 0.35
PROBABILITY_AGAINST_NAME = 0.1  # somebody who works on this very card has put another one first
UNKNOWN_SHARE = 0.15  # of attention, where neither a profile nor the roofline says it


def look(dossier: Dossier) -> list[Finding]:
    model = dossier.model
    if dossier.card.kind != "amd" or model is None or not model.attention:
        return []
    try:
        choice = backend_choice(dossier)
    except BackendsError as error:
        said = Evidence(source="vllm", detail=str(error))
        title = f"The attention back ends of {dossier.knobs.named} could not be read: {error}"
        return [Finding(reader=NAME, kind="fact", title=title, evidence=(said,))]
    package, sizes, tried, by_model = choice.package, choice.sizes, list(choice.tried), choice.by_model
    options = choice.options(dossier)
    held = LEVERS[Lever.ENGINE_FLAG].read(dossier.spec, KEY)
    ordered = bool(order_line(package, choice.platform))
    asked, current = choice.asked, choice.current
    first = {size: first_valid(tried, options, size) for size in sizes}
    found = [
        _order(dossier, tried, options, first, by_model) if current is None else _set(dossier, current, by_model),
        *_impossible(dossier, options),
    ]
    if asked:
        found += _set_wrongly(dossier, asked, options, sizes)
    for option in options.values():
        name = option.backend.name
        # The priority is asked only where nothing is set; and what is first of it already is no proposal.
        reached = option.heads == sizes if current else any(first[size] != name for size in option.heads)
        if option.hindrance or not option.heads or name == current or not reached:
            continue
        if not ordered and option.heads != sizes:
            continue  # there is no order that gives each layer one of its own
        found.append(_opportunity(dossier, package, option, sizes, held, tried[0] if tried else None))
    return found


def _set(dossier: Dossier, current: str, by_model: Chosen | None) -> Finding:
    """All layers have this one: the order of priorities is not asked."""
    vllm = dossier.knobs.named
    if by_model is None:
        who, evidence = "the engine's flags set it", holds(dossier, KEY, current)
    else:
        who = f"{vllm} sets it for this model by itself"
        detail = "set by the class for this architecture where no back end was asked for"
        evidence = Evidence(source=by_model.where, detail=detail)
    why = "a back end that is set is returned before the priorities are asked"
    return Finding(
        reader=NAME,
        kind="fact",
        title=f"All attention layers are given {current}: {who}, and the platform's order of priorities is not asked",
        evidence=(evidence, Evidence(source=f"vllm/{PLATFORM}", detail=why)),
        fix=f"only --{KEY} changes it, for all layers; another order in {ORDER}() does nothing",
    )


def _order(
    dossier: Dossier,
    tried: list[Tried],
    options: dict[str, Option],
    first: dict[int, str | None],
    by_model: Chosen | None,
) -> Finding:
    arch, vllm = dossier.card.arch, dossier.knobs.named
    known = {True: "holds", False: "does not hold", None: "not known here"}
    tries = plural(len([t for t in tried if t.holds is not False]), "attention back end")
    picks = ", ".join(f"{name or 'not known'} for heads of {size}" for size, name in first.items())
    evidence = [
        Evidence(
            source=t.where,
            detail=f"{t.name}: {f'if {t.condition} ({known[t.holds]})' if t.condition else 'always'}",
        )
        for t in tried
    ]
    if by_model is not None:
        detail = f"may set {by_model.name} for this model before: a condition is not known"
        evidence.append(Evidence(source=by_model.where, detail=detail))
    flag, ordered = KEY in dossier.knobs.flags, bool(order_line(Path(dossier.knobs.path), PLATFORM))
    lines = [
        f"flag: --{KEY} NAME, for all layers; an invalid choice ends the start"
        if flag or VARIABLE not in dossier.knobs.env
        else f"environment: {VARIABLE}=NAME, for all layers; an invalid choice ends the start",
        f"order: {PRIORITY}=NAME,... puts these first in {ORDER}() of vllm/{PLATFORM}; each layer takes the first that "
        "is valid for it",
        "class: register_backend() from a vLLM plugin, for one that the registry does not have",
    ]
    if not ordered:
        lines[1] = f"order: none; {CHOOSER}() of vllm/{PLATFORM} takes the first whose condition holds, valid or not"
    lines.append(
        "looked at: card, head size, window, KV cache dtype; not at sinks, multimodal prefixes and block sizes"
    )
    others = [o.backend.name for o in options.values() if not o.in_order]
    if others:
        lines.append(f"in the registry and never tried by itself: {', '.join(others)}")
    return Finding(
        reader=NAME,
        kind="fact",
        title=f"{vllm} tries {tries} on {arch}; the first that is valid wins: {picks}"
        if ordered
        else f"{vllm} takes one attention back end for all layers on {arch}: {picks}",
        evidence=tuple(evidence) or (Evidence(source=f"vllm/{PLATFORM}", detail=f"{ORDER} lists none"),),
        fix="\n".join(lines),
    )


def _impossible(dossier: Dossier, options: dict[str, Option]) -> list[Finding]:
    barred = [o for o in options.values() if o.hindrance]
    if not barred:
        return []
    evidence = [
        Evidence(source=o.reading.file or o.backend.where, detail=f"{o.backend.name}: {o.hindrance}") for o in barred
    ]
    native = options.get("ROCM_ATTN")
    if dossier.sheet is not None and "mfma" in dossier.sheet.absent and native is not None and not native.hindrance:
        arch, asks = dossier.card.arch, "use_rocm_custom_paged_attention"
        never = answer_of(Path(dossier.knobs.path), PLATFORM, asks, arch) is False
        then = (
            f"{asks}() says no to {arch}, so a Triton kernel decodes"
            if never
            else f"{asks}() decides whether it is called, and what it asks may be true of {arch} too"
        )
        detail = (
            "ROCM_ATTN is not barred, but its own decode kernel is compiled for gfx90a, gfx942 and gfx950 only (matrix "
            f"instructions, which {arch} has not); {then}"
        )
        evidence.append(Evidence(source=native.reading.file, detail=detail))
    return [
        Finding(
            reader=NAME,
            kind="fact",
            title=f"{len(barred)} attention back ends of {dossier.knobs.named} cannot serve this model, as it "
            f"is set up, on {dossier.card.arch}: {', '.join(o.backend.name for o in barred)}",
            evidence=tuple(evidence),
        )
    ]


def _set_wrongly(dossier: Dossier, current: str, options: dict[str, Option], sizes: tuple[int, ...]) -> list[Finding]:
    option = options.get(current)
    if option is None:
        return []
    lacking = [size for size in sizes if option.reading.head_sizes[size] is False]
    why = option.hindrance or (f"it takes no heads of {', '.join(map(str, lacking))}" if lacking else "")
    if not why:
        return []
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=f"--{KEY} {current} cannot work on {dossier.card.arch}: {why}",
            evidence=(holds(dossier, KEY, current), Evidence(source=option.reading.file, detail=why)),
            fix=f"take --{KEY} out, or choose one of those that can serve every layer",
        )
    ]


def _opportunity(
    dossier: Dossier, package: Path, option: Option, sizes: tuple[int, ...], held: Any, before: Tried | None
) -> Finding:
    name = option.backend.name
    whole = option.heads == sizes  # all layers: a flag will do
    part = share(dossier, "all", "attention")
    aiter = "aiter" in option.reading.imports
    takes = ", ".join(map(str, option.heads))
    evidence = [
        Evidence(source=option.backend.where, detail=f"{name} = {option.backend.path}"),
        Evidence(source=option.reading.file, detail=f"takes heads of {takes}, of this model's"),
    ]
    if part is None:
        detail = f"the share of attention is unknown; {UNKNOWN_SHARE:.0%} is assumed"
        evidence.append(Evidence(source="judged", detail=detail))
    if aiter and not dossier.aiter:
        evidence.append(
            Evidence(source=option.reading.file, detail="it imports AITER, and no AITER was given to look at")
        )
    probability = PROBABILITY_AITER if aiter else PROBABILITY_OTHER
    if name == WITHOUT_MATRIX and dossier.sheet is not None and "mfma" in dossier.sheet.absent:
        probability = PROBABILITY_WITHOUT_MATRIX
        detail = "a public vLLM fork for gfx906, a card without matrix instructions, puts it first (2026-06)"
        evidence.append(Evidence(source="ai-infos/vllm-gfx906-mobydick", detail=detail))
    if before is not None and before.holds and dossier.card.arch in before.condition and before.name != name:
        probability = min(probability, PROBABILITY_AGAINST_NAME)
        detail = f"this tree puts {before.name} first for {dossier.card.arch} by name: {before.condition}"
        evidence.append(Evidence(source=before.where, detail=detail))
    title = f"{name} could serve the attention layers instead, by {_means(dossier)}"
    if not whole:
        other = ", ".join(str(s) for s in sizes if s not in option.heads)
        title = (
            f"{name} could serve the layers with heads of {takes}, by the order of priorities: it takes none of "
            f"{other}, so the flag would end the start"
        )
    return Finding(
        reader=NAME,
        kind="opportunity",
        title=title,
        evidence=tuple(evidence),
        fix=_setting(dossier, name) if whole else f"{PRIORITY}={name}, which is this patch:\n{_patch(package, name)}",
        change=_change(dossier, name, whole, held),
        terms=Terms(
            phase="all",
            share=part.value if part else UNKNOWN_SHARE,
            share_from=part.words if part else "judged",
            share_measured=part.measured if part else False,
            speedup=SPEEDUP,
            speedup_from="judged: no comparison of these back ends on this card is at hand",
            probability=probability,
            cost_s=dossier.cost_s(),
        ),
        risk="medium",  # other kernels, other rounding: the accuracy gate decides
    )


def _change(dossier: Dossier, name: str, whole: bool, held: Any) -> Change | None:
    """The flag where one back end serves all layers, else the order, in which it comes first."""
    if not whole:
        now = dossier.spec.env.get(PRIORITY)
        after = ",".join([name, *(n for n in priority_of(now) if n != name)])
        return Change(lever=Lever.ENVIRONMENT, key=PRIORITY, before=now, after=after)
    if KEY not in dossier.knobs.flags:
        if VARIABLE not in dossier.knobs.env:
            return None
        return Change(lever=Lever.ENVIRONMENT, key=VARIABLE, before=dossier.spec.env.get(VARIABLE), after=name)
    return Change(lever=Lever.ENGINE_FLAG, key=KEY, before=held, after=name)


def _by_variable(dossier: Dossier) -> bool:
    return KEY not in dossier.knobs.flags and VARIABLE in dossier.knobs.env


def _means(dossier: Dossier) -> str:
    return "an environment variable" if _by_variable(dossier) else "a flag"


def _setting(dossier: Dossier, name: str) -> str:
    return f"{VARIABLE}={name}" if _by_variable(dossier) else f"--{KEY} {name}"


def _patch(package: Path, name: str) -> str:
    """Puts `name` first where the order is made: a unified diff against this tree, or words where it is not found."""
    path = package / PLATFORM
    try:
        before = read_regular(path, MOST_BYTES).decode("utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        before = []
    start = next((i for i, line in enumerate(before) if line.startswith(f"def {ORDER}(")), None)
    last = next(
        (i for i, line in enumerate(before) if start is not None and i > start and line == "    return backends\n"),
        None,
    )
    if last is None:
        return f"put {ENUM}.{name} first in {ORDER}() of vllm/{PLATFORM}"
    after = [*before[:last], f"    backends.insert(0, {ENUM}.{name})\n", *before[last:]]
    return "".join(difflib.unified_diff(before, after, f"a/vllm/{PLATFORM}", f"b/vllm/{PLATFORM}"))


def dropped(dossier: Dossier) -> list[str]:
    if dossier.card.kind != "amd":
        return [f"{NAME}: only AMD's back ends are read, the card is {dossier.card.arch}"]
    return []
