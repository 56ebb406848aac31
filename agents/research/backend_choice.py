"""Which attention back end would this engine take, layer by layer, and what stands in the way of the others? One answer
for the readers that propose and for the levers that refuse.

A flag or the model's own class in vLLM sets one for all layers; else each layer takes the first of the platform's order
that is valid for it (attention_backends.py). What the source does not say is not known, and not known refuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.research.attention_backends import (
    AITER_FROM,
    PLATFORMS,
    Backend,
    BackendsError,
    Reading,
    arch_facts,
    cuda_facts,
    generations,
    reading,
    registered,
)
from agents.research.attention_order import Tried, order
from agents.research.dossier import Dossier
from agents.research.gates.ask import AITER_OPS, answer_of
from agents.research.gates.evaluate import UNKNOWN
from agents.research.model_backends import Chosen, asked_backend, chosen, model_facts
from agents.research.served import kv_dtype, plain_dtype
from agents.research.step_work import latent_of
from contracts import Frozen
from engine.own_plugins import CLASS, PRIORITY, classes_of, priority_of

_LONG = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Option(Frozen):
    """A back end, and what stands in its way here."""

    backend: Backend
    reading: Reading
    in_order: bool  # the priority function names it
    hindrance: str  # for all layers; "" none known
    heads: tuple[int, ...]  # head sizes of the model that it takes, or may take


@dataclass(frozen=True)
class Choice:
    """What is known of an engine's choice. `asked` is told by a flag, `by_model` set by the model's class in vLLM."""

    package: Path
    platform: str  # platforms/rocm.py
    entries: tuple[Backend, ...]
    tried: tuple[Tried, ...]  # the order, as PRIORITY makes it; empty on a CPU
    sizes: tuple[int, ...]  # head sizes of the model
    facts: dict[str, Any]
    asked: str | None
    by_model: Chosen | None

    @property
    def current(self) -> str | None:
        """For all layers, whatever the order says."""
        return self.asked or (self.by_model.name if self.by_model and self.by_model.holds else None)

    def entry(self, name: str) -> Backend | None:
        return next((e for e in self.entries if e.name == name), None)

    def option(self, dossier: Dossier, name: str) -> Option | None:
        """None where the registry has no such name, or no class for it."""
        entry = self.entry(name)
        if entry is None:
            return None
        own = classes_of(dossier.spec.env.get(CLASS)).get(name)
        if own is not None:  # somebody's own class, not of this tree: what it takes is not known
            entry = entry.model_copy(update={"path": own})
        if not entry.path:
            return None
        said = reading(self.package, entry, self.sizes, self.facts)
        return Option(
            backend=entry,
            reading=said,
            in_order=name in {t.name for t in self.tried},
            hindrance="" if own else _hindrance(dossier, name, said, self.facts),
            heads=tuple(size for size in self.sizes if said.head_sizes[size] is not False),
        )

    def options(self, dossier: Dossier) -> dict[str, Option]:
        """By name, in the registry's order: what the order names and what is named for ROCm. Back ends of another kind
        of attention (MLA or not) and of single models are left out."""
        names = {t.name for t in self.tried}
        found = {}
        for entry in self.entries:
            mine = entry.name in names or (entry.name.startswith("ROCM_") and dossier.card.kind == "amd")
            if not mine or not entry.path.startswith("vllm.v1.") or (".mla." in entry.path) != self.facts["use_mla"]:
                continue
            if "SPARSE" in entry.name and not self.facts["use_sparse"]:
                continue
            option = self.option(dossier, entry.name)
            if option is not None:
                found[entry.name] = option
        return found


def backend_choice(dossier: Dossier) -> Choice:
    """Raises BackendsError where the tree has no registry or no order, where a platform plugin may decide instead, or
    no model is known."""
    if dossier.model is None:
        raise BackendsError("the model's shape is not known")
    if dossier.knobs.platforms and dossier.card.kind != "cpu":
        names = ", ".join(map(str, dossier.knobs.platforms))
        raise BackendsError(f"the platform plugin {names} orders and registers them, not vllm/{PLATFORMS['amd']}")
    package, kind = Path(dossier.knobs.path), dossier.card.kind
    entries = registered(package)
    facts = _facts(dossier, package)
    tried = order(package, facts, PLATFORMS[kind]) if kind != "cpu" else []
    tried = moved_first(tried, priority_of(dossier.spec.env.get(PRIORITY)))
    latent = latent_of(dossier.model_config_json)
    model = dossier.model
    sizes = tuple(sorted({k.head_size for k in model.attention} if latent is None else {latent.width}))
    asked = asked_backend(dossier)
    by_model = None if asked else chosen(package, model.architecture, {**facts, **model_facts(sizes)})
    if kind == "nvidia" and by_model is not None:  # model_facts answers for AMD cards
        by_model = by_model.model_copy(update={"holds": None})
    return Choice(package, PLATFORMS[kind], tuple(entries), tuple(tried), sizes, facts, asked, by_model)


def first_valid(tried: Sequence[Tried], options: dict[str, Option], size: int) -> str | None:
    """The first that can serve layers of this head size; None where a condition that is not known stands before it."""
    for one in tried:
        option = options.get(one.name)
        if one.holds is False or option is None or option.hindrance or size not in option.heads:
            continue
        return one.name if one.holds and option.reading.head_sizes[size] else None
    return None


def moved_first(tried: Sequence[Tried], names: Sequence[str]) -> list[Tried]:
    """The order as the plugin nightgate_attention makes it: `names` first, in that order and whatever their conditions
    say, then the rest as it was."""
    where = {t.name: t.where for t in tried}
    head = [Tried(name=n, condition="", holds=True, where=where.get(n, "")) for n in names]
    return [*head, *(t for t in tried if t.name not in names)]


def _facts(dossier: Dossier, package: Path) -> dict[str, Any]:
    """What is known of the questions that the platform's source asks."""
    arch = dossier.card.arch
    generation = generations(package).get(arch, 0) if dossier.card.kind == "amd" else 0
    facts = (
        arch_facts(arch, generation, True if dossier.aiter else None)
        if dossier.card.kind == "amd"
        else cuda_facts(arch)
        if dossier.card.kind == "nvidia"
        else {"get_cdna_version()": 0, "current_platform.is_cpu()": True}
    )
    if dossier.card.kind == "amd":
        name = "is_aiter_found_and_supported"
        said = answer_of(package, AITER_OPS, name, arch, IS_AITER_FOUND=True if dossier.aiter else UNKNOWN)
        facts |= {f"{name}()": said} if isinstance(said, bool) else {}  # a fork may let its own card in
        facts |= {f"envs.{key}": _switch(dossier, key, False) for key in _switches(dossier)}
    usable = facts.get("is_aiter_found_and_supported()", False)
    on = _switch(dossier, "VLLM_ROCM_USE_AITER", False)
    for name, default in (("mha", True), ("mla", True)):
        own = _switch(dossier, f"VLLM_ROCM_USE_AITER_{name.upper()}", default)
        off = usable is False or on is False or own is False
        facts[f"rocm_aiter_ops.is_{name}_enabled()"] = False if off else usable
    facts["use_mla"] = latent_of(dossier.model_config_json) is not None
    facts["use_sparse"] = bool(dossier.model_config_json.get("index_topk"))
    facts["use_kv_connector"] = "kv-transfer-config" in dossier.spec.flags
    return facts


