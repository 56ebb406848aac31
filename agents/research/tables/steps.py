"""How many tokens a step has: the M of every matrix product, and the key of most lookups."""

from __future__ import annotations

from agents.research.batch_defaults import limit as limit_of
from agents.research.dossier import Dossier
from contracts import Frozen

# What vLLM captures graphs for unless it is told otherwise (config/vllm.py of 0.30.0 to 0.33.0): 1, 2, 4, then every 8
# below 256, every 16 after; up to twice the largest uniform decode batch and 512 at most.
CAPTURE_CAP = 512


class Steps(Frozen):
    """Tokens of a usual step of each phase, and where the numbers are from."""

    decode: int
    decode_words: str
    prefill: int
    prefill_words: str

    def of(self, phase: str) -> tuple[int, str]:
        return (self.prefill, self.prefill_words) if phase == "prefill" else (self.decode, self.decode_words)


def steps(dossier: Dossier) -> Steps:
    """Decode: running sequences x (1 + drafted tokens), padded up to a captured graph's size as vLLM does. Prefill:
    one prompt at a time, cut at max-num-batched-tokens."""
    limit = limit_of(dossier, "sequences").value
    running = dossier.counter("running_mean")
    if running is not None:
        sequences, words = max(1, round(running)), f"{running:g} sequences ran (engine counters)"
    elif dossier.workload.concurrency is not None:
        sequences = min(limit, dossier.workload.concurrency)
        words = f"{sequences} sequences at a time (workload)"
    else:
        sequences, words = min(limit, 32), f"{min(limit, 32)} sequences, judged: an open loop's number is not known"
    each = 1 + dossier.draft_tokens
    if each > 1:
        words += f" x {each} tokens (one and {each - 1} drafted)"
    raw = sequences * each
    decode = captured(raw, dossier, limit, each)
    if decode != raw:
        words += f", padded from {raw} to {decode} by graph capture"
    budget = limit_of(dossier, "tokens")
    longest = dossier.workload.shared_prefix_tokens + dossier.workload.input_tokens[1]
    prefill = max(1, min(budget.value, longest))
    told = f"the longest prompt has {longest} tokens, a step takes at most {budget.value} ({budget.words})"
    return Steps(decode=decode, decode_words=words, prefill=prefill, prefill_words=told)


def captured(tokens: int, dossier: Dossier, limit: int, each: int) -> int:
    """The size of the graph that a decode step of `tokens` runs in; `tokens` itself where none is captured."""
    mode = dossier.spec.compilation.get("cudagraph_mode")
    if dossier.spec.flags.get("enforce-eager") is True or mode in ("NONE", 0):
        return tokens
    given = dossier.spec.compilation.get("cudagraph_capture_sizes")
    if isinstance(given, list):
        sizes = sorted(s for s in given if isinstance(s, int) and not isinstance(s, bool))
    else:
        cap = min(limit * each * 2, CAPTURE_CAP)
        sizes = [s for s in (1, 2, 4, *range(8, 256, 8), *range(256, CAPTURE_CAP + 1, 16)) if s <= cap]
    return next((size for size in sizes if size >= tokens), tokens)
