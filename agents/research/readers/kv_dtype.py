"""Would another format of the KV cache pay: does the card have the arithmetic, this vLLM the value, and is there a back
end that serves it?"""

from __future__ import annotations

from pathlib import Path

from agents.research.attention_backends import AITER_FROM, BackendsError, arch_facts, generations, reading, registered
from agents.research.dossier import Dossier, holds
from agents.research.finding import EXPECTED, Finding, Terms, expected
from agents.research.knobs import near
from agents.research.kv_cache import FILE, FLAG, Gain, KvFormat, KvFormatsError, gain, read_formats, values_of
from agents.research.served import kv_dtype
from agents.research.shares import share
from agents.research.step_work import latent_of
from cards.sheet import CardSheet
from contracts import Change, Evidence, Lever

NAME = "kv_dtype"
FOR_NIGHTS = True

# Chance that a format that the card has arithmetic for, this vLLM a value and a back end, is faster and passes the
# accuracy gate. Judged: quantising the cache changes answers on purpose, and dequantising costs instructions that the
# roofline does not count (on a card without FP8 arithmetic an FP8 cache has been slower, vLLM issue 56992).
PROBABILITY = 0.3
LEAST_GAIN = 1.02  # of decode's attention; a format that saves less is not worth a night's accuracy risk


def look(dossier: Dossier) -> list[Finding]:
    model, sheet = dossier.model, dossier.sheet
    if model is None or sheet is None or not model.attention:
        return []
    try:
        formats = read_formats()
    except KvFormatsError as error:
        said = Evidence(source=f"configs/{FILE.name}", detail=str(error))
        return [
            Finding(reader=NAME, kind="fact", title="The comparison of KV-cache formats is missing", evidence=(said,))
        ]
    values, where = values_of(dossier.knobs)
    current = kv_dtype(model, dossier.spec.flags)
    found = [_comparison(dossier, formats, sheet, values, where)]
    found += _silently_fp8(dossier, current, sheet)
    found += _not_taken(dossier, formats, values, where)
    found += _set_without_hardware(dossier, formats, current, sheet)
    if current not in ("auto", "bfloat16", "float16"):
        return found  # somebody chose already
    for form in formats:
        value = next((v for v in form.flags if v in values), None)
        if form.bits >= 16 or value is None or not form.runs_on(sheet):
            continue
        found += _opportunity(dossier, form, value, where)
    return found


def _comparison(
    dossier: Dossier, formats: tuple[KvFormat, ...], sheet: CardSheet, values: tuple[str, ...], where: str
) -> Finding:
    able = [f.name for f in formats if f.runs_on(sheet) and f.bits < 16]
    set_able = [f.name for f in formats if f.runs_on(sheet) and f.bits < 16 and any(v in values for v in f.flags)]
    evidence, fix = [], ""
    for form in formats:
        native = "runs here" if form.runs_on(sheet) else f"needs {' or '.join(form.needs)}, which {sheet.arch} has not"
        known = [v for v in form.flags if v in values]
        flag = f"flag {', '.join(known)}" if known else f"no value of {dossier.knobs.named}"
        detail = f"{form.bits:g} bits, {form.of_bf16:g} of bf16; {native}; {flag}; {form.loss_words}"
        evidence.append(Evidence(source=f"configs/{FILE.name}#{form.name}", detail=detail))
    if values:
        judged = {v for f in formats for v in f.flags}
        others = [v for v in values if v not in judged]
        evidence.append(Evidence(source=where, detail=f"takes also, not judged here: {', '.join(others) or 'none'}"))
    spare = next((v for f in formats if f.bits < 16 and f.name not in able for v in f.flags if v in values), None)
    if not able and spare is not None and _served_by(dossier, spare):
        fix = (
            f"--{FLAG} {spare} would still save memory, every value converted by ordinary instructions; whether it is "
            f"right and fast on {sheet.arch} nobody has shown: compare its numbers first"
        )
    small = sum(f.bits < 16 for f in formats)
    sets = f"; a flag of {dossier.knobs.named} sets {', '.join(set_able) or 'none of them'}" if able else ""
    return Finding(
        reader=NAME,
        kind="fact",
        title=f"{sheet.arch} has the arithmetic of {len(able)} of {small} compared smaller KV-cache formats{sets}",
        evidence=tuple(evidence),
        fix=fix,
    )


def _silently_fp8(dossier: Dossier, current: str, sheet: CardSheet) -> list[Finding]:
    """A checkpoint's kv_cache_scheme turns "auto" into fp8."""
    asked = dossier.spec.flags.get(FLAG)
    if asked not in (None, "auto") or not current.startswith("fp8") or {"fp8", "fp8_fnuz"} & set(sheet.native):
        return []
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=f"The checkpoint's kv_cache_scheme makes the KV cache FP8 without a flag, and {sheet.arch} has no "
            "arithmetic for it",
            evidence=(
                Evidence(source="config.json#quantization_config.kv_cache_scheme", detail="vLLM turns auto into fp8"),
                Evidence(source=f"configs/cards/{sheet.arch}.yaml#absent", detail=", ".join(sheet.absent)),
            ),
            fix=f"--{FLAG} {'float16' if 'bf16_matrix' not in sheet.native else 'bfloat16'}",
        )
    ]


