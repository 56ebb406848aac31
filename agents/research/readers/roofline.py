"""How fast could this model be on this card, how far from that is what was measured, and does it fit at all?"""

from __future__ import annotations

from agents.research.dossier import Dossier, holds
from agents.research.finding import Finding
from agents.research.model_shape import ModelShape
from agents.research.roofline import PIPELINE, Roofline, limit_words, memory_share, roofline
from agents.research.served import served
from agents.research.step_work import weight_bytes
from contracts import Evidence

NAME = "roofline"
LENGTH = "max-model-len"
MOST_RANKS = 16  # of one host; more are another kind of decision
GIB = 2**30


def look(dossier: Dossier) -> list[Finding]:
    if dossier.model is None or dossier.sheet is None:
        return []
    line = roofline(dossier)
    if line is None:
        return [*_no_bound(dossier, dossier.model), *_too_long(dossier, dossier.model)]
    found = [_bounds(dossier, line), *_measured(dossier, line), *_too_long(dossier, dossier.model)]
    if line.kv_memory_bytes <= 0:
        return [*found, _does_not_fit(dossier, dossier.model, line)]
    return found + _cache_too_small(dossier, line)


def dropped(dossier: Dossier) -> list[str]:
    """Why there is no bound."""
    if dossier.sheet is None:  # asked first: a night reads the model's shape only where there is a sheet
        return [f"{NAME}: no sheet of {dossier.card.arch} in configs/cards/"]
    if dossier.model is None:
        return [f"{NAME}: no config.json of the model"]
    if dossier.spec.flags.get(PIPELINE, 1) not in (1, None):
        return [f"{NAME}: {PIPELINE} is {dossier.spec.flags[PIPELINE]}; bounds are worked out for one stage only"]
    return []


def _no_bound(dossier: Dossier, model: ModelShape) -> list[Finding]:
    if served(model, dossier.spec.flags) is not None:
        return []  # a model without attention layers
    said = Evidence(source="config.json#quantization_config", detail=f"quant_method {model.quantization}")
    title = f"There is no roofline: how wide weights of {model.quantization} are could not be read"
    return [Finding(reader=NAME, kind="fact", title=title, evidence=(said,))]


def _sources(dossier: Dossier, line: Roofline) -> tuple[Evidence, ...]:
    """Where the figures behind a bound are from."""
    sheet, model = dossier.sheet, dossier.model
    assert sheet is not None and model is not None
    where = f"configs/cards/{sheet.arch}.yaml"
    peaks = ", ".join(f"{name} {peak.value:g}" for name, peak in sheet.tflops.items())
    shape = f"{model.layers} layers, hidden {model.hidden}, {model.parameters / 1e9:.2f} billion weights"
    prompts = f"prompts of {line.prompt_tokens:g} tokens, {line.together:g} a pass"
    load = f"{prompts}; {line.running:g} sequences of {line.context:g} tokens decode"
    return (
        Evidence(source=f"{where}#tflops", detail=f"peaks in TFLOPS: {peaks}"),
        Evidence(
            source=f"{where}#bandwidth_gb_s",
            detail=f"{sheet.bandwidth_gb_s.value:g} GB/s: {sheet.bandwidth_gb_s.source}",
        ),
        Evidence(source="config.json", detail=shape),
        Evidence(source="workload", detail=load),
        *(Evidence(source="assumed", detail=said) for said in line.assumptions),
    )


def _bounds(dossier: Dossier, line: Roofline) -> Finding:
    ranks = dossier.tensor_parallel
    cards = f"{ranks} x {line.card}" if ranks > 1 else line.card
    turns = (
        f"a request takes {line.prefill_s * 1e3:.2f} ms of the engine for its prompt and {line.decode_s * 1e3:.2f} ms "
        f"for its output at best: {line.output_tokens_per_s:,.0f} output tokens/s where the two take turns"
    )
    memory = (
        f"weights {line.weight_bytes / GIB:.1f} GiB a card, {line.kv_bytes_per_token:,.0f} bytes of cache a token and "
        f"card, room for {line.sequences_fit} sequences of {dossier.workload.peak_tokens} tokens"
    )
    return Finding(
        reader=NAME,
        kind="fact",
        title=f"At most, {cards} prefills {line.prefill_tokens_per_s:,.0f} tokens/s of this model "
        f"({limit_words(line.prefill)}) and decodes {line.decode_tokens_per_s:,.0f} tokens/s at {line.running:g} "
        f"sequences, {line.decode_step_s * 1e3:.2f} ms a step ({limit_words(line.decode)})",
        evidence=(
            *_sources(dossier, line),
            Evidence(source="estimated: roofline", detail=turns),
            Evidence(source="estimated: memory", detail=memory),
        ),
    )


