"""Which card is the night's: the one that is named, else the first that the engine's own build can serve on."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence

from cards.detect import detect
from cards.installed import installed
from cards.visible import MAKER, VISIBLE, Build, is_uuid, left_visible
from contracts import Card, NightConfig

__all__ = ["MAKER", "choose_card", "named_card", "pick_card", "spelled_card"]
PLACE = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])(#\d+)?", re.IGNORECASE)


def choose_card(config: NightConfig) -> tuple[Card, str]:
    """The night's card, and why in words. Never raises: where the engine's maker has no card here, or the named one is
    not here, the answer is the CPU with that reason, and preflight refuses the night."""
    inherited = {name: os.environ[name] for names in VISIBLE.values() for name in names if name in os.environ}
    answer, cards = installed(config.engine.python, config.engine.container), detect()
    if answer.problem is not None:
        processor = next(card for card in cards if card.kind == "cpu")
        return processor, "the CPU, because the engine's interpreter does not answer"
    return pick_card(cards, answer.build, config.engine.env, config.engine.card, inherited)


def pick_card(
    cards: Sequence[Card],
    build: Build | None,
    env: Mapping[str, str],
    named: str | None = None,
    inherited: Mapping[str, str] = {},
) -> tuple[Card, str]:
    """Pure. `cards` holds a CPU; `env` is the engine's own environment, `inherited` what this process was started with
    (visible devices): the engine gets both, its own first. `named` is engine.card, and wins over both."""
    processor = next(card for card in cards if card.kind == "cpu")
    if build is None or build == "cpu":
        what = "is a CPU build" if build == "cpu" else "does not say which cards its build serves on"
        return processor, f"the CPU, because the engine's vLLM {what}"
    maker = MAKER[build]
    own = [card for card in cards if card.kind == maker]
    if not own:
        return processor, f"the engine's vLLM is a {build} build, but this machine shows no {maker.upper()} card"
    if named is not None:
        card, why = named_card(own, named)
        return (processor, why) if card is None else (card, f"{card.name} at {card.place}, because {why}")
    both = {**inherited, **env}
    visible = left_visible(own, build, both)
    decides = next((name for name in VISIBLE[build] if name in both), None)
    where = "engine.env" if decides in env else "the environment"
    if not visible:
        all_of = f"the {maker.upper()} card" if len(own) == 1 else f"all {len(own)} {maker.upper()} cards"
        return processor, f"{decides}={both.get(decides or '', '')} in {where} hides {all_of}: correct or remove it"
    card, why = visible[0], "the only one" if len(own) == 1 else f"the first of {len(own)}"
    if decides is not None and len(own) > 1:
        why = f"the first that {decides}={both[decides]} in {where} leaves"
    elif decides is None and max(own, key=lambda c: c.memory_bytes).memory_bytes > card.memory_bytes:
        card = max(own, key=lambda c: c.memory_bytes)  # a processor's own graphics are often numbered first
        why = f"the largest of {len(own)} (engine.card may name another)"
    return card, f"{card.name}, because the engine's vLLM is a {build} build and it is {why}"


def named_card(cards: Sequence[Card], named: str) -> tuple[Card | None, str]:
    """The card that engine.card means, or None; in words either way, with what there is and what was meant."""
    wanted = _normal(named)
    exact = [c for c in cards if wanted in (_normal(c.uuid), _normal(c.place))]
    found = exact or [
        c for c in cards if (is_uuid(named) and _normal(c.uuid).startswith(wanted)) or wanted == _normal(c.pci_address)
    ]
    if len(found) == 1:
        return found[0], f"engine.card names {named}"
    there = {name: c for c in cards for name in (c.place, c.uuid) if name is not None}
    listed = ", ".join(f"{c.place or c.uuid} ({c.name}{', ' + c.uuid if c.uuid and c.place else ''})" for c in cards)
    if len(found) > 1:
        apart = not is_uuid(named) and len({c.place for c in found}) == len(found)  # MIG instances share an address
        names = ", ".join(str(c.place if apart else c.uuid) for c in found)
        return None, f"engine.card {named} fits {len(found)} cards: write one of {names}"
    near = difflib.get_close_matches(wanted, [_normal(name) for name in there], n=1, cutoff=0.75)
    meant = next((name for name in there if near and _normal(name) == near[0]), None)
    hint = f"; did you mean {meant}?" if meant else ""
    return None, f"engine.card {named} is no card that the engine can serve on here: there is {listed}{hint}"


def spelled_card(text: str) -> str | None:
    """What is wrong with the spelling of engine.card; None for a PCI address or a uuid."""
    if PLACE.fullmatch(text.strip()) or is_uuid(text):
        return None
    if text.strip().isdigit():
        return f"is a number ({text}), and numbers change at a reboot; write the PCI address or the uuid"
    return f"must be a PCI address (0000:03:00.0; a part of a card: 0000:03:00.0#2) or a uuid (GPU-...), got {text}"


def _normal(name: str | None) -> str:
    """One spelling: lower case, four digits of PCI domain."""
    text = (name or "").strip().lower()
    found = PLACE.fullmatch(text)
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}.{found[4]}{found[5] or ''}" if found else text
