"""The variables by which the makers' runtimes hide cards: what they leave, and which ones make an engine run on one
card whatever it is numbered.

AMD has two layers. ROCr reads ROCR_VISIBLE_DEVICES, numbers or "GPU-<16 hex digits>", and hides all others
(amd_filter_device.cpp: a prefix will do, a prefix of two cards or an unknown entry ends the list). HIP then counts what
is left from 0 and reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES where that is empty (clr's rocdevice.cpp). So a
card is exported by its uuid to ROCr and as number 0 to HIP; both of HIP's are set, because vLLM refuses to start where
they differ, and because vLLM 0.32.0 on ROCm takes numbers only.

vLLM itself asks amdsmi for the arch, the name and the memory of card 0, and amdsmi is not filtered: on a machine with
unlike AMD cards it may speak of another one. findings.py warns of that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from contracts import Card

Build = Literal["rocm", "cuda", "cpu"]
MAKER: dict[Build, Literal["amd", "nvidia"]] = {"rocm": "amd", "cuda": "nvidia"}
ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
# The one that wins first: HIP counts within what ROCr left.
VISIBLE: dict[Build, tuple[str, ...]] = {"rocm": (HIP, CUDA, ROCR), "cuda": (CUDA,)}
# On CUDA, vLLM before this read each entry as a number and crashed on a uuid: 0.20.1 (vllm issue 41848) and 0.22.0 did,
# 0.24.0 does not (club-3090 issue 750, whose owner tried the three).
UUIDS_SINCE = (0, 24)
# Two more that hide cards: Hygon's own tool takes them away before it sets HIP's (HYGON-AI/hcu-dcgm at b223b72,
# 2026-08-21, pkg/dcgm/edpp.go). A shell's must not hide what the night has chosen.
ALSO_HIDE = ("HSA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
MANY = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")  # flags of an engine on several cards


def left_visible(cards: Sequence[Card], build: Build, env: Mapping[str, str]) -> tuple[Card, ...]:
    """Of one maker's cards, which `env` leaves and in which order: the first is the engine's. Pure."""
    if build == "cuda":
        return _listed(cards, env.get(CUDA))
    survivors = _listed(cards, env.get(ROCR))
    # HIP takes an empty list for none given; to ROCr it means no card at all.
    return _listed(survivors, env.get(HIP) or env.get(CUDA) or None, recount=ROCR in env)


def _listed(cards: Sequence[Card], text: str | None, recount: bool = False) -> tuple[Card, ...]:
    """The cards that a list names. An entry that names none, or two, or one again, ends it, as in the runtimes. Numbers
    are the runtime's own count, which goes over cards that are not shown here too, or with `recount` over `cards`."""
    if text is None:
        return tuple(cards)
    found: list[Card] = []
    for entry in (part.strip() for part in text.split(",")):
        if re.fullmatch(r"\d{1,9}", entry, re.ASCII):
            places = enumerate(cards)
            named = [c for i, c in places if (i if recount or c.index is None else c.index) == int(entry)]
        else:
            named = [c for c in cards if is_uuid(entry) and (c.uuid or "").lower().startswith(entry.lower())]
        if len(named) != 1 or named[0] in found:
            break
        found.append(named[0])
    return tuple(found)


def is_uuid(text: str) -> bool:
    """ "GPU-" or "MIG-" and at least one hexadecimal digit of a uuid; the makers' runtimes take a beginning."""
    return re.fullmatch(r"(GPU|MIG)-[0-9a-f][0-9a-f/-]*", text.strip(), re.IGNORECASE) is not None


def visible_environment(card: Card, uuids: bool = True) -> dict[str, str]:
    """What makes an engine see this card alone; `uuids` false: its vLLM takes none on CUDA. An AMD card without a uuid
    (some kernels tell none of an MI50, and older ones none of a part of a card) is exported by its number in KFD's
    order, which holds until the next reboot. {} for a CPU, and for a card that nothing names."""
    name = card.uuid or (None if card.index is None else str(card.index))
    if card.kind == "cpu" or name is None:
        return {}
    if card.kind == "nvidia":
        number = not uuids and card.index is not None and not name.startswith("MIG-")
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", CUDA: str(card.index) if number else name}
    return {ROCR: name, HIP: "0", CUDA: "0"}


def exported_words(card: Card) -> str | None:
    """How the engine is given its card, where that is weaker than by a uuid; None where all is well."""
    if card.kind == "cpu" or card.uuid is not None:
        return None
    if card.index is None:
        return f"{card.name} has neither a uuid nor a number, so the engine takes the first card that it sees"
    where = f"{card.place or card.name} has no uuid of its own"
    return f"{where}: it is given to the engine as number {card.index} in KFD's order, which may change at a reboot"


def card_environment(
    card: Card, flags: Mapping[str, JsonValue], env: Mapping[str, str], vllm: str | None = None
) -> dict[str, str]:
    """visible_environment for one engine, whose vLLM has version `vllm` (None: not known, taken for new). {} where its
    own variables choose (they win, and the card was chosen by them), and where it runs on several cards, which one
    card's name would hide."""
    if any(name in env for name in (ROCR, HIP, CUDA)) or engine_cards(flags) > 1:
        return {}
    found = re.match(r"(\d+)\.(\d+)", vllm or "")
    return visible_environment(card, found is None or (int(found[1]), int(found[2])) >= UUIDS_SINCE)


def engine_cards(flags: Mapping[str, JsonValue]) -> int:
    """How many cards one engine takes, by its flags."""
    many = 1
    for name in MANY:
        value = flags.get(name)
        many *= value if isinstance(value, int) and value > 1 else 1
    return many
