"""Rules of the KV cache's format (`--kv-cache-dtype`): does this vLLM list it, has the card its arithmetic, do vLLM's
own gates see that, and does the back end that will be chosen take it?

FP8 comes in two encodings, FNUZ (gfx942) and OCP (gfx950, Hopper, Ada): one of them must be native by the card's sheet,
and it must be the one that vLLM writes there (`is_fp8_fnuz`). gfx906 has neither; vLLM's gate counts it among the CDNA
cards and lets FP8 pass, so that an engine would start and convert every value in software: refused here. INT8 and INT4
with a scale for each token and head are converted to the query's dtype as they are read (_cast_kv_tile of
v1/attention/ops/triton_unified_attention.py), with ordinary instructions, and are not refused for what the card cannot
multiply. Scales: `--calculate-kv-scales` is in none of vLLM 0.30.0, 0.32.0 and 0.33.0; a checkpoint without its own
gets 1.0, which is the accuracy gate's to judge.

After a team's decision record of 2026-06 (configs/kv_dtypes.yaml). Nothing here was run on an AMD card.
"""

from __future__ import annotations

import ast
from pathlib import Path

from agents.research.attention_backends import PLATFORMS, BackendsError, tree_of
from agents.research.backend_choice import Choice, Option, backend_choice, first_valid
from agents.research.dossier import Dossier
from agents.research.knobs import near
from agents.research.kv_cache import FLAG, KvFormatsError, read_formats, values_of
from agents.research.served import kv_dtype, plain_dtype
from agents.research.source_line import cited
from agents.research.three_valued import truth
from agents.tuning.levers import LEVERS
from contracts import Change, EngineSpec, Lever

KEYS = frozenset({(Lever.ENGINE_FLAG, FLAG)})
FP8 = ("fp8", "fp8_fnuz")  # words of a card's sheet
_PLAIN = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


def problem(change: Change, spec: EngineSpec, subject: Dossier) -> str | None:
    """Why this format of the KV cache is not worth an engine start, in one line, or None. `spec` is the engine without
    the change; `subject` is what is known without a start: card and its sheet, source tree, model."""
    changed = LEVERS[change.lever].write(spec, change.key, change.after)
    after = subject.model_copy(update={"spec": changed})
    model = subject.model
    value = kv_dtype(model, changed.flags) if model is not None else str(change.after or "auto")
    return (
        _listed(value, subject)
        or _nothing_new(value, spec, subject)
        or _arithmetic(value, subject)
        or _encoding(value, subject)
        or _taken(value, after)
    )


def _listed(value: str, subject: Dossier) -> str | None:
    values, where = values_of(subject.knobs)
    if not values or value in values:
        return None
    meant = next((v for v in values if v.startswith(f"{value}_")), None) or near(value, values)
    hint = f"; did you mean {meant}?" if meant else f"; it has {', '.join(values)}"
    return f"{subject.knobs.named} has no KV cache of {value}{cited(where)}{hint}"


def _nothing_new(value: str, spec: EngineSpec, subject: Dossier) -> str | None:
    """bfloat16 for a bfloat16 model is what "auto" is."""
    if subject.model is None:
        return None
    held, plain = kv_dtype(subject.model, spec.flags), plain_dtype(subject.model, spec.flags)
    if _PLAIN.get(value, plain if value == "auto" else value) == _PLAIN.get(held, plain if held == "auto" else held):
        return f"the KV cache is kept in {value if held == 'auto' else held} already: the model's own dtype is {plain}"
    return None


def _arithmetic(value: str, subject: Dossier) -> str | None:
    sheet = subject.sheet
    if sheet is None or not value.startswith("fp8") or any(word in sheet.native for word in FP8):
        return None
    lacking = " and ".join(word for word in FP8 if word in sheet.absent)
    if not lacking:  # nobody looked
        return None
    passes, where = gate(subject, "supports_fp8")
    gates = {
        True: f"; {subject.knobs.named} would let it start all the same{cited(where)}",
        False: f"; nor does {subject.knobs.named} take FP8 there{cited(where)}",
        None: "",
    }[passes]
    return (
        f"{sheet.arch} has no FP8 arithmetic of either encoding (configs/cards/{sheet.arch}.yaml calls {lacking} "
        f"absent), so each value of an {value} cache would be converted in software{gates}{_instead(subject)}"
    )