def _not_taken(dossier: Dossier, formats: tuple[KvFormat, ...], values: tuple[str, ...], where: str) -> list[Finding]:
    """A value that this version does not list."""
    asked = dossier.spec.flags.get(FLAG)
    if asked is None or not values or asked in values:
        return []
    meant = near(str(asked), values)
    notes = [n for f in formats for n in f.notes if f"{FLAG} {asked}." in n]
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=f"{dossier.knobs.named} does not list {asked} among the values of --{FLAG}: unless a plugin "
            "registers it, the engine will not start",
            evidence=(
                holds(dossier, FLAG, asked),
                Evidence(source=where, detail=", ".join(values)),
                *(Evidence(source=f"configs/{FILE.name}", detail=note) for note in notes),
            ),
            fix=f"--{FLAG} {meant}" if meant else f"take --{FLAG} out",
        )
    ]


def _set_without_hardware(
    dossier: Dossier, formats: tuple[KvFormat, ...], current: str, sheet: CardSheet
) -> list[Finding]:
    form = next((f for f in formats if current in f.flags), None)
    if form is None or form.runs_on(sheet) or dossier.spec.flags.get(FLAG) in (None, "auto"):
        return []
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=f"--{FLAG} {current} needs {' or '.join(form.needs)}, and {sheet.arch} has neither: each value is "
            "converted in software",
            evidence=(
                holds(dossier, FLAG, current),
                Evidence(source=f"configs/cards/{sheet.arch}.yaml#native", detail=", ".join(sheet.native)),
                Evidence(source=f"configs/{FILE.name}#{form.name}", detail=form.where),
            ),
            fix=f"take --{FLAG} out and measure again",
        )
    ]


def _opportunity(dossier: Dossier, form: KvFormat, value: str, where: str) -> list[Finding]:
    buys = gain(dossier, value)
    if buys is None or buys.attention < LEAST_GAIN or not buys.after.sequences_fit:
        return []
    backends = _served_by(dossier, value)
    named = str(dossier.spec.flags.get("attention-backend") or "").upper()
    if backends is not None and not any(named in ("", name) for name, _ in backends):
        return []  # no back end takes it, or not the one that is asked for: the engine would not start
    part = share(dossier, "decode", "attention")
    if part is None:
        return []
    evidence = [
        Evidence(source=f"configs/{FILE.name}#{form.name}", detail=f"{form.where}; {form.source}"),
        Evidence(source=where, detail=f"--{FLAG} takes {value}"),
        Evidence(source=f"roofline of {buys.before.card}", detail=buys.words),
    ]
    if backends:
        alone = "; another back end than this may serve the model now" if len(backends) == 1 else ""
        detail = f"served by {', '.join(name for name, _ in backends)}{alone}"
        evidence.append(Evidence(source=backends[0][1], detail=detail))
    smaller = buys.after.kv_bytes_per_sequence / buys.before.kv_bytes_per_sequence
    return [
        Finding(
            reader=NAME,
            kind="opportunity",
            title=f"{form.name} ({value}) would make the KV cache {smaller:.2f} times as large and decode's attention "
            f"at best {buys.attention:.2f} times as fast{_room(dossier, buys)}",
            evidence=tuple(evidence),
            fix=f"--{FLAG} {value}",
            change=Change(lever=Lever.ENGINE_FLAG, key=FLAG, before=dossier.spec.flags.get(FLAG), after=value),
            terms=Terms(
                phase="decode",
                share=part.value,
                share_from=part.words,
                share_measured=part.measured,
                speedup=expected(buys.attention),
                speedup_from=f"judged: {EXPECTED:.0%} of what the ceiling saves; at best {buys.attention:.2f} times, "
                f"estimated: roofline of {buys.before.card}, bytes of the cache",
                probability=PROBABILITY,
                cost_s=dossier.cost_s(),
            ),
            risk="high",  # answers change on purpose: token IDs will differ, only drift and sums can pass it
        )
    ]


def _room(dossier: Dossier, buys: Gain) -> str:
    """Where the cache limits how many run, that matters more than the step."""
    want = dossier.workload.concurrency
    if want is None or buys.before.sequences_fit >= want:
        return ""
    return f"; {buys.before.sequences_fit} of {want} sequences fit now, {buys.after.sequences_fit} then"


def _served_by(dossier: Dossier, value: str) -> list[tuple[str, str]] | None:
    """(name, file) of the attention back ends of this vLLM that take such a cache and this card. None: not known."""
    if dossier.card.kind != "amd" or dossier.model is None:
        return None
    package = Path(dossier.knobs.path)
    try:
        entries = registered(package)
        generation = generations(package).get(dossier.card.arch, 0)
    except BackendsError:
        return None
    facts = arch_facts(dossier.card.arch, generation, True if dossier.aiter else None)
    latent = latent_of(dossier.model_config_json)
    sizes = tuple(sorted({kind.head_size for kind in dossier.model.attention} if latent is None else {latent.width}))
    found = []
    for entry in entries:
        if not entry.path.startswith("vllm.v1.") or (".mla." in entry.path) != (latent is not None):
            continue
        if not entry.name.startswith(("ROCM_", "TRITON_ATTN", "TRITON_MLA")):
            continue
        said = reading(package, entry, sizes, facts)
        barred = said.arch is False or ("aiter" in said.imports and generation < AITER_FROM)
        takes = said.kv_dtypes is not None and value in said.kv_dtypes
        if takes and not barred and all(said.head_sizes[s] is not False for s in sizes):
            found.append((entry.name, said.file))
    return found