def _measured(dossier: Dossier, line: Roofline) -> list[Finding]:
    """A measurement beyond its bound says that a figure is wrong somewhere, and that is told too."""
    compared = []
    for phase in dossier.phases:
        if phase.phase == "decode" and phase.step_ms:
            ratio = phase.step_ms / (line.decode_step_s * 1e3)
            words = f"a decode step took {phase.step_ms:.2f} ms, the bound is {line.decode_step_s * 1e3:.2f} ms"
            if phase.kernel_ms:
                words += f" ({phase.kernel_ms:.2f} ms of it in kernels)"
            compared.append((words, ratio, phase.source))
    speed = dossier.counter("output_tokens_per_s")
    if speed:
        bound = line.output_tokens_per_s
        words = f"{speed:,.0f} output tokens/s, the bound is {bound:,.0f}"
        compared.append((words, bound / speed, "engine counters under the workload"))
    found = []
    for words, ratio, source in compared:
        said = f"{ratio:.1f} times the time that it must take"
        if ratio < 1:
            said = "beyond the bound: a figure of the sheet or of the load is wrong, or prefill and decode shared steps"
        found.append(
            Finding(
                reader=NAME,
                kind="fact",
                title=f"Measured against the roofline of {line.card}: {words}; {said}",
                evidence=(Evidence(source=source, detail=words), *_sources(dossier, line)),
            )
        )
    return found


def _too_long(dossier: Dossier, model: ModelShape) -> list[Finding]:
    """vLLM takes no request beyond max-model-len, and no max-model-len beyond what the model was made for
    (_get_and_verify_max_len in config/model.py, 0.30.0 to 0.33.0)."""
    longest, asked, made_for = dossier.workload.peak_tokens, dossier.spec.flags.get(LENGTH), longest_context(dossier)
    allowed = dossier.spec.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") not in ("0", "")
    evidence = [Evidence(source="config.json", detail=f"max_position_embeddings {model.max_positions}")]
    given = asked if isinstance(asked, int) and asked > 0 else None
    if given is not None:
        evidence.append(holds(dossier, LENGTH, given))
    limit = given if given is not None else made_for
    if given is not None and made_for is not None and given > made_for and not allowed:
        title = f"vLLM refuses to start: {LENGTH} {given:,} is more than the {made_for:,} tokens of the model"
        fix = f"--{LENGTH} {made_for} or less"
    elif limit is not None and longest > limit:
        title = f"The engine refuses the workload's longest requests: {longest:,} tokens in and out, it takes {limit:,}"
        fix = f"ask for shorter ones, or {f'raise {LENGTH}' if given else 'serve a model made for longer ones'}"
    else:
        return []
    return [Finding(reader=NAME, kind="trap", title=title, evidence=tuple(evidence), fix=fix)]


def longest_context(dossier: Dossier) -> int | None:
    """Tokens that the model was made for. None where that is not known: some ways to stretch positions count twice."""
    model, config = dossier.model, dossier.model_config_json
    text = config.get("text_config")
    said = {**config, **text} if isinstance(text, dict) else config
    rope = str(said.get("rope_parameters") or said.get("rope_scaling"))
    stretched = "factor" in rope and "llama3" not in rope  # llama3's positions are the stretched ones already
    return None if model is None or stretched or said.get("model_max_length") else model.max_positions


def _does_not_fit(dossier: Dossier, model: ModelShape, line: Roofline) -> Finding:
    ranks = dossier.tensor_parallel
    space = line.kv_memory_bytes + line.weight_bytes
    enough = _ranks_that_fit(dossier, model, space)
    said = f"--tensor-parallel-size {enough}" if enough else f"no split over up to {MOST_RANKS} cards is enough"
    return Finding(
        reader=NAME,
        kind="trap",
        title=f"The weights do not fit: {line.weight_bytes / GIB:.1f} GiB a card at tensor-parallel-size {ranks}, and "
        f"{memory_share(dossier):.0%} of the card are {space / GIB:.1f} GiB",
        evidence=_sources(dossier, line),
        fix=f"{said}; or weights of fewer bits",
    )


def _ranks_that_fit(dossier: Dossier, model: ModelShape, space: float) -> int | None:
    """The least power of two that divides the heads and leaves a tenth of the space for the cache."""
    how = served(model, dossier.spec.flags)
    ranks = dossier.tensor_parallel
    while how is not None and (ranks := ranks * 2) <= MOST_RANKS:
        whole = all(kind.heads % ranks == 0 for kind in model.attention)
        if whole and weight_bytes(model, how, ranks) <= 0.9 * space:
            return ranks
    return None


def _cache_too_small(dossier: Dossier, line: Roofline) -> list[Finding]:
    """For as many as the workload keeps there, or as were seen there, in an open loop."""
    peak = dossier.counter("running_peak")
    wanted = dossier.workload.concurrency or (int(peak) if peak else None)
    limit = dossier.spec.flags.get("max-num-seqs")
    if isinstance(limit, int) and not isinstance(limit, bool) and wanted:
        wanted = min(wanted, limit)
    if wanted is None or line.sequences_fit >= wanted:
        return []
    longest = dossier.workload.peak_tokens
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=f"The KV cache holds {line.sequences_fit} of the workload's longest sequences ({longest} tokens), "
            f"and {wanted} are there at a time: the rest wait, or are preempted and computed again",
            evidence=(
                *_sources(dossier, line),
                Evidence(
                    source="estimated: memory",
                    detail=f"{line.kv_memory_bytes / GIB:.1f} GiB for the cache at most, "
                    f"{line.kv_bytes_per_sequence / GIB:.3f} GiB a sequence and card",
                ),
            ),
            fix=f"--max-num-seqs {max(1, line.sequences_fit)}, a smaller cache format, or more cards",
        )
    ]
