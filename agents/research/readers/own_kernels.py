"""Would nightgate's own kernel for 4-bit weights (kernels/nightgate_kernels/w4a16_linear.py) be worth a try here?

It is written for cards without matrix units, whose decode steps read weights and do little else: there vLLM multiplies
4-bit weights by Triton kernels made for matrix units. It reads the weights once for every 8 tokens of a step, so the
fewer the better; above 64 it unpacks them, as vLLM's own does. A fork may have kernels of its own for the card: then
nothing published compares with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agents.research.captured import Step, decode_step, step_evidence
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms
from agents.research.model_shape import ModelShape
from agents.research.served import plain_dtype
from agents.research.shares import share
from agents.research.source_line import line_of
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Lever
from kernels.nightgate_kernels.tables import BUILT_IN, W4A16_MOST_ROWS

NAME = "own_kernels"
FOR_NIGHTS = True

KEY = "w4a16_linear#dispatch"
ONE_READ = max(map(int, BUILT_IN["w4a16_linear"]))  # tokens of a step for which weights are read once


class Rival(NamedTuple):
    """What computes such layers in this vLLM, and what nightgate's kernel may gain on it. `where`: in its source."""

    words: str
    speedup: float
    speedup_from: str
    probability: float
    where: str = ""


# From another kernel of this kind, written by hand for a Z100: QKV 63 -> 50 us, gate/up 105 -> 96.6, down 74.5 -> 51
# (configs/priors/gfx906.yaml, wave64-w4a16-gfx906), 1.23 in all. Ours was never timed on a card without matrix units.
SPEEDUP = 1.2
SPEEDUP_FROM = "published of another such kernel on a Z100, three layers of one model; this one was never timed there"
PROBABILITY, PROBABILITY_READ_AGAIN = 0.3, 0.1  # judged
# Against kernels that were written for this very card, as two forks for gfx906 have them (mobydick, nlzy). Judged.
SPEEDUP_FORK, PROBABILITY_FORK = 1.1, 0.05
SPEEDUP_FORK_FROM = "judged: no comparison with this vLLM's own kernels for the card is at hand"
# Where vLLM, in the versions that serve_w4a16_linear.py knows, decides what computes such a layer.
_QUANTIZATION, _LINEAR = "model_executor/layers/quantization", "model_executor/kernels/linear"
AWQ = (f"{_QUANTIZATION}/auto_awq.py", f"{_QUANTIZATION}/awq.py")
GPTQ = f"{_QUANTIZATION}/auto_gptq.py"
LISTS = (
    f"{_LINEAR}/__init__.py",
    f"{_LINEAR}/mixed_precision/exllama.py",
    f"{_QUANTIZATION}/kernels/mixed_precision/__init__.py",
    f"{_QUANTIZATION}/kernels/mixed_precision/exllama.py",
)


def look(dossier: Dossier) -> list[Finding]:
    model, sheet, step = dossier.model, dossier.sheet, decode_step(dossier)
    if model is None or sheet is None or "mfma" not in sheet.absent:
        return []
    lever = LEVERS[Lever.KERNEL_TABLE]
    if (
        _unfit(model, dossier)
        or step is None
        or step.tokens > W4A16_MOST_ROWS
        or lever.read(dossier.spec, KEY) is not None
    ):
        return []
    part, package = share(dossier, "decode", "gemm"), dossier.knobs.path
    if part is None or lever.validate(KEY, True, dossier.knobs) is not None or _unserved(model, package):
        return []
    rival, reads = _rival(model, package, sheet.arch, step.tokens)
    times = "once" if reads == 1 else f"{reads} times"
    return [
        Finding(
            reader=NAME,
            kind="opportunity",
            title=f"4-bit weights are multiplied by {rival.words}; nightgate's reads each weight {times} a decode step",
            evidence=_evidence(model, step, sheet.arch, rival),
            fix=f'engine.overlay: {{kernel_table: {{"{KEY}": true}}}}',
            change=Change(lever=Lever.KERNEL_TABLE, key=KEY, before=None, after=True),
            terms=Terms(
                phase="decode",
                share=part.value,
                share_from=part.words,
                share_measured=part.measured,
                speedup=rival.speedup,
                speedup_from=rival.speedup_from,
                probability=rival.probability,
                cost_s=dossier.cost_s(),
            ),
            risk="medium",
        )
    ]


def _unfit(model: ModelShape, dossier: Dossier) -> bool:
    """Other weights than the kernel's (serve_w4a16_linear.py): 4 bits in groups of a multiple of 8, no act-order,
    activations of 16 bits."""
    config = model.quantization_config
    if plain_dtype(model, dossier.spec.flags) not in ("fp16", "bf16"):
        return True
    if model.quantization == "compressed-tensors":
        groups = config.get("config_groups")
        plain = [g for g in groups.values() if isinstance(g, dict)] if isinstance(groups, dict) else []
        plain = [g for g in plain if isinstance(g.get("weights"), dict)]
        return not plain or not all(map(_packed_four_bits, plain))
    if model.quantization == "awq" and not config.get("zero_point", True):
        return True
    if model.quantization in ("awq", "gptq"):
        return not _four_bits(config.get("bits"), config.get("group_size"), config.get("desc_act"))
    return True


def _unserved(model: ModelShape, package: str) -> bool:
    """GPTQ's layers ask the list of kernels since auto_gptq.py; before that they call one, whatever is listed."""
    asks = not package or ":" in line_of(package, GPTQ, "choose_mp_linear_kernel")
    return model.quantization == "gptq" and not asks


def _rival(model: ModelShape, package: str, arch: str, tokens: int) -> tuple[Rival, int]:
    """And how often our kernel reads a weight in a decode step of that many tokens."""
    reads = -(-tokens // ONE_READ)
    files = AWQ if model.quantization == "awq" else (GPTQ, *LISTS)  # AWQ asks no list on AMD cards
    where = next((place for place in (line_of(package, file, arch) for file in files) if ":" in place), "")
    if where:
        words = f"kernels that this vLLM has for {arch}"
        return Rival(words, SPEEDUP_FORK, SPEEDUP_FORK_FROM, PROBABILITY_FORK, where), reads
    words = f"vLLM's Triton kernels, which are made for matrix units, and {arch} has none"
    return Rival(words, SPEEDUP, SPEEDUP_FROM, PROBABILITY if reads == 1 else PROBABILITY_READ_AGAIN), reads


def _packed_four_bits(group: dict[str, Any]) -> bool:
    """Of compressed-tensors: whole numbers (NVFP4 has 4 bits and groups too), and activations as they are."""
    weights = group["weights"]
    if weights.get("type", "int") != "int" or group.get("input_activations"):
        return False
    return _four_bits(weights.get("num_bits"), weights.get("group_size"), weights.get("actorder"))


def _four_bits(bits: Any, group: Any, reordered: Any) -> bool:
    return bits == 4 and isinstance(group, int) and group > 0 and group % 8 == 0 and not reordered


def _evidence(model: ModelShape, step: Step, arch: str, rival: Rival) -> tuple[Evidence, ...]:
    config = model.quantization_config
    detail = f"{model.quantization}, groups of {config.get('group_size', 'its own size')}"
    named = (Evidence(source=rival.where, detail=f"this vLLM decides for {arch} here"),) if rival.where else ()
    return (
        *named,
        Evidence(source="config.json#quantization_config", detail=detail),
        Evidence(source=f"configs/cards/{arch}.yaml#absent", detail="mfma"),
        step_evidence(step),
    )