def _switches(dossier: Dossier) -> list[str]:
    return [key for key, knob in dossier.knobs.env.items() if knob.default_known and isinstance(knob.default, bool)]


def _switch(dossier: Dossier, name: str, default: bool) -> bool:
    """An environment variable of the engine, else its default in this vLLM, else `default`."""
    if name in dossier.spec.env:
        return dossier.spec.env[name].strip().lower() in ("1", "true")
    knob = dossier.knobs.env.get(name)
    return knob.default if knob is not None and isinstance(knob.default, bool) else default


def _hindrance(dossier: Dossier, name: str, said: Reading, facts: dict[str, Any]) -> str:
    assert dossier.model is not None
    flags, kind = dossier.spec.flags, dossier.card.kind
    if not said.file:
        return "its class is not in this tree"
    if said.arch is False:
        return f"its class does not take this card: {said.arch_words}"
    if kind == "amd" and "aiter" in said.imports and facts["get_cdna_version()"] < AITER_FROM:
        lets_in = facts.get("is_aiter_found_and_supported()") is True
        return f"it imports AITER, {'whose kernels are for' if lets_in else 'which vLLM uses from'} CDNA{AITER_FROM} on"
    if kind == "amd" and "flashinfer" in said.imports:
        return "it imports FlashInfer, which is made for NVIDIA's cards"
    if kind == "nvidia" and name.startswith("ROCM_"):
        return "it is made for AMD's cards"
    value = kv_dtype(dossier.model, flags)
    if said.kv_dtypes is not None and value not in said.kv_dtypes:
        return f"it takes no KV cache of {value}, only of {', '.join(said.kv_dtypes)}"
    dtype = _LONG[plain_dtype(dossier.model, flags)]
    if said.dtypes is not None and dtype not in said.dtypes:
        return f"it takes no model in {dtype}, only in {', '.join(said.dtypes)}"
    block = flags.get("block-size")
    if said.blocks is not None and isinstance(block, int) and not any(block % n == 0 for n in said.blocks):
        return f"it takes no block of {block} tokens, only multiples of {' or '.join(map(str, said.blocks))}"
    if said.window is False and any(k.window for k in dossier.model.attention):
        return "it takes no sliding window"
    return ""
