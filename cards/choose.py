"""Which card is the night's: one that the engine's own build can serve on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from cards.detect import detect
from cards.installed import installed
from contracts import Card, NightConfig

Build = Literal["rocm", "cuda", "cpu"]
MAKER: dict[Build, Literal["amd", "nvidia"]] = {"rocm": "amd", "cuda": "nvidia"}
# The variables by which each maker's runtime hides cards, the one that wins first.
VISIBLE: dict[Build, tuple[str, ...]] = {
    "rocm": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "cuda": ("CUDA_VISIBLE_DEVICES",),
}


def choose_card(config: NightConfig) -> tuple[Card, str]:
    """The night's card, and why in words. Never raises: where the engine's maker has no card here the answer is the
    CPU with that reason, and preflight refuses the night."""
    return pick_card(detect(), installed(config.engine.python).build, config.engine.env)


def pick_card(cards: Sequence[Card], build: Build | None, env: Mapping[str, str]) -> tuple[Card, str]:
    """Pure. `cards` holds a CPU; `env` is the engine's own environment (visible devices)."""
    processor = next(card for card in cards if card.kind == "cpu")
    if build is None or build == "cpu":
        what = "is a CPU build" if build == "cpu" else "does not say which cards its build serves on"
        return processor, f"the CPU, because the engine's vLLM {what}"
    maker = MAKER[build]
    own = [card for card in cards if card.kind == maker]
    if not own:
        return processor, f"the engine's vLLM is a {build} build, but this machine shows no {maker.upper()} card"
    index, why = 0, f"the first of {len(own)}" if len(own) > 1 else "the only one"
    for name in VISIBLE[build]:
        first = env.get(name, "").split(",")[0].strip()
        if first.isdigit() and int(first) < len(own):
            index, why = int(first), f"number {first}, by {name} in engine.env"
            break
    return own[index], f"{own[index].name}, because the engine's vLLM is a {build} build and it is {why}"