def _instead(subject: Dossier) -> str:
    """The smaller formats of this vLLM that the same sheet does not speak against."""
    listed, sheet = values_of(subject.knobs)[0], subject.sheet
    try:
        formats = read_formats()
    except KvFormatsError:
        return ""
    able = [v for f in formats if f.bits < 16 and sheet and f.runs_on(sheet) for v in f.flags if v in listed]
    return f"; {', '.join(able)} could be tried" if able else ""


def _encoding(value: str, subject: Dossier) -> str | None:
    """Does vLLM write the encoding that the card multiplies?"""
    sheet = subject.sheet
    if sheet is None or not value.startswith("fp8") or subject.card.kind == "cpu":
        return None
    passes, where = gate(subject, "supports_fp8")
    if passes is False:
        return f"{subject.knobs.named} takes no FP8 on {sheet.arch}{cited(where)}"
    fnuz, at = gate(subject, "is_fp8_fnuz")
    written = {True: "fp8_fnuz", False: "fp8"}.get(fnuz) if fnuz is not None else None
    if written is None or written in sheet.native or written not in sheet.absent:
        return None
    names = {"fp8": "OCP", "fp8_fnuz": "FNUZ"}
    return (
        f"{subject.knobs.named} writes FP8 in the {names[written]} encoding on {sheet.arch}{cited(at)}, which "
        f"the card cannot multiply (configs/cards/{sheet.arch}.yaml)"
    )


def gate(subject: Dossier, name: str) -> tuple[bool | None, str]:
    """(what a method of the platform's class answers for this card, its line). None: not known."""
    platform = PLATFORMS[subject.card.kind]
    tree = tree_of(str(Path(subject.knobs.path) / platform))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name] if tree else []
    returns = [n for n in ast.walk(found[0]) if isinstance(n, ast.Return)] if found else []
    if len(returns) != 1 or returns[0].value is None:
        return None, ""
    try:
        facts = backend_choice(subject).facts
    except BackendsError:
        return None, ""
    arch = subject.card.arch
    known = {**facts, "_GCN_ARCH": arch, "on_rdna4()": arch.startswith("gfx120"), **_capabilities(arch)}
    return truth(returns[0].value, known), f"vllm/{platform}:{returns[0].lineno}"


def _capabilities(arch: str) -> dict[str, bool]:
    """cls.has_device_capability(89) on "sm_90"."""
    digits = arch.removeprefix("sm_")
    if digits == arch or not digits.isdigit():
        return {}
    return {f"cls.has_device_capability({n})": int(digits) >= n for n in range(50, 160)}


def _taken(value: str, after: Dossier) -> str | None:
    """By the back end that is set, or by any of the order, for every head size."""
    try:
        choice = backend_choice(after)
    except BackendsError:
        return None
    if after.card.kind == "cpu":
        option = choice.option(after, "CPU_ATTN") if not choice.facts["use_mla"] else None
        return _says_no(value, "CPU_ATTN", option)
    if choice.current is not None:
        return _says_no(value, choice.current, choice.option(after, choice.current))
    options = choice.options(after)
    for size in choice.sizes:
        might = [o for o in options.values() if o.in_order and size in o.heads and not o.hindrance]
        if options and not might and first_valid(choice.tried, options, size) is None:
            return (
                f"no attention back end of {after.knobs.named} for {after.card.arch} takes heads of {size} with "
                f"a KV cache of {value}: {_why(choice, options)}"
            )
    return None


def _says_no(value: str, name: str, option: Option | None) -> str | None:
    takes = option.reading.kv_dtypes if option is not None else None
    if option is None or takes is None or value in takes:
        return None
    only = f"only of {', '.join(takes)} ({option.reading.file})"
    return f"{name}, the attention back end in use, takes no KV cache of {value}, {only}"


def _why(choice: Choice, options: dict[str, Option]) -> str:
    tried = [options[t.name] for t in choice.tried if t.name in options]
    return "; ".join(f"{o.backend.name}: {(o.hindrance or 'other heads').split(', only ')[0]}" for o in tried)
