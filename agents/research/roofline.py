"""What the card's peaks allow a model to do: the time below which no kernel can get, and what limits it.

time of a category = max(FLOPs / peak, bytes / bandwidth, bytes sent / link), and kernels run one after another. No
efficiency is assumed: the figures are bounds. Real kernels reach a part of them that differs by category, so the split
is an estimate where no profile is, and no more.

A request's share of the engine: its prompt in one pass, together with as many others as fit the token budget of a step;
then one share of a decode step for each output token (each 1 + drafted tokens, all of them accepted at best), shared by
the sequences that run. Contexts are means; chunks of a long prompt that read the weights again are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from agents.research.batch_defaults import limit
from agents.research.dossier import Dossier
from agents.research.model_shape import ModelShape
from agents.research.served import Served, kv_dtype, peak, served
from agents.research.step_work import Load, Work, kv_bytes_per_token, latent_of, step_work, weight_bytes
from cards.sheet import CardSheet
from contracts import Frozen

PIPELINE = "pipeline-parallel-size"
Limit = Literal["compute", "bandwidth", "link"]

# vLLM's share of the card's memory where neither the flags nor its source say one (0.30.0 to 0.33.0: 0.92).
MEMORY_SHARE = 0.92
# Of the search for the open loop's number of sequences; a rate above what the card can do grows without end.
ROUNDS, MOST_RUNNING = 40, 1024.0


class Part(Frozen):
    seconds: float
    limit: Limit


class PhaseEstimate(Frozen):
    """Of one request's own part of the engine's time."""

    seconds: float
    shares: dict[str, float]  # by category
    steps: float  # that part in whole steps: 3 output tokens of a batch of 64 are 3/64 of a step
    load: str  # of a step, in words


class Estimate(Frozen):
    """What the roofline expects of a request."""

    prefill: PhaseEstimate
    decode: PhaseEstimate
    words: str  # "estimated: roofline of gfx950 (AMD Instinct MI355X)"

    def of(self, phase: str) -> PhaseEstimate:
        return self.prefill if phase == "prefill" else self.decode


class Roofline(Frozen):
    """Bounds. Bytes are of one card; tokens/s are of the engine (all cards of its tensor parallel group)."""

    card: str  # "gfx950 (AMD Instinct MI355X)"
    prompt_tokens: float  # mean, a cached prefix left out
    output_tokens: float  # mean
    together: float  # prompts in one pass
    prefill_steps: float  # of one request, by the token budget: below 1 where prompts share a step
    prefill: dict[str, Part]  # of one such pass
    running: float  # sequences in a decode step
    context: float  # their mean length
    tokens_per_step: int  # of one sequence at best: 1 + drafted tokens
    decode: dict[str, Part]  # of one step
    weight_bytes: float
    kv_bytes_per_token: float  # layers that see every earlier token
    kv_bytes_per_sequence: float  # at the workload's longest
    kv_memory_bytes: float  # left for the cache at most; below 0: the weights do not fit
    assumptions: tuple[str, ...]

    @property
    def prefill_s(self) -> float:
        """Of one request."""
        return _total(self.prefill) / self.together

    @property
    def decode_steps(self) -> float:
        """Of one request: its share of the steps that it runs in."""
        return self.output_tokens / self.tokens_per_step / self.running

    @property
    def decode_s(self) -> float:
        """Of one request."""
        return self.decode_step_s * self.decode_steps

    @property
    def decode_step_s(self) -> float:
        return _total(self.decode)

    @property
    def prefill_tokens_per_s(self) -> float:
        return self.prompt_tokens / self.prefill_s

    @property
    def decode_tokens_per_s(self) -> float:
        return self.running * self.tokens_per_step / self.decode_step_s

    @property
    def output_tokens_per_s(self) -> float:
        """Where prefill and decode take turns. A step that does both reads the weights once, and may beat this."""
        return self.output_tokens / (self.prefill_s + self.decode_s)

    @property
    def sequences_fit(self) -> int:
        """Of the workload's longest, in the KV cache."""
        return max(0, int(self.kv_memory_bytes // self.kv_bytes_per_sequence)) if self.kv_bytes_per_sequence else 0


def limit_words(parts: dict[str, Part]) -> str:
    """As in "bandwidth: gemm 81% of the time": the limit that takes most time, and the category that has most of it."""
    total = _total(parts)
    by_limit: dict[str, float] = {}
    for part in parts.values():
        by_limit[part.limit] = by_limit.get(part.limit, 0.0) + part.seconds
    first = max(by_limit, key=lambda name: by_limit[name])
    name, part = max(((n, p) for n, p in parts.items() if p.limit == first), key=lambda item: item[1].seconds)
    return f"{first}: {name} {part.seconds / total:.0%} of the time"


def times(work: dict[str, Work], sheet: CardSheet) -> dict[str, Part]:
    """By category. Communication is left out where the card's link speed is not known."""
    found: dict[str, Part] = {}
    for name, w in work.items():
        best = peak(sheet, w.math)
        ways: list[tuple[float, Limit]] = [(w.bytes / (sheet.bandwidth_gb_s.value * 1e9), "bandwidth")]
        if w.flops and best is not None:
            ways.append((w.flops / best[0], "compute"))
        if w.wire:
            if sheet.link_gb_s is None:
                continue
            ways.append((w.wire / (sheet.link_gb_s.value * 1e9), "link"))
        seconds, limit = max(ways)
        found[name] = Part(seconds=seconds, limit=limit)
    return found


def roofline(dossier: Dossier) -> Roofline | None:
    """None without a model's shapes, a card's sheet or a quantisation that is understood, and over a pipeline of cards
    (which layers lie where is not worked out)."""
    model, sheet = dossier.model, dossier.sheet
    if dossier.spec.flags.get(PIPELINE, 1) not in (1, None):
        return None
    if model is None or sheet is None or not model.attention:
        return None
    how = served(model, dossier.spec.flags)
    if how is None or peak(sheet, how.math) is None:
        return None
    kv_value = kv_dtype(model, dossier.spec.flags)
    kv_math = "fp8" if kv_value.startswith("fp8") and "fp8" in sheet.tflops else how.plain
    latent, ranks = latent_of(dossier.model_config_json), dossier.tensor_parallel

    def step(load: Load) -> dict[str, Part]:
        return times(step_work(model, how, load, kv_value, kv_math, ranks, latent), sheet)

    work = dossier.workload
    prompt, output = sum(work.input_tokens) / 2, sum(work.output_tokens) / 2
    cached = dossier.spec.flags.get("enable-prefix-caching") is not False
    before = float(work.shared_prefix_tokens) if cached else 0.0
    prompt += 0.0 if cached else work.shared_prefix_tokens
    width = 1 + dossier.draft_tokens
    context = before + prompt + output / 2

    def decode(running: float) -> dict[str, Part]:
        return step(Load(sequences=running, tokens=width, context=context, logits=width, decode=True))

    weights = weight_bytes(model, how, ranks)
    space = memory_share(dossier) * _memory(dossier, sheet) - weights
    longest = float(work.peak_tokens)
    kept = [(k, kv_bytes_per_token(k, kv_value, how.plain, ranks, latent) * k.layers) for k in model.attention]
    held = sum(size * min(longest, kind.window or longest) for kind, size in kept)
    fits = int(space // held) if 0 < held <= space else None
    running = _running(dossier, fits, lambda r: _total(decode(r)) * output / width)
    budget = float(limit(dossier, "tokens").value)
    together = max(1.0, min(float(work.concurrency or 1e9), budget // prompt))
    return Roofline(
        card=f"{sheet.arch} ({sheet.name})",
        prompt_tokens=prompt,
        output_tokens=output,
        together=together,
        prefill_steps=max(1 / together, prompt / budget),
        prefill=step(Load(sequences=together, tokens=prompt, context=before, logits=1, decode=False)),
        running=running,
        context=context,
        tokens_per_step=width,
        decode=decode(running),
        weight_bytes=weights,
        kv_bytes_per_token=sum(size for kind, size in kept if kind.window is None),
        kv_bytes_per_sequence=held,
        kv_memory_bytes=space,
        assumptions=_assumptions(model, sheet, how, kv_value, ranks),
    )


def estimate(dossier: Dossier) -> Estimate | None:
    """None where there is no roofline."""
    line = roofline(dossier)
    if line is None:
        return None
    return Estimate(
        prefill=PhaseEstimate(
            seconds=line.prefill_s,
            shares=_shares(line.prefill),
            steps=line.prefill_steps,
            load=f"prompts of {line.prompt_tokens:g} tokens, {line.together:g} at a time",
        ),
        decode=PhaseEstimate(
            seconds=line.decode_s,
            shares=_shares(line.decode),
            steps=line.decode_steps,
            load=f"{line.output_tokens:g} tokens, {line.running:g} sequences a step"
            + (f", {line.tokens_per_step} tokens of each at best" if line.tokens_per_step > 1 else ""),
        ),
        words=f"estimated: roofline of {line.card}",
    )


def _total(parts: dict[str, Part]) -> float:
    return sum(part.seconds for part in parts.values())


def _shares(parts: dict[str, Part]) -> dict[str, float]:
    total = _total(parts)
    return {name: part.seconds / total for name, part in parts.items()}


def _running(dossier: Dossier, fits: int | None, decode_s: Callable[[float], float]) -> float:
    """Sequences in a decode step: as the engine counted them, else the closed loop's concurrency, else (open loop) the
    rate times the time that a request decodes at best, which itself grows with them; at least 1, and no more than the
    engine allows and the cache holds."""
    seen = dossier.counter("running_mean")
    if seen is not None and seen > 0:
        return max(1.0, seen)
    most = min([float(n) for n in (limit(dossier, "sequences").value, fits) if n is not None])
    work = dossier.workload
    if work.concurrency is not None:
        return max(1.0, min(float(work.concurrency), most))
    running = 1.0
    for _ in range(ROUNDS):
        running = max(1.0, min((work.rate_per_s or 0.0) * decode_s(running), most, MOST_RUNNING))
    return running


def _assumptions(model: ModelShape, sheet: CardSheet, how: Served, kv_value: str, ranks: int) -> tuple[str, ...]:
    said = [how.words, f"KV cache {kv_value}"]
    for name in dict.fromkeys((how.math, how.plain)):
        best = peak(sheet, name)
        if best is not None and best[1] != name:
            said.append(f"{sheet.arch} has no {name} peak, the one of {best[1]} stands in")
    if ranks > 1 and sheet.link_gb_s is None:
        said.append("communication is left out: the sheet has no link speed")
    if model.linear_attention_layers:
        said.append(f"of {model.linear_attention_layers} linear-attention layers only the projections are counted")
    return tuple(said)


def _memory(dossier: Dossier, sheet: CardSheet) -> float:
    """Bytes of the card that is there, else of the sheet's."""
    if dossier.card.arch == sheet.arch:
        return float(dossier.card.memory_bytes)
    return sheet.memory_gib.value * 2**30


def memory_share(dossier: Dossier) -> float:
    """Of the card's memory that the engine may take: its flag, else this vLLM's default."""
    knob = dossier.knobs.flags.get("gpu-memory-utilization")
    for value in (dossier.spec.flags.get("gpu-memory-utilization"), knob.default if knob else None):
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
    return MEMORY_SHARE
