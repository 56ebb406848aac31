"""The attention calls that a model reaches under a workload: head sizes, windows, query lengths, dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.research.batch_defaults import said
from agents.research.dossier import Dossier
from agents.research.model_backends import asked_backend, chosen, model_facts
from agents.research.model_shape import AttentionKind
from agents.research.tables.attention import SHORT_CONTEXT, Call, whole
from agents.research.tables.attention_tree import KernelUser

PAGE = 64  # tokens: what vLLM's back end of this kernel prefers (0.33.0), where no block-size is set


@dataclass(frozen=True)
class Reached:
    """`share`: of the attention work (FLOPs) of all prompts that the layers of this kind do."""

    kind: AttentionKind
    share: float
    calls: tuple[Call, ...]  # decode first, then prompts, ascending

    @property
    def words(self) -> str:
        seen = f"window {self.kind.window}" if self.kind.window else "full attention"
        return f"{self.kind.layers} layers of head size {self.kind.head_size}, {seen}"


def named_backend(dossier: Dossier) -> str:
    """As the flags or the engine name it, else as this vLLM sets it for the model by itself; "" where none does."""
    held = asked_backend(dossier) or dossier.realised.get("attention_backend") or ""
    if not held and dossier.model is not None and dossier.knobs.path:
        sizes = tuple(sorted({kind.head_size for kind in dossier.model.attention}))
        own = chosen(Path(dossier.knobs.path), dossier.model.architecture, model_facts(sizes))
        held = own.name if own and own.holds else ""
    return str(held).upper()


def runs_elsewhere(backend: str, users: Sequence[KernelUser]) -> bool:
    """Prompts do not run on this kernel: a named back end has another one for them, or for everything."""
    return bool(backend and users) and not any(u.name == backend and u.whole for u in users)


def prompt_user(backend: str, users: Sequence[KernelUser]) -> KernelUser | None:
    """The back end that calls the kernel for prompts: the named one, else the first that would."""
    named = next((u for u in users if u.name == backend), None)
    return named or next((u for u in users if u.whole), None)


def reached(dossier: Dossier, user: KernelUser | None) -> list[Reached]:
    """[] without a model, or where its KV cache has a dtype that the kernel's tables have no tag for."""
    model, kv_tag = dossier.model, kv_cache_tag(dossier)
    if model is None or kv_tag is None:
        return []
    q_tag = "bf16" if kv_tag == "bf16" or (user is not None and not user.fp8_query) else "fp8"
    work = [_work(kind, _prompt(dossier)) for kind in model.attention]
    parallel, found = dossier.tensor_parallel, []
    for kind, one in zip(model.attention, work, strict=True):
        heads, kv_heads = max(1, kind.heads // parallel), max(1, kind.kv_heads // parallel)
        calls = tuple(
            Call(
                head_size=kind.head_size,
                rows=rows,
                window=kind.window is not None,
                q_tag=q_tag,
                kv_tag=kv_tag,
                queries_per_kv=max(1, heads // kv_heads),
                page=_whole_flag(dossier, "block-size") or PAGE,
                short_context=dossier.workload.peak_tokens < SHORT_CONTEXT,
            )
            for rows in [*decode_rows(dossier), *prompt_rows(dossier)]
        )
        found.append(Reached(kind, one / sum(work) if sum(work) else 0.0, calls))
    return found


def decode_rows(dossier: Dossier) -> list[int]:
    """Query rows of one sequence in a decode step: one (also a draft model's own), and one for each draft token."""
    return sorted({1, 1 + dossier.draft_tokens})


def prompt_rows(dossier: Dossier) -> list[int]:
    """Query rows of a prompt's pieces: the shortest and longest prompt, each cut at the budget of a step, and what is
    left of the longest."""
    low, high = dossier.workload.input_tokens
    budget = token_budget(dossier) or high
    pieces = {min(low, budget), min(high, budget), high % budget if high > budget else 0}
    return sorted(p for p in pieces if p > 1 + dossier.draft_tokens)


def token_budget(dossier: Dossier) -> int | None:
    """Tokens that one step takes at most, or None where neither the flags nor the engine nor its source say it."""
    held = said(dossier, "tokens")
    return held.value if held else None


def kv_cache_tag(dossier: Dossier) -> str | None:
    """The table's tag of the KV cache's dtype; None for one that it has no tag for (float32, int8)."""
    held = dossier.spec.flags.get("kv-cache-dtype") or dossier.realised.get("kv_cache_dtype") or "auto"
    name, model = str(held), dossier.model
    if name == "auto" and model is not None:  # the checkpoint's own scheme, else the model's dtype
        scheme = model.quantization_config.get("kv_cache_scheme")
        algorithm = str(model.quantization_config.get("kv_cache_quant_algo") or "").lower()
        bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
        name = "fp8" if bits == 8 or algorithm.startswith("fp8") else model.dtype
    if name.startswith("fp8"):
        return "fp8"
    if name.startswith("nvfp4"):
        return "nvfp4"
    return "bf16" if name in ("bfloat16", "float16", "half") else None


def _prompt(dossier: Dossier) -> float:
    """Mean length of a prompt, tokens."""
    return sum(dossier.workload.input_tokens) / 2 + dossier.workload.shared_prefix_tokens


def _work(kind: AttentionKind, tokens: float) -> float:
    """Of one prompt, in units of 4 FLOPs: pairs of query and key times head size, heads and layers."""
    seen = min(kind.window or tokens, tokens)
    return (seen * tokens - seen**2 / 2) * kind.head_size * kind.heads * kind.layers


def _whole_flag(dossier: Dossier, name: str) -> int | None:
    return whole(dossier.spec.flags.get(name))
